/*
 * Whatever a test starts ends with it, however it ends: passed, failed, out of time, or its runner killed.
 *
 *   what CTest started          waits, and ends as the worker ended
 *   reaper                      outside of its tree and session, so that who kills the tree leaves
 *                               it alone; a subreaper: daemons
 *     |                         that lost their parent become its children, whatever session they are in
 *     worker                    does the work: runs tests, or becomes a script
 *       tests, daemons ...
 *
 * The reaper waits for both others. When the worker has ended, or the process that CTest started is
 * gone, it kills every child it has, and every child that it gets by that, until there is none.
 * Processes are found by parent and killed by id, no name is involved.
 */
#ifndef TESTS_HARNESS_REAPER_H
#define TESTS_HARNESS_REAPER_H

/*
 * Run work(user) in a worker process and return its exit status, 128 + the signal when one ended
 * it. Call it before there are threads.
 */
int reaper_run(int (*work)(void *user), void *user);
/*
 * In the worker, which must have no child of its own left: end what lost its parent so far. How
 * many those were; what they were is printed as TAP comments.
 */
unsigned reaper_clean(void);

#endif
