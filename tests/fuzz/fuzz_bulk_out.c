/*
 * The other half of the bulk channel: who sends, and who passes on. The first byte says which.
 *
 * A sender has chunks to send and hears answers of what may be a worker. The input is a program of
 * the far side: [how][number: 8 bytes] ..; it reads so many frames (which must be right), then says
 * the right answer, a sign of life, any number, or a part of one. What counts as answered is what
 * was answered rightly, in order, before the first thing that was wrong.
 *
 * A relay has a connection to who said hello for another worker, and one to what may be that
 * worker, whose welcome it must get. The input is what each side says: [bytes of the first side: 2
 * bytes] those, and the rest. What comes out at one end is what went in at the other, to the end of
 * what is short.
 */
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transfer/bulk_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ITEMS      12u
#define ITEM_BYTES 1500u /* of the longest: all fit a socket's buffer */
#define CHUNK      100u  /* number of the first */
#define STEP_BYTES 9u
#define INPUT_MAX  8192u

enum {
    RELAY       = 1u << 0, /* bits of the first byte */
    RIGHT_MAGIC = 1u << 1, /* the welcome is one */
    WELCOME_OK  = 1u << 2, /* and says that all is well */
};

static struct transfer_bulk bulk;
static struct bulk_words words;
static uint8_t slab[ITEMS * ITEM_BYTES];

static void begin(void)
{
    pl_log_set_level(PL_LOG_ERROR);
    bulk = (struct transfer_bulk){.stop_fd = -1};
    for (size_t i = 0; i < sizeof(slab); i++) {
        slab[i] = (uint8_t)(i * 31 + i / 256);
    }
    for (uint32_t i = 0; i < TRANSFER_BULK_OUT_SLOTS; i++) {
        words.ready[i].value = ITEMS; /* the device has filled them all */
    }
}

/* Of a connection: our end, which never waits, and the far one. */
static void pair_make(int *out_ours, int *out_far)
{
    int fds[2];

    PL_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    PL_CHECK(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
    *out_ours = fds[0];
    *out_far  = fds[1];
}

static bool read_all(int fd, void *out, size_t bytes)
{
    return bytes == 0 || recv(fd, out, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* ----------------------------------------------------------------------------- a sender */

struct far {
    const uint8_t *program;
    size_t left;
    int fd;
    uint32_t read;     /* frames */
    uint32_t answered; /* rightly, before anything was wrong */
    uint64_t saying;   /* a number of which `said` bytes have gone */
    size_t said;
    bool wrong;
    bool early; /* it said a number that may have been sent or not: either is right */
    bool alone; /* the sender hung up before anything was wrong: it lost patience */
};

static uint32_t item_bytes(uint32_t i)
{
    return i * 137 % ITEM_BYTES; /* the first has none */
}

/*
 * All chunks are sent without an answer; so frames up to the last one come, unless the sender has
 * hung up because something was wrong.
 */
static void frames_read(struct far *far, uint32_t count)
{
    static uint8_t bytes[ITEM_BYTES];

    while (!far->wrong && !far->alone && count-- > 0 && far->read < ITEMS) {
        struct bulk_frame frame;

        if (!read_all(far->fd, &frame, sizeof(frame))) {
            far->alone = true;
            return;
        }
        PL_CHECK(frame.chunk == CHUNK + far->read);
        PL_CHECK(frame.bytes == item_bytes(far->read));
        if (!read_all(far->fd, bytes, frame.bytes)) {
            far->alone = true;
            return;
        }
        PL_CHECK(memcmp(bytes, slab + far->read * ITEM_BYTES, frame.bytes) == 0);
        far->read++;
    }
}

/*
 * An answer that the sender hears. Right: the number of the oldest chunk that it has sent and not
 * heard of.
 */
static void answered(struct far *far, uint64_t number)
{
    if (far->wrong || number == BULK_ALIVE || number == BULK_WAITING) {
        return;
    }
    if (number == CHUNK + far->answered && far->answered < far->read) {
        far->answered++;
        return;
    }
    far->wrong = true;
    far->early = number - CHUNK < ITEMS;
}

static void say(struct far *far, uint64_t number, size_t bytes)
{
    (void)!send(far->fd, &number, bytes, MSG_NOSIGNAL); /* it may have hung up */
    for (size_t i = 0; i < bytes; i++) {
        far->saying |= (number >> 8 * i & 0xffu) << 8 * far->said;
        if (++far->said == sizeof(number)) {
            answered(far, far->saying);
            far->saying = 0;
            far->said   = 0;
        }
    }
}

static void *far_run(void *user)
{
    struct far *far = user;

    for (; far->left >= STEP_BYTES; far->left -= STEP_BYTES, far->program += STEP_BYTES) {
        uint8_t how = far->program[0];
        uint64_t number;

        memcpy(&number, far->program + 1, sizeof(number));
        frames_read(far, how >> 2 & 15u);
        switch (how & 3u) {
        case 0:
            say(far, CHUNK + far->answered, sizeof(number));
            break;
        case 1:
            say(far, BULK_ALIVE, sizeof(number));
            break;
        case 2:
            say(far, number, sizeof(number));
            break;
        default:
            say(far, number, number % sizeof(number));
            break;
        }
    }
    PL_CHECK(shutdown(far->fd, SHUT_WR) == 0);
    return NULL;
}

static void items_add(struct bulk_out *out)
{
    for (uint32_t i = 0; i < ITEMS; i++) {
        struct bulk_item *item = pl_vec_push(&out->items);

        PL_CHECK(item != NULL);
        *item = (struct bulk_item){.chunk = CHUNK + i,
                                   .own   = i,
                                   .data  = slab + i * ITEM_BYTES,
                                   .bytes = item_bytes(i)};
        out->stats.bytes_queued += item->bytes;
    }
}

static void expect_answered(const struct bulk_out *out, const struct far *far)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < far->answered; i++) {
        bytes += item_bytes(i);
    }
    PL_CHECK(!far->alone);
    PL_CHECK(out->stats.bytes == bytes);
    PL_CHECK(words.sent.value == far->answered);
}

static void sender(const uint8_t *data, size_t size)
{
    struct far far        = {.program = data, .left = size};
    struct bulk_link link = {.stop_fd = -1};
    plasmon_status_t status;
    struct bulk_out *out;
    pthread_t thread;

    pair_make(&link.fd, &far.fd);
    PL_CHECK(bulk_out_create(&bulk, 1, &out) == PLASMON_OK);
    out->words = &words;
    items_add(out);
    PL_CHECK(pthread_create(&thread, NULL, far_run, &far) == 0);
    status = bulk_out_serve(out, &link);
    PL_CHECK(status != PLASMON_OK); /* the input has an end */
    PL_CHECK(pthread_join(thread, NULL) == 0);
    if (status != PLASMON_ETIMEDOUT && !far.early) {
        expect_answered(out, &far);
    }
    words.sent.value = 0;
    bulk_out_destroy(out);
    (void)close(far.fd);
}

/* ------------------------------------------------------------------------------ a relay */

/* What has come: the beginning of what was said. */
static void expect_beginning(int fd, const uint8_t *said, size_t bytes)
{
    static uint8_t got[INPUT_MAX + 1];
    ssize_t count = recv(fd, got, sizeof(got), MSG_DONTWAIT);

    PL_CHECK(count <= (ssize_t)bytes); /* 0 or less: it was hung up on */
    PL_CHECK(count <= 0 || memcmp(got, said, (size_t)count) == 0);
}

/* The near side hears how it went first. true: well. */
static bool welcome_heard(int fd)
{
    struct bulk_welcome welcome;

    PL_CHECK(read_all(fd, &welcome, sizeof(welcome)));
    PL_CHECK(welcome.magic == BULK_MAGIC && welcome.version == BULK_VERSION);
    return welcome.status == PLASMON_OK;
}

static void side_says(int fd, const uint8_t *bytes, size_t count)
{
    PL_CHECK(count == 0 || send(fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
    PL_CHECK(shutdown(fd, SHUT_WR) == 0);
}

static void relay(const uint8_t *near, size_t near_bytes, const uint8_t *far,
                  size_t far_bytes)
{
    struct transfer_bulk_endpoint endpoint = {.address = "127.0.0.1:1", .secret = {7}};
    struct bulk_hello hello                = {.from = 3, .to = 4}, told;
    struct bulk_in in                      = {.bulk = &bulk, .link = {.stop_fd = -1}};
    struct bulk_link out                   = {.stop_fd = -1};
    const size_t welcome                   = sizeof(struct bulk_welcome);
    int first, second;

    pair_make(&in.link.fd, &first);
    pair_make(&out.fd, &second);
    side_says(first, near, near_bytes);
    side_says(second, far, far_bytes);
    bulk_relay_through(&in, &hello, &endpoint, &out);
    bulk_link_close(&in.link);
    bulk_link_close(&out);
    PL_CHECK(read_all(second, &told, sizeof(told)));
    PL_CHECK(told.from == hello.from && told.to == hello.to);
    PL_CHECK(memcmp(told.secret, endpoint.secret, sizeof(told.secret)) == 0);
    if (welcome_heard(first)) {
        PL_CHECK(far_bytes >= welcome);
        expect_beginning(first, far + welcome, far_bytes - welcome);
        expect_beginning(second, near, near_bytes);
    } else { /* nothing passes between those who were not introduced */
        expect_beginning(first, NULL, 0);
        expect_beginning(second, NULL, 0);
    }
    (void)close(first);
    (void)close(second);
}

static void relay_input(uint8_t how, uint8_t *data, size_t size)
{
    struct bulk_welcome welcome = {.magic = BULK_MAGIC, .version = BULK_VERSION};
    uint16_t near_bytes         = 0;

    if (size >= sizeof(near_bytes)) {
        memcpy(&near_bytes, data, sizeof(near_bytes));
        data += sizeof(near_bytes);
        size -= sizeof(near_bytes);
    }
    near_bytes = (uint16_t)pl_min_u64(near_bytes, size);
    if ((how & RIGHT_MAGIC) != 0 && size - near_bytes >= sizeof(welcome)) {
        memcpy(data + near_bytes, &welcome,
               (how & WELCOME_OK) != 0 ? sizeof(welcome)
                                       : offsetof(struct bulk_welcome, status));
    }
    relay(data, near_bytes, data + near_bytes, size - near_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t input[INPUT_MAX];
    static bool begun;

    if (!begun) {
        begin();
        begun = true;
    }
    if (size == 0) {
        return 0;
    }
    if ((data[0] & RELAY) == 0) {
        sender(data + 1, size - 1);
        return 0;
    }
    size = pl_min_u64(size, INPUT_MAX);
    memcpy(input, data, size);
    relay_input(input[0], input + 1, size - 1);
    return 0;
}
