/*
 * Whatever a namespaces file holds, it is understood or refused, and what is understood keeps the
 * promises of the header.
 */
#include "head/namespaces.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct head_namespaces namespaces;
    struct pl_err err = {0};

    if (head_namespaces_parse((const char *)data, size, &namespaces, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0' && namespaces.entries.count == 0);
        return 0;
    }
    PL_CHECK(namespaces.entries.count > 0 &&
             namespaces.entries.count <= HEAD_NAMESPACES_MAX);
    for (size_t i = 0; i < namespaces.entries.count; i++) {
        const struct head_namespace_entry *entry = pl_vec_at(&namespaces.entries, i);

        PL_CHECK(trust_name_good(entry->name));
        PL_CHECK(entry->quota.bytes <= UINT64_MAX >> 1);
        PL_CHECK(strnlen(entry->token_file, sizeof(entry->token_file)) <
                 sizeof(entry->token_file));
        for (size_t j = 0; j < i; j++) {
            const struct head_namespace_entry *other = pl_vec_at(&namespaces.entries, j);

            PL_CHECK(strcmp(entry->name, other->name) != 0);
        }
    }
    head_namespaces_finish(&namespaces);
    return 0;
}
