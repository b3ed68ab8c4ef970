/*
 * A folder of the test's own in the place of /sys or /: what a machine or a container says of
 * itself, as files. One at a time.
 */
#ifndef TESTS_UNIT_BASE_TREE_H
#define TESTS_UNIT_BASE_TREE_H

/* Its path; valid until tree_end(). */
const char *tree_begin(void);
/* Write a file below it, with the folders that it needs: "devices/system/node/node0/cpulist". */
void tree_put(const char *name, const char *text);
void tree_end(void);

#endif
