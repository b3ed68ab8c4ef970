/*
 * A disk that is full, or nearly: a tmpfs of a few pages in a mount namespace of this test's own,
 * which its children share and nobody else sees. It ends with the last of them.
 */
#ifndef TESTS_HARNESS_SMALL_DISK_H
#define TESTS_HARNESS_SMALL_DISK_H

/*
 * Mount one at `path`, a folder that exists. `limits` as tmpfs has them: "size=64k", "nr_inodes=1".
 * Skips the test, with why, where that is not permitted. Before the test has threads.
 */
void small_disk_mount(const char *path, const char *limits);
/* All of them; otherwise at the end of the test. */
void small_disk_unmount(void);
/* Write to a file of its own, `folder`/filler, until there is no room. */
void small_disk_fill(const char *folder);
/* Remove that file. */
void small_disk_free(const char *folder);

#endif
