#include "tests/integration/cluster.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"

#define TEXT_BYTES (64u << 10)

static char tag[64];
static char folder[64];

/* -------------------------------------------------------------------------------- start */

static void remove_folder(void)
{
    (void)rmdir(folder); /* it may be gone already; if something is in it, it shows what */
}

void cluster_tag(void)
{
    uint64_t state = test_seed() ^ (uint64_t)getpid() << 32 ^ pl_now_ns();

    (void)snprintf(folder, sizeof(folder),
                   "/tmp/plit-XXXXXX"); /* short: socket paths have 107 bytes */
    ASSERT_NOT_NULL(mkdtemp(folder));
    ASSERT_EQ(atexit(remove_folder), 0);
    (void)snprintf(tag, sizeof(tag), "%016llx", (unsigned long long)test_random(&state));
    ASSERT_EQ(setenv("PLASMON_TEST_TAG", tag, 1), 0);
    ASSERT_EQ(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    ASSERT_EQ(setenv("TMPDIR", folder, 1), 0);
    ASSERT_EQ(unsetenv("PLASMON_ADDRESS"), 0);
    ASSERT_EQ(unsetenv("PLASMON_TOKEN"), 0);
    test_need_timeout(60);
}

const char *cluster_folder(void)
{
    return folder;
}

struct plasmon_client *cluster_start_sized(uint32_t devices, uint64_t device_memory)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    if (tag[0] == '\0') {
        cluster_tag();
    }
    options.gpus               = "none";
    options.cpu_devices        = devices;
    options.device_memory      = device_memory;
    options.spill_memory       = device_memory != 0 ? PLASMON_NO_SPILL : 0;
    options.connect_timeout_ms = 2 * CLUSTER_WAIT_MS;
    CLUSTER_OK(plasmon_init(&options, &client));
    cluster_watch(client);
    return client;
}

struct plasmon_client *cluster_start(uint32_t devices)
{
    return cluster_start_sized(devices, 0);
}

/* ---------------------------------------------------------------------------- processes */

/* A file of /proc: NUL-separated words, and one more NUL behind. */
static size_t read_words(pid_t pid, const char *name, char *text)
{
    char path[64];
    size_t used = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    file = fopen(path, "re");
    if (file != NULL) {
        used = fread(text, 1, TEXT_BYTES - 1, file);
        (void)fclose(file);
    }
    text[used] = '\0';
    return used;
}

static bool has_word(pid_t pid, const char *name, const char *word)
{
    static char text[TEXT_BYTES];
    size_t length = read_words(pid, name, text);

    for (size_t at = 0; at < length; at += strlen(text + at) + 1) {
        if (strcmp(text + at, word) == 0) {
            return true;
        }
    }
    return false;
}

/* Is --NAME VALUE or --NAME=VALUE among its arguments? */
static bool has_device(pid_t pid, int device)
{
    static char text[TEXT_BYTES];
    size_t length = read_words(pid, "cmdline", text);
    char joined[32], value[16];

    (void)snprintf(value, sizeof(value), "%d", device);
    (void)snprintf(joined, sizeof(joined), "--host-device=%d", device);
    for (size_t at = 0; at < length; at += strlen(text + at) + 1) {
        const char *next = text + at + strlen(text + at) + 1;

        if (strcmp(text + at, joined) == 0 ||
            (strcmp(text + at, "--host-device") == 0 && next < text + length &&
             strcmp(next, value) == 0)) {
            return true;
        }
    }
    return false;
}

static bool runs(pid_t pid, const char *program)
{
    static char text[TEXT_BYTES];
    const char *name;

    if (read_words(pid, "cmdline", text) == 0) {
        return false;
    }
    name = strrchr(text, '/');
    return program[0] == '\0' || strcmp(name != NULL ? name + 1 : text, program) == 0;
}

/* Up to `capacity` processes with the tag that run the program; returns how many there are. */
static unsigned scan(const char *program, pid_t *pids, unsigned capacity)
{
    char word[96];
    unsigned count = 0;
    struct dirent *entry;
    DIR *dir = opendir("/proc");

    ASSERT_NOT_NULL(dir);
    ASSERT_TRUE(tag[0] != '\0');
    (void)snprintf(word, sizeof(word), "PLASMON_TEST_TAG=%s", tag);
    while ((entry = readdir(dir)) != NULL) {
        pid_t pid = (pid_t)atoi(entry->d_name);

        if (pid > 0 && has_word(pid, "environ", word) && runs(pid, program)) {
            if (count < capacity) {
                pids[count] = pid;
            }
            count++;
        }
    }
    (void)closedir(dir);
    return count;
}

bool cluster_has_argument(pid_t pid, const char *word)
{
    return has_word(pid, "cmdline", word);
}

unsigned cluster_count(const char *program)
{
    return scan(program, NULL, 0);
}

unsigned cluster_list(const char *program, pid_t *pids, unsigned capacity)
{
    return scan(program, pids, capacity);
}

pid_t cluster_find(const char *program, int device)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;

    do {
        pid_t pids[64];
        unsigned count = scan(program, pids, PL_COUNT(pids));

        for (unsigned i = 0; i < count && i < PL_COUNT(pids); i++) {
            if (device < 0 || has_device(pids[i], device)) {
                return pids[i];
            }
        }
        (void)poll(NULL, 0, 5); /* a process that is not there yet cannot be waited for */
    } while (pl_now_ns() < deadline_ns);
    test_fail(__FILE__, __LINE__, "there is no %s for device %d", program, device);
}

pid_t cluster_worker(struct plasmon_client *client, int device)
{
    const char *found, *number;
    char *text, key[32];
    int on_host;

    CLUSTER_OK(plasmon_status_json(client, &text));
    (void)snprintf(key, sizeof(key), "{\"index\":%d,", device);
    found = strstr(text, key);
    ASSERT_NOT_NULL(found);
    number = strstr(found, "\"host_device\":");
    ASSERT_NOT_NULL(number);
    on_host = atoi(number + strlen("\"host_device\":"));
    free(text);
    return cluster_find("plasmon-worker", on_host);
}

/* Until it has ended or the deadline is past. */
static bool wait_ended(pid_t pid, uint64_t deadline_ns)
{
    int fd     = pl_pidfd_open(pid);
    bool ended = fd < 0; /* ESRCH */

    while (!ended) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        uint64_t now_ns      = pl_now_ns();

        if (now_ns >= deadline_ns) {
            break;
        }
        ended = poll(&poller, 1, (int)((deadline_ns - now_ns) / 1000000 + 1)) > 0;
    }
    pl_fd_close(&fd);
    return ended;
}

void cluster_kill(pid_t pid)
{
    int fd               = pl_pidfd_open(pid);
    struct pollfd poller = {.fd = fd, .events = POLLIN};

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_EQ(poll(&poller, 1, (int)CLUSTER_WAIT_MS), 1);
    pl_fd_close(&fd);
}

static void expect_empty_folder(void)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);

    ASSERT_NOT_NULL(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            test_fail(__FILE__, __LINE__, "%s/%s is left behind", folder, entry->d_name);
        }
    }
    (void)closedir(dir);
}

void cluster_expect_ended(const char *program, unsigned timeout_ms)
{
    uint64_t deadline_ns;
    pid_t pid;
    unsigned left;

    timeout_ms  = test_patience_ms(timeout_ms);
    deadline_ns = pl_now_ns() + timeout_ms * 1000000ull;

    /* Ending processes may have started others, so look again until there is none. */
    while ((left = scan(program, &pid, 1)) > 0) {
        if (!wait_ended(pid, deadline_ns)) {
            static char text[TEXT_BYTES];

            (void)read_words(pid, "cmdline", text);
            test_fail(__FILE__, __LINE__,
                      "%u processes are left after %u ms, pid %d (%s) among them", left,
                      timeout_ms, (int)pid, text);
        }
    }
}

void cluster_expect_gone(unsigned timeout_ms)
{
    cluster_expect_ended("", timeout_ms);
    expect_empty_folder();
    ASSERT_EQ(rmdir(folder), 0);
}

static int remove_entry(const char *path, const struct stat *about, int kind,
                        struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    (void)remove(path); /* what stays is seen by whoever looks for leftovers */
    return 0;
}

void cluster_remove(void)
{
    pid_t pids[64];
    unsigned count = scan("", pids, PL_COUNT(pids));

    for (unsigned i = 0; i < count && i < PL_COUNT(pids); i++) {
        (void)kill(pids[i], SIGKILL);
    }
    (void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* -------------------------------------------------------------------------------- names */

static bool is_named_place(const char *path)
{
    static const char *const places[] = {"/tmp/", "/dev/shm/", "/run/", "/var/"};

    if (strstr(path, " (deleted)") != NULL || strncmp(path, "/tmp/#", 6) == 0) {
        /* O_TMPFILE shows as /tmp/#N (deleted) */
        return false;
    }
    for (size_t i = 0; i < PL_COUNT(places); i++) {
        if (strncmp(path, places[i], strlen(places[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void expect_nameless_process(pid_t pid)
{
    char path[320], target[512];
    struct dirent *entry;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        ssize_t length;

        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
        length = readlink(path, target, sizeof(target) - 1);
        if (length <= 0) {
            continue;
        }
        target[length] = '\0';
        /* What the test itself was given (its log file) is no name of the cluster's. */
        if (is_named_place(target) && atoi(entry->d_name) > 2) {
            test_fail(__FILE__, __LINE__, "pid %d has %s open", (int)pid, target);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

void cluster_expect_nameless(void)
{
    pid_t pids[64];
    unsigned count = scan("", pids, PL_COUNT(pids));

    ASSERT_TRUE(count > 0 && count <= PL_COUNT(pids));
    for (unsigned i = 0; i < count; i++) {
        expect_nameless_process(pids[i]);
    }
    expect_empty_folder();
}

/* -------------------------------------------------------------------------------- calls */

/* --------------------------------------------------------------------------- what hangs */

enum { WATCHED_MAX = 16 };
static struct plasmon_client *watched[WATCHED_MAX]; /* by the thread that runs the test */

void cluster_watch(struct plasmon_client *client)
{
    for (unsigned i = 0; i < WATCHED_MAX; i++) {
        if (watched[i] == NULL) {
            watched[i] = client;
            return;
        }
    }
}

void cluster_finish(struct plasmon_client *client)
{
    for (unsigned i = 0; i < WATCHED_MAX; i++) {
        if (watched[i] == client) {
            watched[i] = NULL;
        }
    }
    (plasmon_finish)(client);
}

static void tell_who_waits(void)
{
    for (unsigned i = 0; i < WATCHED_MAX; i++) {
        char *text;

        if (watched[i] != NULL && plasmon_doctor(watched[i], 0, &text) == PLASMON_OK) {
            printf("# who waits for what:\n%s", text);
            (void)fflush(stdout);
            free(text);
        }
    }
}

void cluster_ok(plasmon_status_t status, const char *what, const char *file, int line)
{
    if (status != PLASMON_OK) {
        char why[512];

        (void)snprintf(why, sizeof(why), "%s", plasmon_error(NULL));
        if (status == PLASMON_ETIMEDOUT) {
            tell_who_waits();
        }
        test_fail(file, line, "%s: %s: %s", what, plasmon_status_name(status), why);
    }
}

struct plasmon_shape cluster_vector(plasmon_dtype_t dtype, int64_t count)
{
    return (struct plasmon_shape){.dtype = dtype, .ndim = 1, .dim = {count}};
}

struct plasmon_ref *cluster_put(struct plasmon_client *client, int64_t count, float first,
                                int device)
{
    struct plasmon_shape shape         = cluster_vector(PLASMON_F32, count);
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;
    float *data = malloc((size_t)count * sizeof(*data));

    ASSERT_NOT_NULL(data);
    for (int64_t i = 0; i < count; i++) {
        data[i] = first + (float)i;
    }
    options.device = device;
    CLUSTER_OK(plasmon_put(client, data, &shape, &options, &ref));
    free(data);
    return ref;
}

plasmon_status_t cluster_try_fill(struct plasmon_client *client, int64_t count,
                                  double value, int device, struct plasmon_ref **out_ref)
{
    struct plasmon_shape shape = cluster_vector(PLASMON_F32, count);
    struct plasmon_arg arg     = {.mode = PLASMON_OUT, .shape = &shape};
    plasmon_scalar_t scalar    = {.f = value};
    struct plasmon_call call   = PLASMON_CALL_INIT;

    call.function     = "fill";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = device;
    return plasmon_submit(client, &call, out_ref, NULL);
}

struct plasmon_ref *cluster_fill(struct plasmon_client *client, int64_t count, double value,
                                 int device)
{
    struct plasmon_ref *ref;

    CLUSTER_OK(cluster_try_fill(client, count, value, device, &ref));
    return ref;
}

plasmon_status_t cluster_axpy(struct plasmon_client *client, struct plasmon_ref *y,
                              struct plasmon_ref *x, double a, int device)
{
    struct plasmon_arg args[] = {{.mode = PLASMON_INOUT, .ref = y},
                                 {.mode = PLASMON_IN, .ref = x}};
    plasmon_scalar_t scalar   = {.f = a};
    struct plasmon_call call  = PLASMON_CALL_INIT;

    call.function     = "axpy";
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = device;
    return plasmon_submit(client, &call, NULL, NULL);
}

void cluster_spin(struct plasmon_client *client, struct plasmon_ref *x, int64_t us,
                  int device, struct plasmon_ref **out_task)
{
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT, .ref = x};
    plasmon_scalar_t scalar  = {.i = us};
    struct plasmon_call call = PLASMON_CALL_INIT;

    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = device;
    call.label        = "spinning";
    CLUSTER_OK(plasmon_submit(client, &call, NULL, out_task));
}

struct plasmon_ref *cluster_copy(struct plasmon_client *client, struct plasmon_ref *x,
                                 int device)
{
    struct plasmon_arg args[] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = x}};
    struct plasmon_call call  = PLASMON_CALL_INIT;
    struct plasmon_ref *ref;

    call.function  = "copy";
    call.args      = args;
    call.arg_count = 2;
    call.device    = device;
    CLUSTER_OK(plasmon_submit(client, &call, &ref, NULL));
    return ref;
}

void cluster_expect_ramp(struct plasmon_client *client, struct plasmon_ref *ref,
                         int64_t count, float first, float step)
{
    size_t bytes = (size_t)count * sizeof(float);
    float *data  = malloc(bytes);

    ASSERT_NOT_NULL(data);
    CLUSTER_OK(plasmon_get(client, ref, data, bytes, CLUSTER_WAIT_MS));
    for (int64_t i = 0; i < count; i++) {
        float want = first + step * (float)i;

        if (data[i] != want) {
            test_fail(__FILE__, __LINE__, "element %lld is %g, not %g", (long long)i,
                      (double)data[i], (double)want);
        }
    }
    free(data);
}

void cluster_expect_all(struct plasmon_client *client, struct plasmon_ref *ref,
                        int64_t count, float value)
{
    cluster_expect_ramp(client, ref, count, value, 0);
}
