#include "tests/unit/trust/certificates.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/test.h"

const char *certificates_file(const struct certificates *all, const char *name,
                              const char *suffix)
{
    static char paths[32][128];
    static unsigned next;
    char *path = paths[next++ % PL_COUNT(paths)];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s.%s", all->dir, name, suffix);
    return path;
}

void certificates_begin(struct certificates *all)
{
    struct pl_err err = {0};

    *all = (struct certificates){.dir = "/tmp/trust-XXXXXX"};
    ASSERT_NOT_NULL(mkdtemp(all->dir));
    ASSERT_OK(trust_authority_create(all->dir, "test", TRUST_EC_P256, 7200, &err));
    (void)snprintf(all->names[all->count++], sizeof(all->names[0]), "ca");
}

void certificates_issue(struct certificates *all, const struct trust_request *request)
{
    struct trust_request full = *request;
    struct pl_err err         = {0};

    if (full.ends_s == 0) {
        full.begins_s = -300;
        full.ends_s   = 3600;
    }
    if (trust_issue(all->dir, &full, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    ASSERT_TRUE(all->count < PL_COUNT(all->names));
    (void)snprintf(all->names[all->count++], sizeof(all->names[0]), "%s", request->name);
}

struct trust_files certificates_files(const struct certificates *all, const char *name)
{
    return (struct trust_files){.ca   = certificates_file(all, "ca", "crt"),
                                .cert = certificates_file(all, name, "crt"),
                                .key  = certificates_file(all, name, "key")};
}

void certificates_end(struct certificates *all)
{
    for (unsigned i = 0; i < all->count; i++) {
        (void)unlink(certificates_file(all, all->names[i], "crt"));
        (void)unlink(certificates_file(all, all->names[i], "key"));
    }
    ASSERT_EQ(rmdir(all->dir), 0);
}
