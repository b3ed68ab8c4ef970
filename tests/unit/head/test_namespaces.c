/* The namespaces file: what it may say, and what is told of what it may not. */
#include "head/namespaces.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/test.h"

static plasmon_status_t parse(const char *text, struct head_namespaces *out,
                              struct pl_err *err)
{
    return head_namespaces_parse(text, strlen(text), out, err);
}

TEST(what_a_file_says_is_taken)
{
    struct head_namespaces namespaces;
    const struct head_namespace_entry *entry;
    struct pl_err err = {0};

    ASSERT_OK(parse("# who\n\n[team-a]\n  device_bytes = 8G\ntasks=100 # few\n"
                    "message_bytes = 1M\r\nsessions = 8\ntoken_file = a.token\n[default]",
                    &namespaces, &err));
    ASSERT_EQ(namespaces.entries.count, 2);
    entry = pl_vec_at(&namespaces.entries, 0);
    ASSERT_STR(entry->name, "team-a");
    ASSERT_EQ(entry->quota.bytes, 8ll << 30);
    ASSERT_EQ(entry->quota.tasks, 100);
    ASSERT_EQ(entry->quota.message_bytes, 1 << 20);
    ASSERT_EQ(entry->quota.sessions, 8);
    ASSERT_STR(entry->token_file, "a.token");
    entry = pl_vec_at(&namespaces.entries, 1);
    ASSERT_STR(entry->name, "default");
    ASSERT_EQ(entry->quota.bytes, 0);
    head_namespaces_finish(&namespaces);
}

TEST(what_it_may_not_say_is_told_with_its_line)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "names no namespace"},
        {"# nothing\n", "names no namespace"},
        {"tasks = 1\n[a]\n", "line 1: tasks stands before the first [namespace]"},
        {"[a]\n[b]\n\n[a]\n", "line 4: 'a' was there in line 1"},
        {"[a b]\n", "line 1: 'a b' cannot be a namespace"},
        {"[]\n", "line 1: '' cannot be a namespace"},
        {"[a\n", "line 1: a namespace is [NAME]"},
        {"[../a]\n", "cannot be a namespace"},
        {"[a]\nhello\n", "line 2 is neither [NAMESPACE] nor SETTING = VALUE"},
        {"[a]\ntask = 1\n", "line 2: there is no setting 'task'"},
        {"[a]\ntasks = many\n", "line 2: tasks is a number of at least 1, and not 'many'"},
        {"[a]\ntasks = 0\n", "and not '0'"},
        {"[a]\ntasks = -1\n", "and not '-1'"},
        {"[a]\ntasks = 1K\n", "and not '1K'"},
        {"[a]\ndevice_bytes = 8GB\n", "line 2: device_bytes is a number (4096, 512M, 8G)"},
        {"[a]\ndevice_bytes = 9999999999999T\n", "and not '9999999999999T'"},
        {"[a]\nmessage_bytes = 1\n", "at least 4096"},
        {"[a]\ntoken_file =\n", "line 2: token_file is empty"},
    };
    struct head_namespaces namespaces;
    struct pl_err err = {0};

    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        ASSERT_STATUS(parse(bad[i].text, &namespaces, &err), PLASMON_EINVAL);
        ASSERT_CONTAINS(err.text, bad[i].says);
    }
}

static void write_file(const char *dir, const char *name, const char *text, mode_t mode)
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    (void)unlink(path);
    file = fopen(path, "we");
    ASSERT_NOT_NULL(file);
    (void)fputs(text, file);
    ASSERT_EQ(fclose(file), 0);
    ASSERT_EQ(chmod(path, mode), 0);
}

static void count_records(void *user, const struct head_input *input)
{
    int *count = user;

    ASSERT_TRUE(input->type ==
                (*count == 0 ? HEAD_INPUT_NAMESPACES : HEAD_INPUT_NAMESPACE));
    (*count)++;
}

TEST(tokens_are_read_beside_the_file_and_must_be_private)
{
    struct head_namespaces namespaces = {.tokens = NULL};
    char dir[]                        = "/tmp/spaces-XXXXXX", path[128], gone[128];
    struct pl_err err                 = {0};
    int records;

    ASSERT_NOT_NULL(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/spaces", dir);
    write_file(dir, "spaces", "[x]\n[a]\ntoken_file = a\n[b]\ntoken_file = b\n", 0644);
    write_file(dir, "a", "secret-a\n", 0600);
    write_file(dir, "b", "secret-b\nsecond line\n", 0600);
    ASSERT_OK(head_namespaces_read(path, &namespaces, &err));
    ASSERT_STR(namespaces.tokens[0], "secret-a");
    ASSERT_STR(namespaces.tokens[1], "secret-b");
    ASSERT_NULL(namespaces.tokens[2]);
    ASSERT_STR(head_namespaces_token_name(&namespaces, 1), "b");
    records = 0;
    head_namespaces_tell(&namespaces, count_records, &records);
    ASSERT_EQ(records, 4); /* and none of them with a secret */
    head_namespaces_finish(&namespaces);

    write_file(dir, "b", "secret-a\n", 0600);
    ASSERT_STATUS(head_namespaces_read(path, &namespaces, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "'a' and 'b' have the same token");
    ASSERT_TRUE(strstr(err.text, "secret") == NULL);
    write_file(dir, "b", "secret-b\n", 0644);
    ASSERT_STATUS(head_namespaces_read(path, &namespaces, &err), PLASMON_EPERM);
    ASSERT_CONTAINS(err.text, "chmod 600");
    write_file(dir, "b", "\n", 0600);
    ASSERT_STATUS(head_namespaces_read(path, &namespaces, &err), PLASMON_EINVAL);
    (void)snprintf(gone, sizeof(gone), "%s/b", dir);
    ASSERT_EQ(unlink(gone), 0);
    ASSERT_STATUS(head_namespaces_read(path, &namespaces, &err), PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, "namespace 'b'");
    (void)snprintf(gone, sizeof(gone), "%s/a", dir);
    ASSERT_EQ(unlink(gone), 0);
    ASSERT_EQ(unlink(path), 0);
    ASSERT_STATUS(head_namespaces_read(path, &namespaces, &err), PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, path);
    ASSERT_TRUE(head_namespaces_read(dir, &namespaces, &err) != PLASMON_OK);
    ASSERT_CONTAINS(err.text, "cannot read"); /* a folder: not as if it were empty */
    ASSERT_CONTAINS(err.text, "Is a directory");
    ASSERT_EQ(rmdir(dir), 0);
}

TEST(a_namespaces_token_is_refused_where_it_would_confine_nobody)
{
    struct head_namespaces namespaces = {.tokens = NULL};
    char dir[]                        = "/tmp/spaces-XXXXXX", path[128], token[128];
    struct pl_err err                 = {0};

    ASSERT_NOT_NULL(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/spaces", dir);
    (void)snprintf(token, sizeof(token), "%s/b", dir);
    write_file(dir, "spaces", "[a]\n", 0644);
    ASSERT_OK(head_namespaces_read(path, &namespaces, &err));
    ASSERT_OK(head_namespaces_beside(&namespaces, "", "", &err));

    write_file(dir, "spaces", "[a]\n[b]\ntoken_file = b\n", 0644);
    write_file(dir, "b", "secret-b\n", 0600);
    ASSERT_OK(head_namespaces_read(path, &namespaces, &err));
    ASSERT_OK(head_namespaces_beside(&namespaces, "secret", "", &err));
    ASSERT_OK(head_namespaces_beside(&namespaces, "secret", "older", &err));
    ASSERT_STATUS(head_namespaces_beside(&namespaces, "", "", &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "namespace 'b' has a token and the cluster has none");
    ASSERT_STATUS(head_namespaces_beside(&namespaces, "secret-b", "", &err),
                  PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--token-file, with which one may do everything");
    ASSERT_STATUS(head_namespaces_beside(&namespaces, "secret", "secret-b", &err),
                  PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--token-before");
    ASSERT_TRUE(strstr(err.text, "secret") == NULL);
    head_namespaces_finish(&namespaces);
    ASSERT_EQ(unlink(token), 0);
    ASSERT_EQ(unlink(path), 0);
    ASSERT_EQ(rmdir(dir), 0);
}

TEST_MAIN()
