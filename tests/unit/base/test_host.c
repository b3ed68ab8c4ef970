#include "tests/harness/test.h"

#include "base/host.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(the_host_id_is_the_boot_id_and_the_pid_namespace)
{
    char id[PL_HOST_ID_BYTES], boot_id[64], link[64];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    ASSERT_NOT_NULL(file);
    ASSERT_EQ(fscanf(file, "%63s", boot_id), 1);
    (void)fclose(file);
    ASSERT_TRUE(pl_host_id(id) == id);
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
        pl_host_id(id);
        _exit(write(ends[1], id, sizeof(id)) != (ssize_t)sizeof(id));
    }
    ASSERT_EQ(read(ends[0], childs, sizeof(childs)), sizeof(childs));
    ASSERT_EQ(waitpid(pid, NULL, 0), pid);
    ASSERT_STR(pl_host_id(id), childs);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

TEST_MAIN()
