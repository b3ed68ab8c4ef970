#include "tests/unit/base/tree.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/harness/test.h"

static char root[64];

const char *tree_begin(void)
{
    (void)snprintf(root, sizeof(root), "/tmp/plasmon-tree-XXXXXX");
    ASSERT_NOT_NULL(mkdtemp(root));
    return root;
}

void tree_put(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL;
         slash++) {
        *slash = '\0';
        ASSERT_TRUE(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    file = fopen(path, "we");
    ASSERT_NOT_NULL(file);
    ASSERT_TRUE(fputs(text, file) >= 0);
    ASSERT_EQ(fclose(file), 0);
}

static int remove_entry(const char *path, const struct stat *about, int kind,
                        struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

void tree_end(void)
{
    ASSERT_EQ(nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}
