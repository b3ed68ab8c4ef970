/*
 * Two processes, each with one device, and the page that they share with their parent; or one
 * process with both devices.
 *
 * A chunk of the one is mapped by the other read-only, as Plasmon's workers do it: its descriptor
 * goes through a socket pair. A side that fails says so in the page, so that the other does not
 * wait for it on the host; one that is stuck on its device is killed by the parent, whose wait has
 * an end. So a way that does not work on a machine costs a remark, not the run.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/bench.h"
#include "bench/timelines.h"

#define WAY_TIMEOUT_MS  20000 /* the whole of a way, the driver's start included */
#define LOOK_AGAIN_NS   20000000
#define MEET_TIMEOUT_NS 15000000000ull

/* ------------------------------------------------------------------ meeting on the host */

void timelines_tell(_Atomic uint32_t *number, uint32_t value)
{
    atomic_store(number, value);
    (void)syscall(SYS_futex, number, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

plasmon_status_t timelines_await(struct timelines_page *page, _Atomic uint32_t *number,
                                 uint32_t least)
{
    const struct timespec look_again = {.tv_nsec = LOOK_AGAIN_NS};
    uint64_t deadline_ns             = pl_now_ns() + MEET_TIMEOUT_NS;
    uint32_t seen;

    while ((seen = atomic_load(number)) < least) {
        if (atomic_load(&page->failed) != 0) {
            return PLASMON_ECANCELLED;
        }
        if (pl_now_ns() > deadline_ns) {
            return PLASMON_ETIMEDOUT;
        }
        (void)syscall(SYS_futex, number, FUTEX_WAIT, seen, &look_again, NULL, 0);
    }
    return PLASMON_OK;
}

plasmon_status_t timelines_meet(struct timelines_page *page)
{
    uint32_t mine = atomic_fetch_add(&page->arrived, 1) + 1;

    (void)syscall(SYS_futex, &page->arrived, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return timelines_await(page, &page->arrived,
                           (mine + page->parties - 1) / page->parties * page->parties);
}

/* ------------------------------------------------------------------------------- a side */

static plasmon_status_t open_device(struct timelines_side *side, struct pl_err *err)
{
    const struct device_config config = {.bytes_max = 64u << 20};
    enum device_kind kind             = side->cuda ? DEVICE_CUDA : DEVICE_CPU;
    uint32_t count                    = side->cuda ? device_count(kind, err) : 2;
    plasmon_status_t status;

    if (count == 0) {
        return PLASMON_ENOTSUP; /* err says what is missing */
    }
    side->page->ordinal[side->role] = (uint32_t)pl_min_u64(side->role, count - 1);
    status =
        device_open(kind, side->page->ordinal[side->role], &config, &side->device, err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = device_stream_create(side->device, 0, &side->stream);
    if (status == PLASMON_OK) {
        status = device_event_create(side->device, true, &side->begin);
    }
    if (status == PLASMON_OK) {
        status = device_event_create(side->device, true, &side->end);
    }
    if (status == PLASMON_OK) {
        status = device_host_register(side->device, side->page, 4096);
    }
    return status;
}

/* Memory of its own, zeroed; the first bytes of all that the peer may look at. */
static plasmon_status_t make_chunk(struct timelines_side *side, struct pl_err *err)
{
    plasmon_status_t status =
        device_range_reserve(side->device, TIMELINES_CHUNK_BYTES, &side->chunk);

    if (status == PLASMON_OK) {
        status = device_chunk_create(side->device, TIMELINES_CHUNK_BYTES, &side->fd);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_map(side->device, side->fd, TIMELINES_CHUNK_BYTES,
                                  side->page->ordinal[side->role], true, side->chunk);
    }
    if (status == PLASMON_OK) {
        status = device_fill8(side->stream, side->chunk, 0, TIMELINES_CHUNK_BYTES);
    }
    return status == PLASMON_OK ? device_stream_sync(side->stream, err) : status;
}

static plasmon_status_t swap_descriptors(struct timelines_side *side, int *out_fd)
{
    uint8_t byte            = 0;
    size_t bytes            = sizeof(byte);
    unsigned fd_count       = 1;
    plasmon_status_t status = pl_fd_send(side->socket, &byte, sizeof(byte), &side->fd, 1);

    return status == PLASMON_OK ? pl_fd_recv(side->socket, &byte, &bytes, out_fd, &fd_count)
                                : status;
}

static plasmon_status_t map_peer(struct timelines_side *side)
{
    int fd                  = -1;
    plasmon_status_t status = PLASMON_OK;

    if (side->other != NULL) {
        fd = side->other->fd;
    } else {
        status = swap_descriptors(side, &fd);
    }
    if (status == PLASMON_OK) {
        status = device_range_reserve(side->device, TIMELINES_CHUNK_BYTES, &side->peer);
    }
    return status == PLASMON_OK
               ? device_chunk_map(side->device, fd, TIMELINES_CHUNK_BYTES,
                                  side->page->ordinal[1 - side->role], false, side->peer)
               : status;
}

/* Everything in a step of its own: in one process, both sides take a step before either takes the next. */
static plasmon_status_t prepare(struct timelines_side *sides, uint32_t count,
                                struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = open_device(&sides[i], err);
        if (status == PLASMON_OK) {
            status = timelines_kernels_init(&sides[i], err);
        }
        if (status == PLASMON_OK) {
            status = make_chunk(&sides[i], err);
        }
    }
    if (status == PLASMON_OK) {
        status = timelines_meet(sides[0].page); /* both ordinals are known */
    }
    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = map_peer(&sides[i]);
        if (status == PLASMON_OK) {
            status = sides[i].ops->init(&sides[i], err);
        }
    }
    return status == PLASMON_OK ? timelines_meet(sides[0].page) : status;
}

static _Noreturn void child(struct timelines_side *sides, uint32_t count, pid_t parent)
{
    struct timelines_page *page = sides[0].page;
    struct pl_err *err          = &page->err[sides[0].role];
    plasmon_status_t status;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(1);
    }
    status = prepare(sides, count, err);
    if (status == PLASMON_OK) {
        status = timelines_measure(sides, count, err);
    }
    if (status != PLASMON_OK && err->text[0] == '\0') {
        (void)pl_err_set(err, status, "%s", plasmon_status_string(status));
    }
    err->status = status;
    if (status != PLASMON_OK) {
        timelines_tell(&page->failed, 1);
    }
    _exit(status == PLASMON_OK ? 0 : 1);
}

/* --------------------------------------------------------------------------- the parent */

static const struct timelines_way_ops *ops_of(enum timelines_way way)
{
#ifdef PLASMON_HAVE_CUDA
    switch (way) {
    case TIMELINES_DEVICE_WORDS:
        return &timelines_device_words;
    case TIMELINES_EVENTS:
        return &timelines_events;
    case TIMELINES_ONE_PROCESS:
        return &timelines_one_process;
    default:
        break;
    }
#endif
    return way == TIMELINES_HOST_WORDS ? &timelines_host_words : NULL;
}

static void init_sides(struct timelines_side sides[2], enum timelines_way way, bool cuda,
                       struct timelines_page *page, const int sockets[2])
{
    for (uint32_t role = 0; role < 2; role++) {
        sides[role] = (struct timelines_side){.page   = page,
                                              .ops    = ops_of(way),
                                              .role   = role,
                                              .cuda   = cuda,
                                              .socket = sockets[role],
                                              .fd     = -1};
        if (way == TIMELINES_ONE_PROCESS) {
            sides[role].other = &sides[1 - role];
        }
    }
}

/* How long a child may still take. */
static int ms_left(uint64_t deadline_ns)
{
    uint64_t now_ns = pl_now_ns();

    return now_ns >= deadline_ns ? 0 : (int)((deadline_ns - now_ns) / 1000000 + 1);
}

/* false: it had to be killed. */
static bool await_child(pid_t pid, uint64_t deadline_ns)
{
    struct pollfd ended = {.fd = pl_pidfd_open(pid), .events = POLLIN};
    bool in_time        = false;

    if (ended.fd >= 0) {
        int got;

        do {
            got = poll(&ended, 1, ms_left(deadline_ns));
        } while (got < 0 && errno == EINTR);
        in_time = got > 0;
        (void)close(ended.fd);
    }
    if (!in_time) {
        (void)kill(pid, SIGKILL); /* ours, and not reaped: the number is its own */
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return in_time;
}

static plasmon_status_t judge(const struct timelines_page *page, bool in_time,
                              struct pl_err *err)
{
    const struct pl_err *said = NULL;

    /* The side that only heard that the other one failed knows nothing. */
    for (uint32_t i = 0; i < page->parties; i++) {
        plasmon_status_t status = page->err[i].status;

        if (status != PLASMON_OK && (said == NULL || said->status == PLASMON_ECANCELLED)) {
            said = &page->err[i];
        }
    }
    if (said != NULL) {
        return pl_err_set(err, said->status, "%s", said->text);
    }
    if (!in_time) {
        return pl_err_set(err, PLASMON_ETIMEDOUT, "not done within %d s: it was stopped",
                          WAY_TIMEOUT_MS / 1000);
    }
    return PLASMON_OK;
}

plasmon_status_t timelines_run_way(enum timelines_way way, bool cuda,
                                   struct timelines_page *page, struct pl_err *err)
{
    static struct timelines_side sides[2]; /* large; the children have copies */
    uint64_t deadline_ns = pl_now_ns() + WAY_TIMEOUT_MS * 1000000ull;
    pid_t parent         = getpid(), pid[2];
    int sockets[2];
    bool in_time = true;

    if (ops_of(way) == NULL) {
        return pl_err_set(err, PLASMON_ENOTSUP, "this build has no CUDA");
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "no socket pair: %s",
                          strerror(errno));
    }
    memset(page, 0, sizeof(*page));
    page->parties = way == TIMELINES_ONE_PROCESS ? 1 : 2;
    init_sides(sides, way, cuda, page, sockets);
    (void)fflush(NULL); /* or both children print it too */
    for (uint32_t i = 0; i < page->parties; i++) {
        pid[i] = fork();
        if (pid[i] < 0) {
            bench_die("cannot start a process: %s", strerror(errno));
        }
        if (pid[i] == 0) {
            child(&sides[i], way == TIMELINES_ONE_PROCESS ? 2 : 1, parent);
        }
    }
    (void)close(sockets[0]);
    (void)close(sockets[1]);
    for (uint32_t i = 0; i < page->parties; i++) {
        in_time &= await_child(pid[i], deadline_ns);
    }
    return judge(page, in_time, err);
}
