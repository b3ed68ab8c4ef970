/*
 * Clusters that an operator starts: programs run with arguments, their output, daemons in the background.
 *
 * Everything runs in the private folder of cluster_tag() and ends with the test. A test that passes
 * stops what it started as a user would; what one leaves that failed, hung or was killed, the
 * runner's reaper ends (tests/harness/reaper.h). Its folder stays, for its logs.
 */
#ifndef TESTS_INTEGRATION_STARTED_H
#define TESTS_INTEGRATION_STARTED_H

#include "tests/integration/cluster.h"

/*
 * Run a program of the build (argv[0] is its name, or any program's path; NULL at the end); its
 * exit status, and what it printed (cut; may be NULL).
 */
int started_run(const char *const *argv, char *out, size_t out_bytes);
/* As another user (for root only): 126 when that may not be, 127 when it may not run the program. */
int started_run_as(uid_t user, const char *const *argv, char *out, size_t out_bytes);
#define STARTED_RUN(out, bytes, ...) \
    started_run((const char *const[]){__VA_ARGS__, NULL}, out, bytes)

/* In the background; what it prints goes to the file LOG in the private folder. */
pid_t started_daemon(const char *const *argv, const char *log);
#define STARTED_DAEMON(log, ...) \
    started_daemon((const char *const[]){__VA_ARGS__, NULL}, log)
/* Waits until it has ended; its exit status, or 128 + the signal. */
int started_wait(pid_t pid);
/* What a log holds so far. */
void started_log(const char *log, char *out, size_t out_bytes);
/*
 * Until a whole line of the log has the text, behind *io_from bytes, or the test fails. io_from
 * (NULL: from the beginning) is set to what follows it. Returns what follows, until the next call.
 */
const char *started_wait_log(const char *log, size_t *io_from, const char *text);

/* The private folder, and that everything ends with the test. The others call it. */
void started_begin(void);
/*
 * `plasmon start --head` with so many CPU devices of 64 MiB, in the private folder (made if need
 * be), and without a token unless PLASMON_TOKEN is set. Its address: started_address().
 */
void started_cluster(unsigned devices);
void started_cluster_with(unsigned devices, const char *option, const char *value);
const char *started_address(void);
struct plasmon_client *started_join(void);
plasmon_status_t started_try_join(const char *address, const char *token,
                                  struct plasmon_client **out_client);
/* A client that knows so many devices, at most 16: joins again until it does, or the test fails. */
struct plasmon_client *started_join_knowing(const char *address, uint32_t devices);

/*
 * The number after "KEY": of the first object of the status that holds the text `in` ("" any). -1:
 * there is none.
 */
long long started_status(struct plasmon_client *client, const char *in, const char *key);
/* Until the JSON of the status holds the text, or the test fails. */
void started_wait_status(struct plasmon_client *client, const char *text);
/* Until at least so many devices are up. */
void started_wait_devices(struct plasmon_client *client, unsigned devices);

#endif
