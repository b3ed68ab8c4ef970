/*
 * Fault points: named places where the world can say no. A test arms one; the nth pass from there
 * fails once. PLASMON_FAULT="store.spawn:2,copy:1" arms them from the environment (debug builds and
 * tests). "worker0.1/copy:1=kill" is for one process alone - the first incarnation of the worker of
 * host device 0 - and does not fail there: the process gets SIGKILL (=stop: SIGSTOP) in that place,
 * or, =hang, the thread never goes on, as if in a call that does not return. In a build without
 * PL_FAULTS a point is the constant 0.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#ifdef PL_FAULTS
int pl_fault_point(const char *name); /* 1: fail here */
#else
#define pl_fault_point(name) 0
#endif

void pl_fault_arm(const char *name,
                  unsigned nth); /* nth pass from now (0: the next) fails, once */
int pl_fault_disarm(void);       /* 1 if the armed point was reached and fired */
/* who: what this process is called in PLASMON_FAULT. */
void pl_fault_from_env(const char *who);

/*
 * Seeded bugs, for tests that prove that other tests can fail: pl_bug("head.skip_war") is 1 only
 * when armed by name. Same build condition as fault points. PLASMON_BUG="head.skip_war" arms it
 * from the environment, like PLASMON_FAULT.
 */
#ifdef PL_FAULTS
extern unsigned pl_bugs_armed; /* how many are; read here, so that asking costs nothing */
int pl_bug_is_armed(const char *name);
static inline int pl_bug(const char *name)
{
    return __atomic_load_n(&pl_bugs_armed, __ATOMIC_RELAXED) != 0 && pl_bug_is_armed(name);
}
#else
#define pl_bug(name) 0
#endif
void pl_bug_arm(const char *name); /* NULL disarms */

#endif
