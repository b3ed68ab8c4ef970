/* `plasmon version` */
#include <stdio.h>

#include "client/cli/cli.h"
#include "wire/wire.h"

static int run(int argc, char **argv);
const struct cli_command cli_version = {
    .name    = "version",
    .summary = "print the version",
    .usage   = "",
    .run     = run,
};

static int run(int argc, char **argv)
{
    struct cli_parsed parsed = cli_parse(&cli_version, argc, argv, NULL);

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    printf("plasmon %s, protocol %u\n", plasmon_version(), WIRE_PROTOCOL);
    return CLI_OK;
}
