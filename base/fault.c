/*
 * Fault points and seeded bugs. Both are small tables of armed names. A pass through a point that
 * nobody armed costs one relaxed load, so points may stand on hot paths of test builds.
 *
 * A point stays in the table after it fired, marked so, until pl_fault_disarm() empties the table:
 * a test learns there whether its nth pass ever came.
 */
#include "fault.h"

#include "base.h"
#include "log.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef PL_FAULTS

#define ARMED_MAX  16
#define NAME_BYTES 64

struct armed {
    char name[NAME_BYTES];
    unsigned passes_left; /* before the one that fails */
    int fired;
    int death; /* instead of failing, the process gets this signal, or HANG; 0: it fails */
};

#define HANG (-1) /* the thread that passes never goes on */

/* A plain mutex: points are passed with locks of any rank held, and it takes nothing else. */
static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static struct armed fault_table[ARMED_MAX]; /* guarded by fault_lock */
static unsigned fault_used;                 /* guarded by fault_lock */
static char bug_table[ARMED_MAX][NAME_BYTES];
static unsigned bug_used; /* guarded by fault_lock */

/* Hints outside the lock; a thread that reads an old 0 passed before the arming, which is a legal order. */
static _Atomic unsigned fault_hint;
unsigned pl_bugs_armed;

static struct armed *armed_find_locked(const char *name)
{
    for (unsigned i = 0; i < fault_used; i++) {
        if (strcmp(fault_table[i].name, name) == 0) {
            return &fault_table[i];
        }
    }
    return NULL;
}

int pl_fault_point(const char *name)
{
    struct armed *armed;
    int fail = 0, death = 0;

    if (atomic_load_explicit(&fault_hint, memory_order_relaxed) == 0) {
        return 0;
    }

    pthread_mutex_lock(&fault_lock);
    armed = armed_find_locked(name);
    if (armed != NULL && !armed->fired) {
        if (armed->passes_left == 0) {
            armed->fired = 1;
            death        = armed->death;
            fail         = death == 0;
        } else {
            armed->passes_left--;
        }
    }
    pthread_mutex_unlock(&fault_lock);
    if (death > 0) {
        pl_warn("base", "fault point %s: signal %d", name, death);
        (void)raise(death); /* SIGSTOP: goes on here when it is continued */
    }
    if (death == HANG) {
        pl_warn("base", "fault point %s: a call that does not return", name);
        for (;;) {
            (void)pause();
        }
    }
    return fail;
}

static void arm(const char *name, unsigned nth, int death)
{
    struct armed *armed;

    pthread_mutex_lock(&fault_lock);
    armed = armed_find_locked(name);
    if (armed == NULL) {
        PL_CHECK(fault_used < ARMED_MAX);
        armed = &fault_table[fault_used++];
        (void)snprintf(armed->name, sizeof(armed->name), "%s", name);
    }
    armed->passes_left = nth;
    armed->fired       = 0;
    armed->death       = death;
    atomic_store(&fault_hint, fault_used);
    pthread_mutex_unlock(&fault_lock);
}

void pl_fault_arm(const char *name, unsigned nth)
{
    arm(name, nth, 0);
}

int pl_fault_disarm(void)
{
    int fired = 0;

    pthread_mutex_lock(&fault_lock);
    for (unsigned i = 0; i < fault_used; i++) {
        fired |= fault_table[i].fired;
    }
    fault_used = 0;
    atomic_store(&fault_hint, 0);
    pthread_mutex_unlock(&fault_lock);
    return fired;
}

int pl_bug_is_armed(const char *name)
{
    int armed = 0;

    pthread_mutex_lock(&fault_lock);
    for (unsigned i = 0; i < bug_used; i++) {
        armed |= strcmp(bug_table[i], name) == 0;
    }
    pthread_mutex_unlock(&fault_lock);
    return armed;
}

void pl_bug_arm(const char *name)
{
    pthread_mutex_lock(&fault_lock);
    if (name == NULL) {
        bug_used = 0;
    } else {
        PL_CHECK(bug_used < ARMED_MAX);
        (void)snprintf(bug_table[bug_used++], NAME_BYTES, "%s", name);
    }
    __atomic_store_n(&pl_bugs_armed, bug_used, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&fault_lock);
}

/* Cuts off what follows the last `mark` of item; NULL: there is none. */
static char *cut_last(char *item, char mark)
{
    char *at = strrchr(item, mark);

    if (at != NULL) {
        *at++ = '\0';
    }
    return at;
}

/* "[WHO/]NAME[:NTH][=kill|stop|hang]" */
static void fault_arm_item(char *item, const char *who)
{
    const char *signal_name = cut_last(item, '=');
    const char *nth         = cut_last(item, ':');
    char *name              = strchr(item, '/');
    int death               = 0;

    if (signal_name != NULL) {
        death = strcmp(signal_name, "stop") == 0   ? SIGSTOP
                : strcmp(signal_name, "hang") == 0 ? HANG
                                                   : SIGKILL;
    }
    if (name != NULL) {
        *name++ = '\0';
        if (strcmp(item, who) != 0) {
            return; /* another process's */
        }
    } else {
        name = item;
    }
    if (*name != '\0') {
        arm(name, nth == NULL ? 0 : (unsigned)strtoul(nth, NULL, 10), death);
    }
}

static void bug_arm_item(char *item, const char *who)
{
    (void)who;
    if (*item != '\0') {
        pl_bug_arm(item);
    }
}

/* Calls `arm_item` for each item of a comma-separated list. */
static void env_arm(const char *variable, const char *who,
                    void (*arm_item)(char *item, const char *who))
{
    const char *value = getenv(variable);
    char list[ARMED_MAX * NAME_BYTES];
    char *rest = list;
    char *item;

    if (value == NULL || *value == '\0') {
        return;
    }
    pl_info("base", "%s=%s", variable, value);
    (void)snprintf(list, sizeof(list), "%s", value);
    while ((item = strsep(&rest, ",")) != NULL) {
        arm_item(item, who);
    }
}

void pl_fault_from_env(const char *who)
{
    env_arm("PLASMON_FAULT", who, fault_arm_item);
    env_arm("PLASMON_BUG", who, bug_arm_item);
}

#else

void pl_fault_arm(const char *name, unsigned nth)
{
    (void)name;
    (void)nth;
}

int pl_fault_disarm(void)
{
    return 0;
}

void pl_fault_from_env(const char *who)
{
    (void)who;
    if (getenv("PLASMON_FAULT") != NULL || getenv("PLASMON_BUG") != NULL) {
        pl_warn("base", "PLASMON_FAULT and PLASMON_BUG do nothing in this build "
                        "(PLASMON_FAULTS is off)");
    }
}

void pl_bug_arm(const char *name)
{
    (void)name;
}

#endif
