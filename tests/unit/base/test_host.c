#include "tests/harness/test.h"

#include "base/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(the_host_id_is_the_boot_id_and_the_pid_namespace)
{
    char id[PL_HOST_ID_BYTES], boot_id[64], link[64];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    ASSERT_NOT_NULL(file);
    ASSERT_EQ(fscanf(file, "%63s", boot_id), 1);
    (void)fclose(file);
    ASSERT_OK(pl_host_id(id));
    ASSERT_EQ(strncmp(id, boot_id, strlen(boot_id)), 0);
    ASSERT_EQ(id[strlen(boot_id)], ':');

    ASSERT_TRUE(readlink("/proc/self/ns/pid", link, sizeof(link)) > 0);
    ASSERT_EQ(strtoul(id + strlen(boot_id) + 1, NULL, 10),
              strtoul(link + strlen("pid:["), NULL, 10));
}

TEST(processes_of_one_host_agree)
{
    char id[PL_HOST_ID_BYTES], childs[PL_HOST_ID_BYTES];
    int ends[2];
    pid_t pid;

    ASSERT_EQ(pipe(ends), 0);
    (void)fflush(stdout);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        memset(id, 0, sizeof(id));
        ASSERT_OK(pl_host_id(id));
        _exit(write(ends[1], id, sizeof(id)) != (ssize_t)sizeof(id));
    }
    ASSERT_EQ(read(ends[0], childs, sizeof(childs)), sizeof(childs));
    ASSERT_EQ(waitpid(pid, NULL, 0), pid);
    ASSERT_OK(pl_host_id(id));
    ASSERT_STR(id, childs);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* With another id it would be another host, and what the head knows of this one would be given up. */
TEST(who_has_no_descriptor_left_has_no_other_id)
{
    struct rlimit before, none;
    char id[PL_HOST_ID_BYTES];
    plasmon_status_t status;

    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    none          = before;
    none.rlim_cur = 0;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    status = pl_host_id(id);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_STATUS(status, PLASMON_ELIMIT);
    ASSERT_OK(pl_host_id(id));
}

static const char *runtime_folder(const char *runtime)
{
    static char folder[PL_RUNTIME_FOLDER_BYTES], said[2 * 512];
    char why[512];

    if (runtime == NULL) {
        ASSERT_EQ(unsetenv("XDG_RUNTIME_DIR"), 0);
    } else {
        ASSERT_EQ(setenv("XDG_RUNTIME_DIR", runtime, 1), 0);
    }
    pl_runtime_folder(folder, why, sizeof(why));
    (void)snprintf(said, sizeof(said), "%s|%s", folder, why);
    return said;
}

TEST(a_runtime_folder_that_cannot_be_used_is_told_with_what_is_used_instead)
{
    char ours[] = "/tmp/plho-XXXXXX", path[256], wanted[512], fallback[64];

    (void)snprintf(fallback, sizeof(fallback), "/tmp/plasmon-%u", (unsigned)getuid());
    (void)snprintf(wanted, sizeof(wanted), "%s|", fallback);
    ASSERT_STR(runtime_folder(NULL), wanted);
    ASSERT_STR(runtime_folder(""), wanted);
    ASSERT_NOT_NULL(mkdtemp(ours));
    (void)snprintf(wanted, sizeof(wanted), "%s/plasmon-%u|", ours, (unsigned)getuid());
    ASSERT_STR(runtime_folder(ours), wanted);

    (void)snprintf(wanted, sizeof(wanted),
                   "%s|XDG_RUNTIME_DIR (relative) is no absolute path: %s is used instead",
                   fallback, fallback);
    ASSERT_CONTAINS(runtime_folder("relative"), wanted);
    (void)snprintf(path, sizeof(path), "%s/none", ours);
    ASSERT_CONTAINS(runtime_folder(path), "/none) does not exist: /tmp/plasmon-");
    ASSERT_CONTAINS(runtime_folder("/dev/null"), "(/dev/null) is no folder: ");
    (void)snprintf(path, sizeof(path), "%s/%0*u", ours, PL_RUNTIME_FOLDER_BYTES, 0u);
    ASSERT_EQ(mkdir(path, 0700), 0);
    ASSERT_CONTAINS(runtime_folder(path), " is too long for the path of a socket: ");
    ASSERT_EQ(rmdir(path), 0);
    ASSERT_EQ(chmod(ours, 0500), 0);
    if (getuid() != 0) { /* who may write everywhere */
        ASSERT_CONTAINS(runtime_folder(ours), "is a folder that we may not write to: ");
    }
    ASSERT_EQ(rmdir(ours), 0);
}

TEST(an_address_is_local_by_what_it_says)
{
    static const char *const local[]  = {"unix:/tmp/head.sock", "127.0.0.1:4000",
                                         "127.1.2.3:1", "localhost:4000", "[::1]:4000"};
    static const char *const others[] = {"0.0.0.0:4000", "[::]:4000", "10.0.0.1:4000",
                                         "127.example.org:4000", "localhost.example:1"};

    for (size_t i = 0; i < PL_COUNT(local); i++) {
        ASSERT_TRUE(pl_address_is_local(local[i]));
    }
    for (size_t i = 0; i < PL_COUNT(others); i++) {
        ASSERT_TRUE(!pl_address_is_local(others[i]));
    }
}

TEST_MAIN()
