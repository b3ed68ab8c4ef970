/* The host's shared memory against a store in a thread: real descriptors, the real object table. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "client/shared.h"
#include "tests/harness/test.h"

#define CHUNK_BYTES (1u << 20)
#define SECOND_NS   1000000000ull

/*
 * One CPU device with a chunk of results (at 0), one that clients write (behind it), and two of
 * results that lie side by side.
 */
#define CHUNKS 4u

struct fake_store {
    int fd;
    int table_fd, pins_fd, chunk_fd[CHUNKS];
    struct store_table *table;
    struct store_pins *pins;
    uint8_t *chunk[CHUNKS];
    bool lies; /* says of a chunk that it is elsewhere than the table does */
    unsigned gets;
    pthread_t thread;
};

static void answer(struct fake_store *store, struct store_control message, const int *fds,
                   unsigned count)
{
    message.version = STORE_CONTROL_VERSION;
    message.count   = count;
    message.total   = 1;
    ASSERT_OK(pl_fd_send(store->fd, &message, sizeof(message), fds, count));
}

static void set_up(struct fake_store *store)
{
    int table_ro;

    ASSERT_OK(pl_fd_reopen_readonly(store->table_fd, &table_ro));
    answer(store,
           (struct store_control){.type  = STORE_CONTROL_CLIENT_SETUP,
                                  .part  = STORE_PART_TABLES,
                                  .bytes = sizeof(struct store_table)},
           &table_ro, 1);
    answer(store,
           (struct store_control){.type  = STORE_CONTROL_CLIENT_SETUP,
                                  .part  = STORE_PART_PINS,
                                  .bytes = sizeof(struct store_pins)},
           &store->pins_fd, 1);
    answer(
        store,
        (struct store_control){.type = STORE_CONTROL_CLIENT_SETUP, .part = STORE_PART_DONE},
        NULL, 0);
    pl_fd_close(&table_ro);
}

static void give_chunk(struct fake_store *store, uint32_t id)
{
    struct store_control message = {.type            = STORE_CONTROL_CHUNK,
                                    .chunk_id        = id,
                                    .client_writable = id == 1,
                                    .offset          = (uint64_t)id * CHUNK_BYTES,
                                    .bytes           = CHUNK_BYTES};
    int fd;

    message.offset += store->lies ? CHUNK_BYTES : 0;

    store->gets++;
    if (id >= CHUNKS) {
        message.type   = STORE_CONTROL_ERROR;
        message.status = PLASMON_ENOENT;
        answer(store, message, NULL, 0);
        return;
    }
    fd = store->chunk_fd[id];
    if (id != 1) {
        ASSERT_OK(pl_fd_reopen_readonly(store->chunk_fd[id], &fd));
    }
    answer(store, message, &fd, 1);
    if (id != 1) {
        pl_fd_close(&fd);
    }
}

static void *run(void *user)
{
    struct fake_store *store = user;

    for (;;) {
        struct store_control message;
        size_t bytes = sizeof(message);
        int fds[PL_FD_MAX_PER_MESSAGE];
        unsigned count = PL_FD_MAX_PER_MESSAGE;

        if (pl_fd_recv(store->fd, &message, &bytes, fds, &count) != PLASMON_OK) {
            return NULL;
        }
        if (message.type == STORE_CONTROL_CLIENT_HELLO) {
            set_up(store);
        } else if (message.type == STORE_CONTROL_GET_CHUNK) {
            give_chunk(store, message.chunk_id);
        } else if (message.type == STORE_CONTROL_NEW_HEAD_FD) {
            answer(store, (struct store_control){.type = STORE_CONTROL_HEAD_FD},
                   &store->pins_fd, 1);
        }
    }
}

static void make_memory(size_t bytes, int *out_fd, void *out_ptr)
{
    ASSERT_OK(pl_memfd_create("fake-store", bytes, out_fd));
    ASSERT_OK(pl_fd_map(*out_fd, bytes, 1, out_ptr));
}

static void make_host(struct fake_store *store)
{
    *store = (struct fake_store){.gets = 0};
    make_memory(sizeof(struct store_table), &store->table_fd, &store->table);
    make_memory(sizeof(struct store_pins), &store->pins_fd, &store->pins);
    store_table_init(store->table, 0, 1, 0, CHUNKS * CHUNK_BYTES);
    store_pins_init(store->pins, (uint64_t)getpid());
    for (uint32_t id = 0; id < CHUNKS; id++) {
        struct store_chunk chunk = {.offset          = (uint64_t)id * CHUNK_BYTES,
                                    .bytes           = CHUNK_BYTES,
                                    .client_writable = id == 1,
                                    .id              = id};

        make_memory(CHUNK_BYTES, &store->chunk_fd[id], &store->chunk[id]);
        ASSERT_OK(store_table_add_chunk(store->table, &chunk));
    }
}

static void begin(struct fake_store *store, struct shared *shared)
{
    int pair[2];

    make_host(store);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    store->fd = pair[0];
    ASSERT_EQ(pthread_create(&store->thread, NULL, run, store), 0);
    ASSERT_OK(shared_init(shared));
    shared_adopt(shared, pair[1]);
}

static void end(struct fake_store *store, struct shared *shared)
{
    shared_finish(shared); /* closes the socket: the thread ends */
    ASSERT_EQ(pthread_join(store->thread, NULL), 0);
    ASSERT_EQ(close(store->fd), 0);
}

#define KEY(device_, slot_, generation_) \
    (&(const struct shared_key){         \
        .host_device = (device_), .slot = (slot_), .generation = (generation_)})

static const struct pl_shape bytes_1000 = {.dtype = PL_U8, .ndim = 1, .dim = {1000}};

TEST(a_sealed_buffer_is_pinned_where_it_lies)
{
    struct fake_store store;
    struct shared shared;
    struct shared_pin pin;
    struct store_pins *pages[1];
    struct pl_err err = {0};

    begin(&store, &shared);
    pages[0] = store.pins;
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    store_table_alloc(store.table, 7, 3, 4096, &bytes_1000, 0, 1);
    memcpy(store.chunk[0] + 4096, "hello", 6);
    store_table_seal(store.table, 7);

    ASSERT_OK(shared_pin(&shared, KEY(0, 7, 3), pl_now_ns() + SECOND_NS, &pin, &err));
    ASSERT_STR((const char *)pin.data, "hello");
    store_table_doom(store.table, 7);
    /* the worker sees it and waits */
    ASSERT_TRUE(store_table_pinned(store.table, 7, pages, 1));
    shared_unpin(&pin);
    ASSERT_TRUE(!store_table_pinned(store.table, 7, pages, 1));
    ASSERT_STATUS(shared_pin(&shared, KEY(0, 7, 3), pl_now_ns() + SECOND_NS, &pin, &err),
                  PLASMON_ELOST);
    ASSERT_EQ(store.gets, 1); /* a chunk is asked for once */
    end(&store, &shared);
}

/*
 * Seals when somebody was seen to try to pin it, for a pin is set before the state is looked at;
 * or, since that is a moment which can be missed, after a while.
 */
static void *seal_when_tried(void *user)
{
    struct fake_store *store    = user;
    struct store_pins *pages[1] = {store->pins};
    uint64_t deadline_ns        = pl_now_ns() + SECOND_NS / 10;

    while (!store_table_pinned(store->table, 9, pages, 1) && pl_now_ns() < deadline_ns) {
        (void)sched_yield();
    }
    store_table_seal(store->table, 9);
    return NULL;
}

TEST(a_pin_waits_for_the_seal)
{
    struct fake_store store;
    struct shared shared;
    struct shared_pin pin;
    struct pl_err err = {0};
    pthread_t thread;

    begin(&store, &shared);
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    store_table_alloc(store.table, 9, 1, 0, &bytes_1000, 0, 1);
    ASSERT_STATUS(shared_pin(&shared, KEY(0, 9, 1), pl_now_ns() + 1000000, &pin, &err),
                  PLASMON_ETIMEDOUT);
    ASSERT_EQ(pthread_create(&thread, NULL, seal_when_tried, &store), 0);
    ASSERT_OK(shared_pin(&shared, KEY(0, 9, 1), pl_now_ns() + 60 * SECOND_NS, &pin, &err));
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    shared_unpin(&pin);
    end(&store, &shared);
}

TEST(only_the_buffer_of_a_put_can_be_written)
{
    struct fake_store store;
    struct shared shared;
    struct shared_pin pin;
    struct store_pins *pages[1];
    struct pl_err err = {0};
    void *to;

    begin(&store, &shared);
    pages[0] = store.pins;
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    store_table_alloc(store.table, 1, 1, CHUNK_BYTES + 256, &bytes_1000,
                      STORE_ENTRY_CLIENT_WRITES, 1);
    ASSERT_OK(shared_writable(&shared, KEY(0, 1, 1), 1000, pl_now_ns() + SECOND_NS, &to,
                              &pin, &err));
    memcpy(to, "bytes", 6);
    ASSERT_STR((const char *)store.chunk[1] + 256, "bytes");
    /* its session may end meanwhile: the memory is nobody else's before it is through */
    ASSERT_TRUE(store_table_pinned(store.table, 1, pages, 1));
    shared_unpin(&pin);
    ASSERT_TRUE(!store_table_pinned(store.table, 1, pages, 1));

    ASSERT_STATUS(shared_writable(&shared, KEY(0, 1, 2), 1000, pl_now_ns() + 1000000, &to,
                                  &pin, &err),
                  PLASMON_ETIMEDOUT);
    ASSERT_STATUS(shared_writable(&shared, KEY(0, 1, 1), 1001, pl_now_ns() + SECOND_NS, &to,
                                  &pin, &err),
                  PLASMON_EMALFORMED);
    store_table_alloc(store.table, 2, 1, 512, &bytes_1000, STORE_ENTRY_CLIENT_WRITES,
                      1); /* in the read-only chunk */
    ASSERT_STATUS(shared_writable(&shared, KEY(0, 2, 1), 1000, pl_now_ns() + SECOND_NS, &to,
                                  &pin, &err),
                  PLASMON_EUNREACHABLE);
    ASSERT_TRUE(!store_table_pinned(store.table, 1, pages, 1));
    ASSERT_TRUE(!store_table_pinned(store.table, 2, pages, 1));
    end(&store, &shared);
}

TEST(nonsense_from_the_wire_is_refused)
{
    struct fake_store store;
    struct shared shared;
    struct shared_pin pin;
    struct pl_err err = {0};

    begin(&store, &shared);
    ASSERT_STATUS(shared_pin(&shared, KEY(0, 1, 1), 0, &pin, &err),
                  PLASMON_EUNREACHABLE); /* before the set-up */
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    ASSERT_STATUS(shared_pin(&shared, KEY(5, 1, 1), 0, &pin, &err), PLASMON_EUNREACHABLE);
    ASSERT_STATUS(shared_pin(&shared, KEY(0, STORE_TABLE_SLOTS, 1), 0, &pin, &err),
                  PLASMON_EMALFORMED);
    store_table_alloc(store.table, 3, 1, CHUNKS * CHUNK_BYTES - 10, &bytes_1000, 0,
                      1); /* hangs out of the arena */
    store_table_seal(store.table, 3);
    ASSERT_STATUS(shared_pin(&shared, KEY(0, 3, 1), pl_now_ns() + SECOND_NS, &pin, &err),
                  PLASMON_EUNREACHABLE);
    end(&store, &shared);
}

TEST(a_buffer_that_spans_chunks_is_one_piece)
{
    struct fake_store store;
    struct shared shared;
    struct shared_pin pin;
    struct pl_err err = {0};
    static uint8_t data[1000];

    begin(&store, &shared);
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 7 + 1);
    }
    store_table_alloc(store.table, 4, 1, 3 * CHUNK_BYTES - 512, &bytes_1000, 0, 1);
    memcpy(store.chunk[2] + CHUNK_BYTES - 512, data, 512);
    memcpy(store.chunk[3], data + 512, sizeof(data) - 512);
    store_table_seal(store.table, 4);

    ASSERT_OK(shared_pin(&shared, KEY(0, 4, 1), pl_now_ns() + SECOND_NS, &pin, &err));
    ASSERT_EQ(memcmp(pin.data, data, sizeof(data)), 0);
    ASSERT_EQ(store.gets, 2);
    shared_unpin(&pin);
    end(&store, &shared);
}

/*
 * The store is another thread here; the chunk that clients write it gives as it is, and so needs no
 * descriptor for that.
 */
TEST(a_program_without_descriptors_is_told_so_and_may_go_on_when_it_has_some)
{
    struct fake_store store;
    struct shared shared;
    struct shared_pin pin;
    struct rlimit limit, none;
    struct pl_err err = {0};
    int next;

    begin(&store, &shared);
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    store_table_alloc(store.table, 3, 1, CHUNK_BYTES, &bytes_1000, 0, 1);
    store_table_seal(store.table, 3);
    /* Once it answers this it has closed what it opened to set us up. */
    ASSERT_OK(shared_take_head_fd(&shared, true, pl_now_ns() + 5 * SECOND_NS, &next, &err));
    ASSERT_EQ(close(next), 0);
    next = dup(STDIN_FILENO);
    ASSERT_EQ(close(next), 0);
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none          = limit;
    none.rlim_cur = (rlim_t)next;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    ASSERT_STATUS(shared_pin(&shared, KEY(0, 3, 1), pl_now_ns() + SECOND_NS, &pin, &err),
                  PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "ulimit -n");
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ASSERT_OK(shared_pin(&shared, KEY(0, 3, 1), pl_now_ns() + SECOND_NS, &pin, &err));
    shared_unpin(&pin);
    end(&store, &shared);
}

TEST(a_chunk_that_is_not_where_the_table_says_is_refused)
{
    struct fake_store store;
    struct shared shared;
    struct shared_pin pin;
    struct pl_err err = {0};

    begin(&store, &shared);
    store.lies = true;
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    store_table_alloc(store.table, 4, 1, 2 * CHUNK_BYTES, &bytes_1000, 0, 1);
    store_table_seal(store.table, 4);
    ASSERT_STATUS(shared_pin(&shared, KEY(0, 4, 1), pl_now_ns() + SECOND_NS, &pin, &err),
                  PLASMON_EMALFORMED);
    end(&store, &shared);
}

/* Who writes the table may change what it says of a chunk, and what is mapped stays where it is. */
TEST(a_chunk_that_was_mapped_stays_what_it_was)
{
    struct fake_store store;
    struct shared shared;
    struct shared_pin pin;
    struct pl_err err = {0};

    begin(&store, &shared);
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    for (uint32_t slot = 4; slot < 6; slot++) {
        store_table_alloc(store.table, slot, 1, (slot - 2) * CHUNK_BYTES, &bytes_1000, 0,
                          1);
        store_table_seal(store.table, slot);
    }
    ASSERT_OK(shared_pin(&shared, KEY(0, 4, 1), pl_now_ns() + SECOND_NS, &pin, &err));
    shared_unpin(&pin);
    store.table->chunks[2].offset = 3 * CHUNK_BYTES; /* where nothing is mapped */
    store.table->chunks[3].offset = 2 * CHUNK_BYTES; /* where something is */
    ASSERT_STATUS(shared_pin(&shared, KEY(0, 5, 1), pl_now_ns() + SECOND_NS, &pin, &err),
                  PLASMON_EUNREACHABLE);
    ASSERT_OK(shared_pin(&shared, KEY(0, 4, 1), pl_now_ns() + SECOND_NS, &pin, &err));
    memcpy(store.chunk[2], "still", 6);
    ASSERT_STR((const char *)pin.data, "still");
    shared_unpin(&pin);
    end(&store, &shared);
}

TEST(a_socket_to_the_head_comes_when_asked_for)
{
    struct fake_store store;
    struct shared shared;
    struct pl_err err = {0};
    int fd            = -1;

    begin(&store, &shared);
    ASSERT_STATUS(shared_take_head_fd(&shared, false, pl_now_ns() + 1000000, &fd, &err),
                  PLASMON_ETIMEDOUT);
    ASSERT_OK(shared_take_head_fd(&shared, true, pl_now_ns() + 5 * SECOND_NS, &fd, &err));
    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(close(fd), 0);
    end(&store, &shared);
}

/* Its messages are of another version, and so may their size be: shorter, as long, longer. */
TEST(a_store_of_another_release_is_told_by_both_numbers)
{
    static const size_t sizes[] = {16, sizeof(struct store_control),
                                   sizeof(struct store_control) + 64};

    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        uint32_t other[(sizeof(struct store_control) + 64) / 4] = {
            STORE_CONTROL_VERSION + 7, STORE_CONTROL_CLIENT_SETUP};
        struct shared shared;
        struct pl_err err = {0};
        char wanted[64];
        int pair[2];

        ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        ASSERT_OK(shared_init(&shared));
        shared_adopt(&shared, pair[1]);
        ASSERT_OK(pl_fd_send(pair[0], other, sizes[i], NULL, 0));
        ASSERT_STATUS(shared_ensure(&shared, "", &err), PLASMON_EVERSION);
        (void)snprintf(wanted, sizeof(wanted),
                       "version %u of the protocol within a host, and",
                       STORE_CONTROL_VERSION + 7);
        ASSERT_CONTAINS(err.text, wanted);
        ASSERT_CONTAINS(err.text, "must be of one release");
        shared_finish(&shared);
        ASSERT_EQ(close(pair[0]), 0);
    }
}

TEST(a_store_that_is_gone_is_said_to_be)
{
    struct shared shared;
    struct pl_err err = {0};

    ASSERT_OK(shared_init(&shared));
    ASSERT_STATUS(shared_ensure(&shared, "", &err), PLASMON_EUNREACHABLE);
    ASSERT_STATUS(shared_ensure(&shared, "/nonexistent/store", &err), PLASMON_EUNREACHABLE);
    ASSERT_CONTAINS(err.text, "/nonexistent/store");
    shared_finish(&shared);
}

/* --------------------------------------------------------------- a store that is silent */

static int place_listen(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd                = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void)unlink(path);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    ASSERT_EQ(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    ASSERT_EQ(listen(fd, 4), 0);
    return fd;
}

/* A store that answers the first that comes. */
struct next_store {
    struct fake_store store;
    int listener;
    pthread_t thread;
};

static void *next_run(void *user)
{
    struct next_store *next = user;

    next->store.fd = accept(next->listener, NULL, NULL);
    ASSERT_TRUE(next->store.fd >= 0);
    return run(&next->store);
}

static void next_begin(struct next_store *next, const char *path)
{
    make_host(&next->store);
    next->listener = place_listen(path);
    ASSERT_EQ(pthread_create(&next->thread, NULL, next_run, next), 0);
}

static void next_end(struct next_store *next, const char *path)
{
    ASSERT_EQ(pthread_join(next->thread, NULL), 0);
    pl_fd_close(&next->store.fd);
    pl_fd_close(&next->listener);
    ASSERT_EQ(unlink(path), 0);
}

static void folder(char out_path[64])
{
    (void)snprintf(out_path, 64, "/tmp/plasmon-shared-%d-%u", (int)getpid(),
                   (unsigned)(pl_now_ns() % 1000000));
}

TEST(a_store_that_was_silent_and_has_ended_is_not_held_against_the_next_one)
{
    struct next_store next;
    struct shared shared;
    struct pl_err err = {0};
    char path[64];
    int pair[2], fd = -1;

    test_expect_log(); /* that it does not answer */
    folder(path);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ASSERT_OK(shared_init(&shared));
    shared_adopt(&shared, pair[1]);
    ASSERT_STATUS(shared_take_head_fd(&shared, true, pl_now_ns() + 1000000, &fd, &err),
                  PLASMON_ETIMEDOUT);
    ASSERT_CONTAINS(err.text, "did not answer in time");
    ASSERT_STATUS(shared_take_head_fd(&shared, true, pl_now_ns() + 1000000, &fd, &err),
                  PLASMON_ETIMEDOUT);
    ASSERT_CONTAINS(err.text, "is asked again in");

    pl_fd_close(&pair[0]); /* its process, which is this one, is there still */
    next_begin(&next, path);
    ASSERT_OK(shared_renew(&shared, path, &err));
    ASSERT_EQ(shared_device_count(&shared), 1);
    shared_finish(&shared);
    next_end(&next, path);
}

/*
 * The next store has the memory of the one before, and is slow to say so: its page of pins goes to
 * the connection that asked for it, and is cleared when that ends.
 */
TEST(a_store_that_says_late_that_the_memory_goes_on_has_no_reason_to_clear_its_pins)
{
    struct fake_store store;
    struct shared shared;
    struct shared_pin pin;
    struct store_control message;
    struct pl_err err = {0};
    int listener, fds[PL_FD_MAX_PER_MESSAGE], adopted;
    unsigned count = PL_FD_MAX_PER_MESSAGE;
    size_t bytes   = sizeof(message);
    char path[64];

    test_expect_log(); /* that it does not answer */
    folder(path);
    begin(&store, &shared);
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    shared.present->number = 77;
    shared.present->reader = 5;
    store_table_alloc(store.table, 7, 3, 4096, &bytes_1000, 0, 1);
    store_table_seal(store.table, 7);
    ASSERT_OK(shared_hold(&shared, KEY(0, 7, 3), pl_now_ns() + SECOND_NS, &pin, &err));

    listener = place_listen(path);
    ASSERT_EQ(shutdown(store.fd, SHUT_RDWR), 0);
    shared.silent.rest_ns = 1; /* a second is all the next one is given */
    ASSERT_STATUS(shared_renew(&shared, path, &err), PLASMON_ETIMEDOUT);
    ASSERT_STATUS(shared_renew(&shared, path, &err), PLASMON_ETIMEDOUT); /* still */

    adopted = accept(listener, NULL, NULL);
    ASSERT_TRUE(adopted >= 0);
    ASSERT_OK(pl_fd_recv(adopted, &message, &bytes, fds, &count));
    ASSERT_EQ(message.type, STORE_CONTROL_CLIENT_HELLO);
    ASSERT_EQ(message.offset, 77);
    ASSERT_EQ(message.reader, 5);
    message = (struct store_control){.version = STORE_CONTROL_VERSION,
                                     .type    = STORE_CONTROL_CLIENT_SETUP,
                                     .part    = STORE_PART_DONE,
                                     .total   = 1,
                                     .offset  = 77,
                                     .reader  = 5};
    ASSERT_OK(pl_fd_send(adopted, &message, sizeof(message), NULL, 0));
    ASSERT_OK(shared_renew(&shared, path, &err));
    ASSERT_EQ(shared_number(&shared), 77);
    ASSERT_EQ(recv(adopted, &message, sizeof(message), MSG_DONTWAIT), -1); /* is there */
    shared_unpin(&pin);
    end(&store, &shared);
    ASSERT_EQ(recv(adopted, &message, sizeof(message), MSG_DONTWAIT), 0);
    pl_fd_close(&adopted);
    pl_fd_close(&listener);
    ASSERT_EQ(unlink(path), 0);
}

/* One that ends before it has answered leaves nothing to wait for. */
TEST(a_store_that_was_asked_and_has_ended_is_not_waited_for)
{
    struct fake_store store;
    struct next_store next;
    struct shared shared;
    struct pl_err err = {0};
    char path[64];
    int listener;

    test_expect_log();
    folder(path);
    begin(&store, &shared);
    ASSERT_OK(shared_ensure(&shared, NULL, &err));
    listener = place_listen(path);
    ASSERT_EQ(shutdown(store.fd, SHUT_RDWR), 0);
    shared.silent.rest_ns = 1;
    ASSERT_STATUS(shared_renew(&shared, path, &err), PLASMON_ETIMEDOUT);
    pl_fd_close(&listener);
    next_begin(&next, path);
    ASSERT_OK(shared_renew(&shared, path, &err));
    ASSERT_EQ(shared_device_count(&shared), 1);
    end(&store, &shared);
    next_end(&next, path);
}

/* Stopped, say: nobody takes connections from its queue, which is full. */
TEST(a_store_that_takes_no_connections_is_silent)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct shared shared;
    struct pl_err err = {0};
    uint64_t began_ns;
    int fds[16], listener, fd = 0;
    size_t count = 0;
    char path[64];

    test_expect_log(); /* that it does not answer */
    folder(path);
    listener = place_listen(path);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    do {
        ASSERT_TRUE(count < PL_COUNT(fds));
        fd           = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        fds[count++] = fd;
    } while (connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0);

    ASSERT_OK(shared_init(&shared));
    shared.silent.rest_ns = 1; /* it was before: a second is all it is given */
    began_ns              = pl_now_ns();
    ASSERT_STATUS(shared_ensure(&shared, path, &err), PLASMON_ETIMEDOUT);
    ASSERT_CONTAINS(err.text, "did not answer in time");
    ASSERT_TRUE(pl_now_ns() - began_ns < 30 * SECOND_NS);
    ASSERT_STATUS(shared_ensure(&shared, path, &err), PLASMON_ETIMEDOUT);
    shared_finish(&shared);
    while (count > 0) {
        ASSERT_EQ(close(fds[--count]), 0);
    }
    ASSERT_EQ(close(listener), 0);
    ASSERT_EQ(unlink(path), 0);
}

/* In a process namespace of its own, where the store's process has no number. */
static int stranger(const char *path, int tells, int hears)
{
    struct shared shared;
    struct pl_err err = {0};
    char byte         = 0;

    if (shared_init(&shared) != PLASMON_OK) {
        return 1;
    }
    if (shared_ensure(&shared, path, &err) != PLASMON_ETIMEDOUT || shared.silent.pid != 0) {
        return 2;
    }
    if (write(tells, &byte, 1) != 1 || read(hears, &byte, 1) != 1) {
        return 3;
    }
    if (shared_ensure(&shared, path, &err) != PLASMON_OK) {
        printf("# %s\n", err.text);
        return 4;
    }
    shared_finish(&shared);
    return 0;
}

/* As init of a new namespace; its end status is that of this process. 77: there may be none. */
static int stranger_run(const char *path, int tells, int hears)
{
    int status = 0;
    pid_t pid;

    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        return 77;
    }
    pid = fork();
    if (pid == 0) {
        _exit(stranger(path, tells, hears));
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : 5;
}

TEST(nor_is_one_whose_process_cannot_be_seen)
{
    struct next_store next;
    char path[64], byte = 0;
    int listener, there[2], back[2], status;
    pid_t pid;

    test_expect_log();
    folder(path);
    listener = place_listen(path); /* and nobody answers there */
    ASSERT_EQ(pipe(there), 0);
    ASSERT_EQ(pipe(back), 0);
    (void)fflush(stdout);
    pid = fork();
    if (pid == 0) {
        pl_fd_close(&listener);
        pl_fd_close(&there[0]);
        pl_fd_close(&back[1]);
        _exit(stranger_run(path, there[1], back[0]));
    }
    pl_fd_close(&there[1]);
    pl_fd_close(&back[0]);
    if (read(there[0], &byte, 1) == 1) {
        pl_fd_close(&listener);
        next_begin(&next, path);
        ASSERT_EQ(write(back[1], &byte, 1), 1);
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        ASSERT_TRUE(WIFEXITED(status));
        ASSERT_EQ(WEXITSTATUS(status), 0);
        next_end(&next, path);
    } else {
        pl_fd_close(&listener);
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        (void)unlink(path);
        ASSERT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 1, 77);
        test_skip("no process namespace may be made here");
    }
    pl_fd_close(&there[0]);
    pl_fd_close(&back[1]);
}

TEST_MAIN()
