/* Option tables: parsing and help from the same rows. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "client/cli/cli.h"

#define CLI_TEXT_BYTES 8192 /* of what went wrong; the rest is left out */

static void print_help(const struct cli_command *command)
{
    size_t length = command->text != NULL ? strlen(command->text) : 0;

    printf("usage: plasmon %s%s%s\n\n%s\n", command->name,
           command->usage[0] != '\0' ? " " : "", command->usage, command->summary);
    if (length > 0) {
        printf("\n%s%s", command->text, command->text[length - 1] == '\n' ? "" : "\n");
    }
    printf("\noptions:\n");
    for (size_t i = 0; i < command->option_count; i++) {
        const struct cli_option *option = &command->options[i];
        char left[64];

        (void)snprintf(left, sizeof(left), "%s%s%s", option->name,
                       option->value != NULL ? " " : "",
                       option->value != NULL ? option->value : "");
        pl_text_option(stdout, 26, left, option->help);
    }
    pl_text_option(stdout, 26, "--help", "print this");
}

int cli_fail(const struct cli_command *command, const char *format, ...)
{
    char text[CLI_TEXT_BYTES], clean[CLI_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pl_text_clean(text, clean, sizeof(clean)); /* others have a part in it */
    (void)fflush(stdout);
    fprintf(stderr, "plasmon %s: %s\n", command->name, clean);
    return CLI_FAIL;
}

int cli_usage(const struct cli_command *command, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "plasmon %s: ", command->name);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; see `plasmon %s --help`\n", command->name);
    return CLI_USAGE;
}

static const struct cli_option *find(const struct cli_command *command,
                                     const char *argument, size_t length)
{
    for (size_t i = 0; i < command->option_count; i++) {
        const char *name = command->options[i].name;

        if (strlen(name) == length && strncmp(name, argument, length) == 0) {
            return &command->options[i];
        }
    }
    return NULL;
}

/*
 * What takes minutes is not to be lost in the end: is the file, or the folder that it will be in,
 * there, and may it be written? -1: it is and may.
 */
static int check_output(const struct cli_command *command, const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    struct stat there;

    if (stat(path, &there) == 0 && S_ISDIR(there.st_mode)) {
        errno = EISDIR;
    } else if (access(path, W_OK) == 0) {
        return -1;
    } else if (errno == ENOENT) {
        (void)snprintf(folder, sizeof(folder), "%.*s",
                       slash == NULL ? 1 : (int)(slash - path) + 1,
                       slash == NULL ? "." : path);
        if (access(folder, W_OK) == 0) {
            return -1;
        }
    }
    return cli_fail(command, "cannot write %s: %s; nothing was done", path,
                    strerror(errno));
}

/* -1, or what to exit with. */
static int set(const struct cli_command *command, const struct cli_option *option,
               const char *value, void *into)
{
    char *field = (char *)into + option->offset, *end;
    struct cli_texts *texts;
    unsigned long number;

    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)field = true;
        return -1;
    case CLI_TEXT:
        *(const char **)field = value;
        return -1;
    case CLI_OUTPUT:
        *(const char **)field = value;
        return check_output(command, value);
    case CLI_COUNT:
        errno  = 0;
        number = strtoul(value, &end, 10);
        if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 ||
            number > UINT32_MAX) {
            return cli_usage(command, "%s wants a number and not \"%s\"", option->name,
                             value);
        }
        *(uint32_t *)field = (uint32_t)number;
        return -1;
    case CLI_TEXTS:
        texts = (struct cli_texts *)field;
        if (texts->count == CLI_LISTENS_MAX) {
            return cli_usage(command, "%s was given more than %d times", option->name,
                             CLI_LISTENS_MAX);
        }
        texts->text[texts->count++] = value;
        return -1;
    }
    return CLI_USAGE;
}

/* One option with its value, which may be the next argument. Moves *io_index past what it used. */
static int parse_option(const struct cli_command *command, int argc, char **argv,
                        int *io_index, void *into)
{
    const char *argument = argv[*io_index], *equals = strchr(argument, '='), *value = NULL;
    size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    const struct cli_option *option = find(command, argument, length);

    if (option == NULL) {
        return cli_usage(command, "there is no option %.*s", (int)length, argument);
    }
    if (option->value == NULL && equals != NULL) {
        return cli_usage(command, "%s takes no value", option->name);
    }
    if (option->value != NULL) {
        value = equals != NULL         ? equals + 1
                : *io_index + 1 < argc ? argv[++*io_index]
                                       : NULL;
        if (value == NULL || value[0] == '\0') {
            /* a variable of a script that is not set, say */
            return cli_usage(command, "%s wants a value: %s", option->name, option->value);
        }
    }
    return set(command, option, value, into);
}

struct cli_parsed cli_parse(const struct cli_command *command, int argc, char **argv,
                            void *into)
{
    struct cli_parsed parsed = {.exit = -1};

    for (int i = 1; i < argc && parsed.exit < 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(command);
            parsed.exit = CLI_OK;
        } else if (argv[i][0] == '-' && argv[i][1] != '\0') {
            parsed.exit = parse_option(command, argc, argv, &i, into);
        } else if (parsed.operand_count >= command->operands_max ||
                   parsed.operand_count >= PL_COUNT(parsed.operands)) {
            parsed.exit = cli_usage(command, "\"%s\" is one argument too many", argv[i]);
        } else {
            parsed.operands[parsed.operand_count++] = argv[i];
        }
    }
    return parsed;
}

bool cli_list_has(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

bool cli_list_is_of(const char *list, const char *all)
{
    char word[16];

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        size_t length;

        at += *at == ',';
        length = strcspn(at, ",");
        if (length == 0 || length >= sizeof(word)) {
            return false;
        }
        memcpy(word, at, length);
        word[length] = '\0';
        if (!cli_list_has(all, word)) {
            return false;
        }
    }
    return true;
}
