/* `plasmon functions`: the catalogue of functions that a call can name. */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "kernels/kernels.h"

static int run(int argc, char **argv);
const struct cli_command cli_functions = {
    .name         = "functions",
    .summary      = "list the functions that can be called, or tell about one",
    .usage        = "[NAME]",
    .operands_max = 1,
    .run          = run,
};

static int run(int argc, char **argv)
{
    struct cli_parsed parsed = cli_parse(&cli_functions, argc, argv, NULL);
    const char *name         = parsed.operand_count > 0 ? parsed.operands[0] : NULL;
    struct plasmon_function_info info;
    bool found = false;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    for (uint32_t i = 0; plasmon_function_at(i, &info) == PLASMON_OK; i++) {
        if (name == NULL) {
            printf("%s\n", info.signature);
        } else if (strcmp(name, info.name) == 0) {
            printf("%s\n\n%s\n", info.signature, info.doc);
            found = true;
        }
    }
    if (name != NULL && !found) {
        const char *meant = kernel_suggest(name);

        return cli_fail(&cli_functions,
                        meant != NULL
                            ? "there is no function \"%s\"; did you mean \"%s\"?"
                            : "there is no function \"%s\"; `plasmon functions` lists them",
                        name, meant);
    }
    return CLI_OK;
}
