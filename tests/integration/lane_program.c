/*
 * lane_program ROUNDS [hold]: a client of the cluster that PLASMON_ADDRESS names, which puts and
 * gets arrays of odd sizes and compares every byte. It says "right", or what went wrong. With
 * `hold` it then says "held" and waits for the end of its input before it finishes.
 */
#include <plasmon/plasmon.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(struct plasmon_client *client, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, plasmon_error(client));
    return 1;
}

static int round_trip(struct plasmon_client *client, uint64_t seed)
{
    uint64_t words             = 100003 + seed * 7919 % 1000003; /* 0.8 to 8.8 MB */
    struct plasmon_shape shape = {PLASMON_U64, 1, {(int64_t)words}};
    uint64_t *from = malloc(words * 8), *to = calloc(words, 8);
    struct plasmon_ref *ref;
    int result = 0;

    if (from == NULL || to == NULL) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    for (uint64_t i = 0; i < words; i++) {
        from[i] = (i + seed) * UINT64_C(0x9e3779b97f4a7c15);
    }
    if (plasmon_put(client, from, &shape, NULL, &ref) != PLASMON_OK) {
        result = fail(client, "put");
    } else if (plasmon_get(client, ref, to, words * 8, 60000) != PLASMON_OK) {
        result = fail(client, "get");
    } else if (memcmp(from, to, words * 8) != 0) {
        fprintf(stderr, "%llu words of seed %llu came back wrong\n",
                (unsigned long long)words, (unsigned long long)seed);
        result = 1;
    } else if (plasmon_release(client, ref) != PLASMON_OK) {
        result = fail(client, "release");
    }
    free(from);
    free(to);
    return result;
}

int main(int argc, char **argv)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;
    int rounds = argc > 1 ? atoi(argv[1]) : 1;

    options.connect_timeout_ms = 20000;
    if (getenv("PLASMON_ADDRESS") == NULL) {
        fprintf(stderr, "PLASMON_ADDRESS is not set\n");
        return 2;
    }
    if (plasmon_init(&options, &client) != PLASMON_OK) {
        return fail(NULL, "init");
    }
    for (int i = 0; i < rounds; i++) {
        if (round_trip(client, (uint64_t)getpid() * 1000 + (uint64_t)i) != 0) {
            return 1;
        }
    }
    puts("right");
    if (argc > 2 && strcmp(argv[2], "hold") == 0) {
        puts("held");
        (void)fflush(stdout);
        while (getchar() != EOF) {
        }
    }
    plasmon_finish(client);
    return 0;
}
