/*
 * What a head finds in its journal. The first byte says what the rest is: bytes as they are, the
 * records of a batch or the inside of a checkpoint, which get a right head and check sum. It is
 * read, or refused with a reason, and nothing outside of it is looked at.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "tests/harness/lone_machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void load(const uint8_t *bytes, size_t length)
{
    static struct lone_machine lone;
    const struct head_machine_config config = {
        .ops = &lone_machine_ops, .user = &lone, .kept_bytes_max = 1 << 20};
    struct pl_err err = {.status = PLASMON_OK};
    struct head_machine *machine;

    PL_CHECK(head_machine_create(&config, &machine) == PLASMON_OK);
    if (head_machine_load(machine, bytes, length, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
    }
    head_machine_destroy(machine);
}

static void records(const uint8_t *bytes, size_t length)
{
    struct head_input_reader reader;
    struct head_input input;
    struct pl_err err       = {.status = PLASMON_OK};
    plasmon_status_t status = head_blob_open(bytes, length, HEAD_BLOB_BATCH, &reader, &err);

    while (status == PLASMON_OK && !head_input_end(&reader)) {
        status = head_input_next(&reader, &input, &err);
        for (unsigned i = 0; status == PLASMON_OK && i < HEAD_INPUT_STRINGS_MAX; i++) {
            const struct head_string *string = &input.strings[i];

            PL_CHECK(string->length == 0 ||
                     (string->bytes >= bytes &&
                      string->bytes + string->length <= bytes + length));
        }
        if (status == PLASMON_OK) {
            PL_CHECK(head_input_name(input.type) != NULL);
        }
    }
    PL_CHECK(status == PLASMON_OK || err.text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct head_bytes blob = {0};

    pl_log_set_level(PL_LOG_ERROR);
    if (size == 0) {
        return 0;
    }
    if (data[0] % 3 == 0) {
        records(data + 1, size - 1);
        load(data + 1, size - 1);
        return 0;
    }
    head_blob_begin(&blob);
    head_bytes_append(&blob, data + 1, size - 1);
    if (data[0] % 3 == 1) {
        head_blob_end(&blob, HEAD_BLOB_BATCH);
        records(blob.data, blob.length);
    } else {
        head_blob_end(&blob, HEAD_BLOB_CHECKPOINT);
        load(blob.data, blob.length);
    }
    pl_free(blob.data);
    return 0;
}
