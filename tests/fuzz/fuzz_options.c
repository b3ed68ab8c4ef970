/*
 * Texts that an operator or a program gives: a command line of the store (words end with a
 * newline), ports, and names of log levels.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/ports.h"
#include "store/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS_MAX 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text        = malloc(size + 1), *words[WORDS_MAX + 2], *rest, *word;
    struct pl_err err = {.status = PLASMON_OK};
    struct store_options options;
    enum pl_log_level level;
    uint16_t first, last;
    int count = 1;

    PL_CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    words[0]   = (char *)(uintptr_t) "plasmon-store";
    for (word = strtok_r(text, "\n", &rest); word != NULL && count <= WORDS_MAX;
         word = strtok_r(NULL, "\n", &rest)) {
        if (pl_parse_ports(word, &first, &last)) {
            PL_CHECK(first <= last);
        }
        if (pl_log_level_parse(word, &level) == PLASMON_OK) {
            PL_CHECK(level <= PL_LOG_TRACE);
        }
        words[count++] = word;
    }
    words[count] = NULL;
    if (store_options_parse(count, words, &options, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
    } else {
        PL_CHECK(options.spill_dir_count <= STORE_SPILL_DIRS_MAX);
        PL_CHECK(options.head_arg_count <= STORE_HEAD_ARGS_MAX);
    }
    free(text);
    return 0;
}
