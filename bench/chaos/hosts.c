/* See hosts.h. */
#include "bench/chaos/hosts.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/chaos/chaos.h"

#define S           UINT64_C(1000000000)
#define UP_NS       (60 * S)
#define NAP_NS      5000000
#define ELEMENTS    ((int64_t)CHAOS_HOSTS_MIB << 17) /* of 8 bytes */
#define READ_MS     30000
#define FDS_MAX     64
#define RECEIVER    1
#define OWN_SPACE   "/proc/self/ns/pid"
#define SYS_GETFD   438 /* pidfd_getfd, of Linux 5.6; older headers do not name it */
#define JOIN_MS     60000
#define DEVICE_ROOM "256M"

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = NAP_NS};

    (void)nanosleep(&pause, NULL);
}

/* ---------------------------------------------------------------------------- processes */

static pid_t start(const char *dir, const char *log, const char *const *argv)
{
    char path[CHAOS_PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, log);
    return bench_must_run(path, argv, -1, -1);
}

/* In a process namespace of its own, the first there. 0: that may not be. */
static pid_t start_apart(const char *dir, const char *log, const char *const *argv)
{
    int own   = open(OWN_SPACE, O_RDONLY | O_CLOEXEC);
    pid_t pid = 0;

    if (own >= 0 && unshare(CLONE_NEWPID) == 0) {
        pid = start(dir, log, argv);
        if (setns(own, CLONE_NEWPID) != 0) {
            bench_die("no way back from a process namespace: %s", strerror(errno));
        }
    }
    pl_fd_close(&own);
    return pid;
}

static pid_t start_store(const char *dir, const char *address, uint32_t host)
{
    char program[256], sockets[CHAOS_PATH_BYTES], name[16], log[32];
    const char *argv[] = {program,
                          "--head",
                          address,
                          "--node",
                          name,
                          "--gpus",
                          "none",
                          "--cpu-devices",
                          "1",
                          "--device-memory",
                          DEVICE_ROOM,
                          "--spill-memory",
                          "0",
                          "--socket-dir",
                          sockets,
                          "--bulk-address",
                          "127.0.0.1",
                          "--bulk-plain",
                          "--drain-deadline",
                          "0",
                          NULL};

    bench_must_find("plasmon-store", program);
    (void)snprintf(sockets, sizeof(sockets), "%s/host%u", dir, host);
    (void)snprintf(name, sizeof(name), "host%u", host);
    (void)snprintf(log, sizeof(log), "host%u.log", host);
    return host == RECEIVER ? start_apart(dir, log, argv) : start(dir, log, argv);
}

static const char *const names[CHAOS_HOSTS + 1] = {
    "plasmon-store of the first of two hosts", "plasmon-store of the second of two hosts",
    "plasmon-head of two hosts"};

static pid_t *process_at(struct chaos_hosts *hosts, uint32_t i)
{
    return i < CHAOS_HOSTS ? &hosts->store[i] : &hosts->head;
}

const char *chaos_hosts_who_ended(struct chaos_hosts *hosts)
{
    static char text[CHAOS_ENDED_BYTES];
    const char *who = NULL;

    for (uint32_t i = 0; i <= CHAOS_HOSTS && who == NULL; i++) {
        who = chaos_ended(process_at(hosts, i), names[i], text);
    }
    return who;
}

static void let_go(struct chaos_hosts *hosts)
{
    while (hosts->ref_count > 0) {
        (void)plasmon_release(hosts->client, hosts->refs[--hosts->ref_count]);
    }
    hosts->arrived = hosts->off = NULL;
    for (uint32_t i = 0; i < CHAOS_HOSTS; i++) {
        pl_fd_close(&hosts->end[i]);
    }
}

bool chaos_hosts_end(const struct chaos_cluster *cluster, struct chaos_hosts *hosts)
{
    bool good = true;

    if (hosts->client != NULL) {
        let_go(hosts);
        plasmon_finish(hosts->client);
        hosts->client = NULL;
    }
    for (uint32_t i = 0; i <= CHAOS_HOSTS; i++) {
        good = chaos_end_daemon(cluster, process_at(hosts, i), names[i]) && good;
    }
    return good;
}

/* --------------------------------------------------------------------------- a transfer */

/* A task of the second host unless `device` says otherwise; what it makes is kept until let_go(). */
static struct plasmon_ref *run(struct chaos_hosts *hosts, const char *function,
                               struct plasmon_ref *const *in, uint32_t count,
                               const struct plasmon_shape *shape,
                               const plasmon_scalar_t *scalars, uint32_t scalar_count,
                               int device)
{
    struct plasmon_arg args[3] = {{.mode = PLASMON_OUT, .shape = shape}};
    bool makes                 = strcmp(function, "touch") != 0;
    struct plasmon_call call   = PLASMON_CALL_INIT;
    struct plasmon_ref **ref   = &hosts->refs[hosts->ref_count];
    plasmon_status_t status;

    for (uint32_t i = 0; i < count; i++) {
        args[makes + i] = (struct plasmon_arg){.mode = PLASMON_IN, .ref = in[i]};
    }
    call.function     = function;
    call.args         = args;
    call.arg_count    = makes + count;
    call.scalars      = scalars;
    call.scalar_count = scalar_count;
    call.device       = device;
    status = plasmon_submit(hosts->client, &call, makes ? ref : NULL, makes ? NULL : ref);
    if (status != PLASMON_OK) {
        bench_die("submitting to two hosts: %s", plasmon_error(hosts->client));
    }
    hosts->ref_count++;
    return *ref;
}

void chaos_hosts_move(struct chaos_hosts *hosts)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_I64, 1, ELEMENTS, 0);
    const plasmon_scalar_t ramp[2]   = {{.f = (double)++hosts->moves * 1000}, {.f = 1}};
    const plasmon_scalar_t axis[2]   = {{.i = 0}, {.i = 0}};
    int to                           = hosts->number[RECEIVER];
    struct plasmon_ref *both[2], *one;

    both[0]        = run(hosts, "arange", NULL, 0, &shape, ramp, 2, hosts->number[0]);
    hosts->arrived = run(hosts, "touch", both, 1, NULL, NULL, 0, to);
    both[1]        = run(hosts, "arange", NULL, 0, &shape, ramp, 2, to);
    one            = run(hosts, "subtract", both, 2, NULL, NULL, 0, to);
    one            = run(hosts, "abs", &one, 1, NULL, NULL, 0, to);
    hosts->off     = run(hosts, "max", &one, 1, NULL, axis, 2, to);
    (void)plasmon_flush(hosts->client); /* what it says the tasks say, too */
}

static bool wrong(struct chaos_hosts *hosts, char out[CHAOS_HOSTS_WHY_MAX],
                  const char *what)
{
    (void)snprintf(out, CHAOS_HOSTS_WHY_MAX, "%s: %.180s", what,
                   plasmon_error(hosts->client));
    let_go(hosts);
    return false;
}

bool chaos_hosts_look(struct chaos_hosts *hosts, uint64_t *io_arrived_ns, bool *out_over,
                      char out_wrong[CHAOS_HOSTS_WHY_MAX])
{
    plasmon_status_t status;
    int64_t off = -1;

    *out_over = false;
    if (*io_arrived_ns == 0) {
        status = plasmon_state(hosts->client, hosts->arrived);
        if (status == PLASMON_INPROGRESS) {
            return true;
        }
        if (status != PLASMON_OK) {
            return wrong(hosts, out_wrong, "the object did not arrive");
        }
        *io_arrived_ns = pl_now_ns();
    }
    status = plasmon_state(hosts->client, hosts->off);
    if (status == PLASMON_INPROGRESS) {
        return true;
    }
    if (status != PLASMON_OK ||
        plasmon_get(hosts->client, hosts->off, &off, sizeof(off), READ_MS) != PLASMON_OK) {
        return wrong(hosts, out_wrong, "comparing what arrived");
    }
    if (off != 0) {
        (void)snprintf(out_wrong, CHAOS_HOSTS_WHY_MAX,
                       "an element that arrived is wrong by %lld", (long long)off);
        let_go(hosts);
        return false;
    }
    let_go(hosts);
    *out_over = true;
    return true;
}

/* ----------------------------------------------------------------------- the connection */

struct socket {
    int fd;
    struct sockaddr_in here, there;
};

static bool is_connection(int fd, struct socket *out)
{
    socklen_t here = sizeof(out->here), there = sizeof(out->there);

    *out = (struct socket){.fd = fd};
    return getsockname(fd, (struct sockaddr *)&out->here, &here) == 0 &&
           getpeername(fd, (struct sockaddr *)&out->there, &there) == 0 &&
           out->here.sin_family == AF_INET && out->there.sin_family == AF_INET;
}

/* Of the only worker of a store: its TCP connections, opened once more. -1: they may not be. */
static int connections_of(pid_t store, struct socket out[FDS_MAX])
{
    pid_t worker = bench_must_child(store);
    int pidfd = pl_pidfd_open(worker), count = 0;
    const struct dirent *entry;
    char path[64];
    DIR *folder;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)worker);
    folder = opendir(path);
    if (pidfd < 0 || folder == NULL) {
        count = -1;
    }
    while (count >= 0 && count < FDS_MAX && (entry = readdir(folder)) != NULL) {
        char what[64] = "";
        int fd;

        if (readlinkat(dirfd(folder), entry->d_name, what, sizeof(what) - 1) < 0 ||
            strncmp(what, "socket:", 7) != 0) {
            continue;
        }
        fd = (int)syscall(SYS_GETFD, pidfd, atoi(entry->d_name), 0);
        if (fd < 0 && errno == EPERM) {
            count = -1;
        } else if (fd >= 0 && is_connection(fd, &out[count])) {
            count++;
        } else {
            pl_fd_close(&fd); /* another socket, or gone meanwhile */
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    pl_fd_close(&pidfd);
    return count;
}

static bool same_address(const struct sockaddr_in *a, const struct sockaddr_in *b)
{
    return a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
}

static void take_end(struct socket *socket, int *out_fd)
{
    *out_fd    = socket->fd;
    socket->fd = -1;
}

bool chaos_hosts_find(struct chaos_hosts *hosts)
{
    struct socket sockets[CHAOS_HOSTS][FDS_MAX];
    int count[CHAOS_HOSTS];
    bool found = false;

    for (uint32_t i = 0; i < CHAOS_HOSTS; i++) {
        count[i] = connections_of(hosts->store[i], sockets[i]);
    }
    for (int i = 0; i < count[0] && !found; i++) {
        for (int k = 0; k < count[1] && !found; k++) {
            struct socket *from = &sockets[0][i], *to = &sockets[1][k];

            if (same_address(&from->here, &to->there) &&
                same_address(&from->there, &to->here)) {
                take_end(from, &hosts->end[0]);
                take_end(to, &hosts->end[RECEIVER]);
                found = true;
            }
        }
    }
    for (uint32_t i = 0; i < CHAOS_HOSTS; i++) {
        for (int k = 0; k < count[i]; k++) {
            pl_fd_close(&sockets[i][k].fd);
        }
    }
    return found;
}

bool chaos_hosts_silence(struct chaos_hosts *hosts)
{
    struct sock_filter nothing           = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog drops_it_all = {.len = 1, .filter = &nothing};

    for (uint32_t i = 0; i < CHAOS_HOSTS; i++) {
        if (setsockopt(hosts->end[i], SOL_SOCKET, SO_ATTACH_FILTER, &drops_it_all,
                       sizeof(drops_it_all)) != 0) {
            return false;
        }
    }
    return true;
}

uint64_t chaos_hosts_owed(const struct chaos_hosts *hosts)
{
    int bytes = 0;

    (void)ioctl(hosts->end[0], SIOCOUTQ, &bytes); /* of one that is gone: none */
    return (uint64_t)bytes;
}

void chaos_hosts_cut(struct chaos_hosts *hosts)
{
    for (uint32_t i = 0; i < CHAOS_HOSTS; i++) {
        (void)shutdown(hosts->end[i], SHUT_RDWR); /* its process may have closed it */
    }
}

/* ----------------------------------------------------------------------------- starting */

/* The numbers of both devices, in the order of their hosts. */
static bool both_up(struct chaos_hosts *hosts)
{
    struct plasmon_device_info about[CHAOS_HOSTS];
    uint32_t count = 0, seen = 0;

    if (plasmon_devices(hosts->client, about, CHAOS_HOSTS, &count) != PLASMON_OK ||
        count != CHAOS_HOSTS) {
        return false;
    }
    for (uint32_t i = 0; i < CHAOS_HOSTS; i++) {
        bool receives = strcmp(about[i].node, "host1") == 0;

        hosts->number[receives] = about[i].index;
        seen |= 1u << receives;
    }
    return seen == 3;
}

static void must_join(struct chaos_hosts *hosts, const char *address)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    uint64_t began_ns              = pl_now_ns();

    options.address            = address;
    options.label              = "chaos, two hosts";
    options.connect_timeout_ms = JOIN_MS;
    for (;;) {
        const char *who = chaos_hosts_who_ended(hosts);

        if (plasmon_init(&options, &hosts->client) == PLASMON_OK) {
            if (both_up(hosts)) {
                return;
            }
            plasmon_finish(hosts->client); /* it knows the devices that came before it */
            hosts->client = NULL;
        }
        if (who != NULL || pl_now_ns() - began_ns > UP_NS) {
            bench_die("two hosts do not come up; hosts.log, host0.log and host1.log beside "
                      "%s may say why%s%s",
                      address, who != NULL ? ": " : "", who != NULL ? who : "");
        }
        nap();
    }
}

/* So that there is a connection. */
static void must_move_once(struct chaos_hosts *hosts)
{
    uint64_t began_ns = pl_now_ns(), arrived_ns = 0;
    char why[CHAOS_HOSTS_WHY_MAX];
    bool over = false;

    chaos_hosts_move(hosts);
    while (!over) {
        if (!chaos_hosts_look(hosts, &arrived_ns, &over, why)) {
            bench_die("between two hosts: %s", why);
        }
        if (pl_now_ns() - began_ns > UP_NS) {
            bench_die("nothing passes between two hosts");
        }
        nap();
    }
}

bool chaos_hosts_start(const struct chaos_cluster *cluster, struct chaos_hosts *hosts,
                       char out_why[CHAOS_HOSTS_WHY_MAX])
{
    char program[256], address[CHAOS_PATH_BYTES];
    const char *const argv[] = {program, "--listen", address, NULL};
    const char *dir          = cluster->dir;

    *hosts = (struct chaos_hosts){.end = {-1, -1}};
    bench_must_find("plasmon-head", program);
    (void)snprintf(address, sizeof(address), "unix:%s/hosts.sock", dir);
    hosts->head            = start(dir, "hosts.log", argv);
    hosts->store[RECEIVER] = start_store(dir, address, RECEIVER);
    if (hosts->store[RECEIVER] == 0) {
        (void)snprintf(
            out_why, CHAOS_HOSTS_WHY_MAX,
            "a second host needs a process namespace, which takes CAP_SYS_ADMIN");
        (void)chaos_hosts_end(cluster, hosts); /* what it says is on stderr */
        return false;
    }
    hosts->store[0] = start_store(dir, address, 0);
    must_join(hosts, address);
    must_move_once(hosts);
    if (!chaos_hosts_find(hosts)) {
        (void)snprintf(out_why, CHAOS_HOSTS_WHY_MAX,
                       "connections of other processes may not be opened here");
        (void)chaos_hosts_end(cluster, hosts);
        return false;
    }
    let_go(hosts);
    return true;
}
