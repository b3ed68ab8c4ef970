#include "npy.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAGIC_BYTES      = 6,
    PREAMBLE_V1      = 10,
    PREAMBLE_V2      = 12,
    HEADER_BYTES_MAX = 65536,
    ALIGNMENT        = 64
};

static int fail(char error[NPY_TEXT_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int fail(char error[NPY_TEXT_BYTES], const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(error, NPY_TEXT_BYTES, format, args);
    va_end(args);
    return -1;
}

/* ------------------------------------------------------------------------------- header */

/* The text of the dict that has not been read yet. */
struct cursor {
    const char *at;
    const char *end;
};

static void skip_space(struct cursor *cursor)
{
    while (cursor->at < cursor->end && isspace((unsigned char)*cursor->at)) {
        cursor->at++;
    }
}

static bool take(struct cursor *cursor, const char *text)
{
    size_t length = strlen(text);

    skip_space(cursor);
    if ((size_t)(cursor->end - cursor->at) < length ||
        memcmp(cursor->at, text, length) != 0) {
        return false;
    }
    cursor->at += length;
    return true;
}

/* 'text' or "text", without escapes, which these headers do not need. */
static bool take_string(struct cursor *cursor, char *out, size_t out_bytes)
{
    const char *close;
    char quote;
    size_t length;

    skip_space(cursor);
    if (cursor->at == cursor->end || (*cursor->at != '\'' && *cursor->at != '"')) {
        return false;
    }
    quote = *cursor->at++;
    close = memchr(cursor->at, quote, (size_t)(cursor->end - cursor->at));
    if (close == NULL) {
        return false;
    }
    length = (size_t)(close - cursor->at);
    if (length >= out_bytes) {
        return false;
    }
    memcpy(out, cursor->at, length);
    out[length] = '\0';
    cursor->at  = close + 1;
    return true;
}

static bool take_number(struct cursor *cursor, int64_t *out)
{
    int64_t value = 0;
    bool any      = false;

    skip_space(cursor);
    for (; cursor->at < cursor->end && isdigit((unsigned char)*cursor->at); cursor->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *cursor->at - '0', &value)) {
            return false;
        }
        any = true;
    }
    *out = value;
    return any;
}

static int parse_shape(const char *path, struct cursor *cursor, struct npy *file,
                       char error[NPY_TEXT_BYTES])
{
    int64_t dim[2]     = {0, 0};
    uint32_t dim_count = 0;

    if (!take(cursor, "(")) {
        return fail(
            error,
            "%s: the header's shape is not a tuple; write the file again with numpy.save",
            path);
    }
    while (!take(cursor, ")")) {
        int64_t value;

        if (!take_number(cursor, &value)) {
            return fail(error,
                        "%s: dimension %u of the shape is not a number that fits 63 bits",
                        path, dim_count);
        }
        if (dim_count < 2) {
            dim[dim_count] = value;
        }
        dim_count++;
        if (!take(cursor, ",")) {
            if (!take(cursor, ")")) {
                return fail(error,
                            "%s: the header's shape does not end; write the file again "
                            "with numpy.save",
                            path);
            }
            break;
        }
    }
    if (dim_count != 2) {
        return fail(error,
                    "%s: the array has %u dimensions and a matrix has 2; use "
                    "array.reshape(rows, columns)",
                    path, dim_count);
    }
    if (dim[0] == 0 || dim[1] == 0) {
        return fail(error, "%s: the array is empty (%lld x %lld)", path, (long long)dim[0],
                    (long long)dim[1]);
    }
    file->rows    = dim[0];
    file->columns = dim[1];
    return 0;
}

static int parse_descr(const char *path, struct cursor *cursor, struct npy *file,
                       char error[NPY_TEXT_BYTES])
{
    char descr[32];

    if (!take_string(cursor, descr, sizeof(descr))) {
        return fail(error,
                    "%s: its dtype is not a simple one; use array.astype('<f4') or "
                    "array.astype('<f8')",
                    path);
    }
    if (strcmp(descr, "<f4") == 0) {
        file->element_bytes = 4;
    } else if (strcmp(descr, "<f8") == 0) {
        file->element_bytes = 8;
    } else if (descr[0] == '|' && descr[1] == 'O') {
        return fail(error,
                    "%s: it holds Python objects, not numbers; use array.astype('<f8')",
                    path);
    } else {
        return fail(
            error,
            "%s: its dtype is '%s'; '<f4' and '<f8' can be read: use array.astype('<f8')",
            path, descr);
    }
    return 0;
}

enum { KEY_DESCR = 1, KEY_ORDER = 2, KEY_SHAPE = 4, KEY_ALL = 7 };

/* One "'key': value". Returns the key's bit, 0 for what is no key of ours, -1 when the value is refused. */
static int parse_item(const char *path, struct cursor *cursor, struct npy *file,
                      char error[NPY_TEXT_BYTES])
{
    char key[32];

    if (!take_string(cursor, key, sizeof(key)) || !take(cursor, ":")) {
        return 0;
    }
    if (strcmp(key, "descr") == 0) {
        return parse_descr(path, cursor, file, error) != 0 ? -1 : KEY_DESCR;
    }
    if (strcmp(key, "shape") == 0) {
        return parse_shape(path, cursor, file, error) != 0 ? -1 : KEY_SHAPE;
    }
    if (strcmp(key, "fortran_order") == 0 && take(cursor, "True")) {
        return fail(error, "%s: it is in Fortran order; use numpy.ascontiguousarray(array)",
                    path);
    }
    return strcmp(key, "fortran_order") == 0 && take(cursor, "False") ? KEY_ORDER : 0;
}

static int parse_dict(const char *path, struct cursor cursor, struct npy *file,
                      char error[NPY_TEXT_BYTES])
{
    int seen = 0;

    if (!take(&cursor, "{")) {
        return fail(error,
                    "%s: its header is not a dict; write the file again with numpy.save",
                    path);
    }
    while (!take(&cursor, "}")) {
        int key = parse_item(path, &cursor, file, error);

        if (key < 0) {
            return -1;
        }
        if (key == 0 || (seen & key) != 0) {
            return fail(error,
                        "%s: its header has something else than descr, fortran_order and "
                        "shape, once each; write the file again with numpy.save",
                        path);
        }
        seen |= key;
        if (!take(&cursor, ",")) {
            if (!take(&cursor, "}")) {
                return fail(
                    error,
                    "%s: its header does not end; write the file again with numpy.save",
                    path);
            }
            break;
        }
    }
    skip_space(&cursor);
    if (seen != KEY_ALL || cursor.at != cursor.end) {
        return fail(error, "%s: its header %s; write the file again with numpy.save", path,
                    seen != KEY_ALL ? "lacks descr, fortran_order or shape"
                                    : "goes on after the dict");
    }
    return 0;
}

int npy_parse(const char *path, const void *bytes, size_t length, uint64_t file_bytes,
              struct npy *out_file, size_t *out_offset, char error[NPY_TEXT_BYTES])
{
    const unsigned char *head = bytes;
    struct npy file           = {.fd = -1};
    size_t preamble;
    size_t header_bytes;
    uint64_t data_bytes;

    if (length < PREAMBLE_V1 || memcmp(head, "\x93NUMPY", MAGIC_BYTES) != 0) {
        return fail(error,
                    "%s: not a .npy file (it does not begin with \\x93NUMPY); write it "
                    "with numpy.save",
                    path);
    }
    if (head[6] < 1 || head[6] > 3 || head[7] != 0) {
        return fail(error,
                    "%s: version %u.%u of the .npy format; 1.0, 2.0 and 3.0 can be read",
                    path, head[6], head[7]);
    }
    preamble = head[6] == 1 ? PREAMBLE_V1 : PREAMBLE_V2;
    if (length < preamble) {
        return fail(error,
                    "%s: the file ends within its header; it was cut off: write it again",
                    path);
    }
    header_bytes = head[8] | (size_t)head[9] << 8;
    if (preamble == PREAMBLE_V2) {
        header_bytes |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    if (header_bytes > HEADER_BYTES_MAX) {
        return fail(error,
                    "%s: a header of %zu bytes; that of a matrix is far shorter: the file "
                    "is damaged",
                    path, header_bytes);
    }
    if (length - preamble < header_bytes) {
        return fail(error,
                    "%s: the file ends within its header; it was cut off: write it again",
                    path);
    }
    if (parse_dict(path,
                   (struct cursor){(const char *)head + preamble,
                                   (const char *)head + preamble + header_bytes},
                   &file, error) != 0) {
        return -1;
    }
    if (__builtin_mul_overflow((uint64_t)file.rows, (uint64_t)file.columns, &data_bytes) ||
        __builtin_mul_overflow(data_bytes, file.element_bytes, &data_bytes) ||
        data_bytes > INT64_MAX) {
        return fail(error,
                    "%s: a shape of %lld x %lld has more bytes than 63 bits can count: the "
                    "header is damaged",
                    path, (long long)file.rows, (long long)file.columns);
    }
    if (file_bytes - preamble - header_bytes != data_bytes) {
        return fail(error,
                    "%s: %lld x %lld elements are %llu bytes, but %llu follow the header; "
                    "the file was cut off or is damaged: write it again",
                    path, (long long)file.rows, (long long)file.columns,
                    (unsigned long long)data_bytes,
                    (unsigned long long)(file_bytes - preamble - header_bytes));
    }
    *out_file   = file;
    *out_offset = preamble + header_bytes;
    return 0;
}

/* -------------------------------------------------------------------------------- files */

int npy_open(const char *path, struct npy *out_file, char error[NPY_TEXT_BYTES])
{
    struct stat about;
    void *mapping;
    size_t offset;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &about) != 0) {
        (void)fail(error, "%s: %s", path, strerror(errno));
        goto err_close;
    }
    if (!S_ISREG(about.st_mode) || about.st_size < PREAMBLE_V1) {
        (void)fail(error, "%s: not a .npy file (%s); write it with numpy.save", path,
                   S_ISREG(about.st_mode) ? "too short" : "not a regular file");
        goto err_close;
    }
    mapping = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED) {
        (void)fail(error, "%s: cannot be mapped: %s", path, strerror(errno));
        goto err_close;
    }
    if (npy_parse(path, mapping, (size_t)about.st_size, (uint64_t)about.st_size, out_file,
                  &offset, error) != 0) {
        goto err_unmap;
    }
    (void)close(fd); /* the mapping stays; nothing was written */
    out_file->mapping       = mapping;
    out_file->mapping_bytes = (size_t)about.st_size;
    out_file->data          = (const char *)mapping + offset;
    return 0;

err_unmap:
    (void)munmap(mapping, (size_t)about.st_size);
err_close:
    if (fd >= 0) {
        (void)close(fd);
    }
    return -1;
}

static int write_all(int fd, const char *data, size_t length, off_t offset)
{
    while (length > 0) {
        ssize_t written = pwrite(fd, data, length, offset);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return -1;
        }
        data += written;
        length -= (size_t)written;
        offset += written;
    }
    return 0;
}

int npy_create(const char *path, size_t element_bytes, int64_t rows, int64_t columns,
               struct npy *out_file, char error[NPY_TEXT_BYTES])
{
    char head[2 * ALIGNMENT];
    int64_t bytes;
    int fd;

    if (rows <= 0 || columns <= 0 || __builtin_mul_overflow(rows, columns, &bytes) ||
        __builtin_mul_overflow(bytes, (int64_t)element_bytes, &bytes) ||
        __builtin_add_overflow(bytes, (int64_t)sizeof(head), &bytes)) {
        return fail(error, "%s: %lld x %lld is no size for a matrix", path, (long long)rows,
                    (long long)columns);
    }
    memset(head, ' ', sizeof(head));
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)(sizeof(head) - PREAMBLE_V1);
    head[9] = 0;
    /* At most 99 characters with two 63-bit dimensions: they fit, and the data begins at a multiple of 64. */
    head[PREAMBLE_V1 +
         snprintf(head + PREAMBLE_V1, sizeof(head) - PREAMBLE_V1,
                  "{'descr': '<f%zu', 'fortran_order': False, 'shape': (%lld, %lld), }",
                  element_bytes, (long long)rows, (long long)columns)] = ' ';
    head[sizeof(head) - 1]                                             = '\n';

    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return fail(error, "%s: %s", path, strerror(errno));
    }
    if (ftruncate(fd, bytes) != 0 || write_all(fd, head, sizeof(head), 0) != 0) {
        (void)fail(error, "%s: cannot be written: %s", path, strerror(errno));
        (void)close(fd);
        return -1;
    }
    *out_file = (struct npy){
        .element_bytes = element_bytes, .rows = rows, .columns = columns, .fd = fd};
    return 0;
}

int npy_write_box(const struct npy *file, int64_t row, int64_t column, int64_t rows,
                  int64_t columns, const void *data, char error[NPY_TEXT_BYTES])
{
    size_t line = (size_t)columns * file->element_bytes;

    if (row < 0 || column < 0 || rows < 0 || columns < 0 || row > file->rows - rows ||
        column > file->columns - columns) {
        return fail(error, "a box outside of the matrix");
    }
    for (int64_t i = 0; i < rows; i++) {
        off_t offset = 2 * ALIGNMENT +
                       ((row + i) * file->columns + column) * (int64_t)file->element_bytes;

        if (write_all(file->fd, (const char *)data + (size_t)i * line, line, offset) != 0) {
            return fail(error, "cannot write the result: %s", strerror(errno));
        }
    }
    return 0;
}

int npy_close(struct npy *file, char error[NPY_TEXT_BYTES])
{
    int result = 0;

    if (file->mapping != NULL) {
        (void)munmap(file->mapping, file->mapping_bytes);
    }
    if (file->fd >= 0 && close(file->fd) != 0) {
        result = fail(error, "cannot write the result: %s", strerror(errno));
    }
    *file = (struct npy){.fd = -1};
    return result;
}
