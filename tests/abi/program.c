/* What a user's program does without a cluster: versions, texts, the catalogue, errors that need nobody. */
#include <stdio.h>
#include <string.h>

#include "plasmon/plasmon.h"

#define EXPECT(x)                                                            \
    do {                                                                     \
        if (!(x)) {                                                          \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #x); \
            return 1;                                                        \
        }                                                                    \
    } while (0)

int main(void)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client  = NULL;
    struct plasmon_function_info info;
    unsigned count = 0, gemm = 0;

    EXPECT(strcmp(plasmon_version(), PLASMON_VERSION_STRING) == 0);
    EXPECT(strcmp(plasmon_status_name(PLASMON_ESHAPE), "ESHAPE") == 0);
    EXPECT(strlen(plasmon_status_string(PLASMON_ESHAPE)) > 0);
    while (plasmon_function_at(count, &info) == PLASMON_OK) {
        gemm += strcmp(info.name, "gemm") == 0;
        count++;
    }
    EXPECT(count > 0 && gemm == 1);

    options.address = "nonsense";
    EXPECT(plasmon_init(&options, &client) == PLASMON_EINVAL);
    EXPECT(strstr(plasmon_error(NULL), "nonsense") != NULL);
    options.address = NULL;
    options.bin_dir = "/nonexistent";
    EXPECT(plasmon_init(&options, &client) == PLASMON_ENOENT);
    EXPECT(strstr(plasmon_error(NULL), "/nonexistent/plasmon-store") != NULL);
    options.bin_dir  = NULL;
    options.transfer = "pigeon";
    EXPECT(plasmon_init(&options, &client) == PLASMON_EINVAL);
    EXPECT(client == NULL);

    EXPECT(plasmon_flush(NULL) == PLASMON_EINVAL);
    plasmon_finish(NULL);
    plasmon_unmap(NULL);
    return 0;
}
