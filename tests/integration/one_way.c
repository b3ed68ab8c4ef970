/* One thread, poll(), and blocking writes: both ends are daemons that read (see one_way.h). */
#include "tests/integration/one_way.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/base.h"
#include "tests/harness/test.h"

enum { CONNECTIONS_MAX = 32, PIECE_BYTES = 1 << 16, BEGUN_BYTES = 4096, TEXT_MAX = 128 };

struct connection {
    int up; /* to the server; -1: free */
    int down;
    bool deaf;               /* nothing goes down any more */
    char begun[BEGUN_BYTES]; /* what went up first */
    size_t begun_bytes;
};

struct one_way {
    struct sockaddr_un to;
    char text[TEXT_MAX];
    int listen_fd;
    int stop_fds[2];
    pthread_t thread;
    atomic_bool met;    /* by the thread */
    atomic_bool mended; /* by the owner */
    /* The thread's. */
    struct connection connections[CONNECTIONS_MAX];
    char piece[PIECE_BYTES];
};

static void connection_close(struct connection *connection)
{
    (void)close(connection->up);
    (void)close(connection->down);
    *connection = (struct connection){.up = -1, .down = -1};
}

static void connection_accept(struct one_way *relay)
{
    int down = accept4(relay->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    int up   = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    for (size_t i = 0; down >= 0 && i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &relay->connections[i];

        if (connection->up < 0) {
            *connection = (struct connection){.up = up, .down = down};
            if (connect(up, (struct sockaddr *)&relay->to, sizeof(relay->to)) != 0) {
                connection_close(connection);
            }
            return;
        }
    }
    (void)close(up);
    (void)close(down);
}

static bool text_passes(const struct one_way *relay, struct connection *connection,
                        const char *bytes, size_t count)
{
    size_t room = sizeof(connection->begun) - connection->begun_bytes;
    size_t kept = count < room ? count : room;

    memcpy(connection->begun + connection->begun_bytes, bytes, kept);
    connection->begun_bytes += kept;
    return memmem(connection->begun, connection->begun_bytes, relay->text,
                  strlen(relay->text)) != NULL;
}

static bool pass_on(int to, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(to, bytes, count, MSG_NOSIGNAL);

        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        count -= (size_t)sent;
    }
    return true;
}

static void move_up(struct one_way *relay, struct connection *connection)
{
    ssize_t count = recv(connection->down, relay->piece, sizeof(relay->piece), 0);

    if (count > 0 && !atomic_load(&relay->mended) &&
        text_passes(relay, connection, relay->piece, (size_t)count)) {
        connection->deaf = true; /* before it goes up: the answer to it is lost */
        atomic_store(&relay->met, true);
    }
    if (count <= 0 || !pass_on(connection->up, relay->piece, (size_t)count)) {
        connection_close(connection);
    }
}

static void move_down(struct one_way *relay, struct connection *connection)
{
    ssize_t count = recv(connection->up, relay->piece, sizeof(relay->piece), 0);

    if (count <= 0 ||
        (!connection->deaf && !pass_on(connection->down, relay->piece, (size_t)count))) {
        connection_close(connection);
    }
}

static void *run(void *user)
{
    struct one_way *relay = user;

    for (;;) {
        struct pollfd fds[2 + 2 * CONNECTIONS_MAX] = {
            {.fd = relay->stop_fds[0], .events = POLLIN},
            {.fd = relay->listen_fd, .events = POLLIN}};

        for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
            fds[2 + 2 * i] =
                (struct pollfd){.fd = relay->connections[i].down, .events = POLLIN};
            fds[3 + 2 * i] =
                (struct pollfd){.fd = relay->connections[i].up, .events = POLLIN};
        }
        (void)poll(fds, PL_COUNT(fds), -1);
        if (fds[0].revents != 0) {
            return NULL;
        }
        for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
            struct connection *connection = &relay->connections[i];

            if (connection->up >= 0 && fds[2 + 2 * i].revents != 0) {
                move_up(relay, connection);
            }
            if (connection->up >= 0 && fds[3 + 2 * i].revents != 0) {
                move_down(relay, connection);
            }
        }
        if (fds[1].revents != 0) {
            connection_accept(relay);
        }
    }
}

struct one_way *one_way_create(const char *from, const char *to, const char *text)
{
    struct one_way *relay   = PL_NEW(struct one_way);
    struct sockaddr_un here = {.sun_family = AF_UNIX};

    ASSERT_NOT_NULL(relay);
    relay->to.sun_family = AF_UNIX;
    ASSERT_TRUE(strlen(from) < sizeof(here.sun_path) &&
                strlen(to) < sizeof(relay->to.sun_path) && strlen(text) < TEXT_MAX);
    (void)snprintf(here.sun_path, sizeof(here.sun_path), "%s", from);
    (void)snprintf(relay->to.sun_path, sizeof(relay->to.sun_path), "%s", to);
    (void)snprintf(relay->text, sizeof(relay->text), "%s", text);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        relay->connections[i] = (struct connection){.up = -1, .down = -1};
    }
    relay->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_TRUE(relay->listen_fd >= 0);
    ASSERT_EQ(bind(relay->listen_fd, (struct sockaddr *)&here, sizeof(here)), 0);
    ASSERT_EQ(listen(relay->listen_fd, CONNECTIONS_MAX), 0);
    ASSERT_EQ(pipe2(relay->stop_fds, O_CLOEXEC), 0);
    ASSERT_EQ(pthread_create(&relay->thread, NULL, run, relay), 0);
    return relay;
}

bool one_way_met(const struct one_way *relay)
{
    return atomic_load(&relay->met);
}

void one_way_mend(struct one_way *relay)
{
    atomic_store(&relay->mended, true);
}

void one_way_destroy(struct one_way *relay)
{
    ASSERT_EQ(write(relay->stop_fds[1], "", 1), 1);
    ASSERT_EQ(pthread_join(relay->thread, NULL), 0);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (relay->connections[i].up >= 0) {
            connection_close(&relay->connections[i]);
        }
    }
    (void)close(relay->listen_fd);
    (void)close(relay->stop_fds[0]);
    (void)close(relay->stop_fds[1]);
    pl_free(relay);
}
