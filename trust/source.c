/*
 * Files that may be replaced while we run: certificates are short-lived where somebody renews them.
 *
 * Whoever needs them asks each time; what tells a new file from the old one is its number, size and
 * times, so asking costs three looks at the file system and no reading. While they are being
 * replaced one by one they do not belong together: then the old ones go on being used, and a
 * warning says so once for each state of the files.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/lock.h"
#include "base/log.h"
#include "trust/trust.h"

struct stamp {
    dev_t device;
    ino_t number;
    off_t bytes;
    struct timespec written;
    struct timespec changed;
};

struct trust_source {
    struct trust_files files; /* owned */
    uint32_t roles;

    struct pl_mutex lock; /* guards what follows */
    struct stamp stamps[3];
    struct trust_pems *pems; /* held */
};

static void stamps_take(const struct trust_files *files, struct stamp out[3])
{
    const char *paths[3] = {files->ca, files->cert, files->key};

    memset(out, 0, 3 * sizeof(*out)); /* they are compared as bytes */
    for (size_t i = 0; i < 3; i++) {
        struct stat about;

        if (paths[i] != NULL && stat(paths[i], &about) == 0) {
            out[i].device  = about.st_dev;
            out[i].number  = about.st_ino;
            out[i].bytes   = about.st_size;
            out[i].written = about.st_mtim;
            out[i].changed = about.st_ctim;
        }
    }
}

plasmon_status_t trust_source_create(const struct trust_files *files, uint32_t roles,
                                     struct trust_source **out_source, struct pl_err *err)
{
    struct trust_source *source = PL_NEW(struct trust_source);
    plasmon_status_t status;

    if (source == NULL || pl_mutex_init(&source->lock, PL_RANK_LEAF) != PLASMON_OK) {
        pl_free(source);
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    stamps_take(files,
                source->stamps); /* before reading: what changes meanwhile is read again */
    status             = trust_read(files, roles, &source->pems, err);
    source->roles      = roles;
    source->files.ca   = files->ca != NULL ? pl_strdup(files->ca) : NULL;
    source->files.cert = files->cert != NULL ? pl_strdup(files->cert) : NULL;
    source->files.key  = files->key != NULL ? pl_strdup(files->key) : NULL;
    if (status == PLASMON_OK && (source->files.ca == NULL || source->files.cert == NULL ||
                                 source->files.key == NULL)) {
        status = pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    if (status != PLASMON_OK) {
        trust_source_destroy(source);
        return status;
    }
    *out_source = source;
    return PLASMON_OK;
}

void trust_source_destroy(struct trust_source *source)
{
    if (source == NULL) {
        return;
    }
    trust_pems_release(source->pems);
    pl_mutex_finish(&source->lock);
    pl_free((char *)(uintptr_t)source->files.ca);
    pl_free((char *)(uintptr_t)source->files.cert);
    pl_free((char *)(uintptr_t)source->files.key);
    pl_free(source);
}

struct trust_pems *trust_source_get(struct trust_source *source)
{
    struct trust_pems *fresh = NULL, *pems;
    struct stamp now[3];
    struct pl_err err       = {0};
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&source->lock);
    stamps_take(&source->files, now);
    if (memcmp(now, source->stamps, sizeof(now)) != 0) {
        memcpy(source->stamps, now, sizeof(now));
        status = trust_read(&source->files, source->roles, &fresh, &err);
        if (status == PLASMON_OK) {
            trust_pems_release(source->pems);
            source->pems = fresh;
        }
    }
    pems = trust_pems_hold(source->pems);
    pl_mutex_unlock(&source->lock);

    if (status != PLASMON_OK) {
        pl_warn("trust", "going on with the old certificate: %s", err.text);
    } else if (fresh != NULL) {
        char when[32];

        pl_info("trust", "took the new certificate of '%s', good until %s",
                pems->identity.name, trust_time_text(pems->identity.expires, when));
    }
    return pems;
}
