/*
 * Tokens: files of any bytes, and calls with any header, to a head that takes three of them. The
 * input is up to five pieces, each [length: 1 byte][bytes]: the file of the cluster's token, of the
 * one of before, of a namespace's; the environment; what a call shows as "authorization". Whatever
 * is in there: a file is refused with a reason that has nothing of it, or its first line is a token
 * that a header can carry; a call gets in by a token of those, letter for letter, as whose it is,
 * and by nothing else.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "rpc/grpc_int.h"
#include "trust/trust.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CLUSTER, BEFORE, SPACE, FILES };

struct piece {
    const uint8_t *bytes;
    size_t length;
};

static struct piece piece_next(const uint8_t **io_data, size_t *io_size)
{
    size_t length      = *io_size > 0 ? pl_min_u64((*io_data)[0], *io_size - 1) : 0;
    struct piece piece = {.bytes = *io_data + (*io_size > 0), .length = length};

    *io_data += length + (*io_size > 0);
    *io_size -= length + (*io_size > 0);
    return piece;
}

static bool is_token(const char *text)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e) {
            return false;
        }
    }
    return length > 0 && text[0] != ' ' && text[length - 1] != ' ';
}

/* The same file again and again, private to us. A file's token, or "". */
static void file_token(const struct piece *piece, char out[TRUST_TOKEN_BYTES_MAX + 1])
{
    static int fd = -1;
    static char path[32];
    struct pl_err err = {.status = PLASMON_OK};

    if (fd < 0) {
        fd = memfd_create("token", MFD_CLOEXEC);
        PL_CHECK(fd >= 0 && fchmod(fd, 0600) == 0);
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    PL_CHECK(ftruncate(fd, 0) == 0);
    PL_CHECK(pwrite(fd, piece->bytes, piece->length, 0) == (ssize_t)piece->length);
    memset(out, 0x5a, TRUST_TOKEN_BYTES_MAX + 1);
    if (trust_token_read(path, out, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0' && out[0] == '\0');
        return;
    }
    PL_CHECK(is_token(out));
    PL_CHECK(strlen(out) <= piece->length && memcmp(out, piece->bytes, strlen(out)) == 0);
    PL_CHECK(strlen(out) == piece->length || piece->bytes[strlen(out)] == '\n' ||
             piece->bytes[strlen(out)] == '\r');
}

/* Gone from the environment in any case. */
static void environment(const struct piece *piece)
{
    char *text        = pl_alloc(piece->length + 1), token[TRUST_TOKEN_BYTES_MAX + 1];
    struct pl_err err = {.status = PLASMON_OK};

    PL_CHECK(text != NULL);
    memcpy(text, piece->bytes, piece->length);
    text[piece->length] = '\0';
    PL_CHECK(setenv("PLASMON_TOKEN", text, 1) == 0);
    if (trust_token_take(token, &err) == PLASMON_OK) {
        PL_CHECK(strcmp(token, text) == 0 && (token[0] == '\0' || is_token(token)));
    } else {
        PL_CHECK(err.text[0] != '\0' && token[0] == '\0' && !is_token(text));
    }
    PL_CHECK(getenv("PLASMON_TOKEN") == NULL);
    pl_free(text);
}

/* What gRPC hands a server: the metadata of a call, of which one is "authorization". */
static char *shown(const struct piece *piece)
{
    grpc_metadata metadata[2] = {
        {.key   = grpc_slice_from_static_string("user-agent"),
         .value = grpc_slice_from_static_string("Bearer of news")},
        {.key   = grpc_slice_from_static_string("authorization"),
         .value = grpc_slice_from_static_buffer(piece->bytes, piece->length)}};
    const grpc_metadata_array array = {.count = 2, .capacity = 2, .metadata = metadata};
    char *token;

    return rpc_token_of_metadata(&array, &token) ? token : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char tokens[FILES][TRUST_TOKEN_BYTES_MAX + 1];
    const char *spaces[]       = {tokens[SPACE], NULL};
    struct rpc_server server   = {.token = tokens[CLUSTER], .token_before = tokens[BEFORE]};
    static const char bearer[] = "Bearer ";
    const size_t prefix        = sizeof(bearer) - 1;
    struct piece piece;
    bool in;
    int index;
    char *token;

    for (int i = 0; i < FILES; i++) {
        piece = piece_next(&data, &size);
        file_token(&piece, tokens[i]);
    }
    server.tokens = tokens[SPACE][0] != '\0' ? spaces : NULL;
    piece         = piece_next(&data, &size);
    environment(&piece);

    piece = piece_next(&data, &size);
    token = shown(&piece);
    if (token != NULL) {
        PL_CHECK(piece.length >= prefix && strlen(token) <= piece.length - prefix &&
                 memcmp(token, piece.bytes + prefix, strlen(token)) == 0);
    }
    in = rpc_server_token_find(&server, token != NULL ? token : "", &index);
    if (tokens[CLUSTER][0] == '\0') {
        PL_CHECK(in); /* on loopback and Unix sockets, where all may */
    } else if (token == NULL || token[0] == '\0') {
        PL_CHECK(!in);
    } else if (strcmp(token, tokens[CLUSTER]) == 0 || strcmp(token, tokens[BEFORE]) == 0) {
        PL_CHECK(in && index == RPC_TOKEN_CLUSTER);
    } else {
        PL_CHECK(in == (strcmp(token, tokens[SPACE]) == 0) &&
                 index == (in ? 0 : RPC_TOKEN_NONE));
    }
    pl_free(token);
    return 0;
}
