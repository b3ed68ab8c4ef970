/*
 * Real clusters for tests: starting them, finding their processes, and knowing that all are gone.
 *
 * Every daemon inherits the environment of the client that started it. So cluster_tag() draws a
 * random word and puts it there, and whoever has it in /proc/PID/environ belongs to this test,
 * however it was reparented. The test and its forked children do not: their environment was fixed
 * when the runner was executed. A zombie shows none, so it counts as gone.
 *
 * cluster_tag() also makes a private folder and points XDG_RUNTIME_DIR and TMPDIR at it: a name
 * that a cluster leaves behind has nowhere else to go, and other tests at the same time do not
 * disturb.
 */
#ifndef TESTS_INTEGRATION_CLUSTER_H
#define TESTS_INTEGRATION_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "plasmon/plasmon.h"
#include "tests/harness/test.h"

#define CLUSTER_WAIT_MS 60000u /* for what must happen, on a loaded machine */
/* what is promised: nothing is left two seconds after the client */
#define CLUSTER_GONE_MS 2000u

/* Once in a test, before anything is started. */
void cluster_tag(void);
const char *cluster_folder(void); /* the private one */
/*
 * Embedded, with so many CPU devices. Tags if that was not done. device_memory 0: default; else
 * what has no room there is not spilled.
 */
struct plasmon_client *cluster_start(uint32_t devices);
struct plasmon_client *cluster_start_sized(uint32_t devices, uint64_t device_memory);

/* How many processes of this test run `program`; "" counts all. */
unsigned cluster_count(const char *program);
/* Up to `capacity` of them; returns how many there are. */
unsigned cluster_list(const char *program, pid_t *pids, unsigned capacity);
/* The process of `program` (and, if not negative, of that device on this host). Waits for it. */
pid_t cluster_find(const char *program, int device);
/* Was it started with this word among its arguments? */
bool cluster_has_argument(pid_t pid, const char *word);
/*
 * The worker of a device as calls number them.
 */
pid_t cluster_worker(struct plasmon_client *client, int device);
/* SIGKILL, and waits until it has ended, whoever its parent is */
void cluster_kill(pid_t pid);

/* Fails the test unless all tagged processes that run the program ("": any) end within `timeout_ms`. */
void cluster_expect_ended(const char *program, unsigned timeout_ms);
/* .. all tagged ones; then the private folder must be empty, and goes. */
void cluster_expect_gone(unsigned timeout_ms);
/* Kill what is left of this test, and remove the private folder with all that is in it. */
void cluster_remove(void);
/*
 * Fails the test if a daemon has a file or a socket with a name in /tmp, /dev/shm, /run or the
 * private folder.
 */
void cluster_expect_nameless(void);

/* -------------------------------------------------------------------------------- calls */

/*
 * When something that CLUSTER_OK waits for does not come in time, it prints who waits for what
 * (plasmon_doctor()), as the clients see it that cluster_start() or started_join() made and that
 * are not finished.
 */
void cluster_watch(struct plasmon_client *client);
void cluster_finish(struct plasmon_client *client);
#define plasmon_finish(client) cluster_finish(client)
void cluster_ok(plasmon_status_t status, const char *what, const char *file, int line);
#define CLUSTER_OK(x) cluster_ok(x, #x, __FILE__, __LINE__)

struct plasmon_shape cluster_vector(plasmon_dtype_t dtype, int64_t count);
/* A put of `count` floats: first, first + 1 ...; device may be PLASMON_ANYWHERE. */
struct plasmon_ref *cluster_put(struct plasmon_client *client, int64_t count, float first,
                                int device);
/* A new vector of `count` floats, all `value`. */
plasmon_status_t cluster_try_fill(struct plasmon_client *client, int64_t count,
                                  double value, int device, struct plasmon_ref **out_ref);
struct plasmon_ref *cluster_fill(struct plasmon_client *client, int64_t count, double value,
                                 int device);
/* y += a * x, on a device. */
plasmon_status_t cluster_axpy(struct plasmon_client *client, struct plasmon_ref *y,
                              struct plasmon_ref *x, double a, int device);
/* Keep x's device busy; x is INOUT. out_task may be NULL. */
void cluster_spin(struct plasmon_client *client, struct plasmon_ref *x, int64_t us,
                  int device, struct plasmon_ref **out_task);
/* One IN, one new OUT. */
struct plasmon_ref *cluster_copy(struct plasmon_client *client, struct plasmon_ref *x,
                                 int device);
void cluster_expect_all(struct plasmon_client *client, struct plasmon_ref *ref,
                        int64_t count, float value);
void cluster_expect_ramp(struct plasmon_client *client, struct plasmon_ref *ref,
                         int64_t count, float first, float step);

#endif
