#include "bench/chaos/soak_team.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"

#define ELEMENTS (1 << 16) /* i64: 512 KiB a member, enough for several segments */
#define EVERY_NS UINT64_C(250000000)
#define READ_MS  60000

static bool fail(char text[STRESS_TEXT_BYTES], const struct soak_team *team,
                 const char *what)
{
    (void)snprintf(text, STRESS_TEXT_BYTES, "reduction %llu: %s: %.1024s",
                   (unsigned long long)team->rounds, what, plasmon_error(team->client));
    return false;
}

/* What device i adds in a round. */
static int64_t addend(const struct soak_team *team, uint32_t i)
{
    return (int64_t)team->rounds * 1000 + 7 * (int64_t)i + 1;
}

static plasmon_status_t fill(struct soak_team *team, uint32_t i, struct plasmon_ref **out)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_I64, 1, ELEMENTS, 0);
    const struct plasmon_arg arg     = {.mode = PLASMON_OUT, .shape = &shape};
    const plasmon_scalar_t scalar    = {.i = addend(team, i)};
    struct plasmon_call call         = PLASMON_CALL_INIT;

    call.function     = "fill_int";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = team->number[i];
    return plasmon_submit(team->client, &call, out, NULL);
}

static bool begin(struct soak_team *team, char text[STRESS_TEXT_BYTES])
{
    struct plasmon_ref *member[STRESS_DEVICES_MAX] = {NULL};
    struct plasmon_collective_options how          = PLASMON_COLLECTIVE_INIT;
    plasmon_status_t status                        = PLASMON_OK;

    for (uint32_t i = 0; i < team->devices && status == PLASMON_OK; i++) {
        status = fill(team, i, &member[i]);
    }
    how.way = PLASMON_WAY_NCCL;
    if (status == PLASMON_OK) {
        status = plasmon_all_reduce(team->client, PLASMON_REDUCE_SUM, member, team->devices,
                                    &how, team->sum, NULL);
        team->under_way = status == PLASMON_OK;
    }
    for (uint32_t i = 0; i < team->devices; i++) {
        if (member[i] != NULL) {
            (void)plasmon_release(team->client, member[i]); /* the reduction has them */
        }
    }
    if (status == PLASMON_OK) {
        status = plasmon_flush(team->client);
    }
    return status == PLASMON_OK || fail(text, team, "submitting");
}

static bool is_right(struct soak_team *team, uint32_t i, int64_t *data,
                     char text[STRESS_TEXT_BYTES])
{
    int64_t want = 0;

    for (uint32_t k = 0; k < team->devices; k++) {
        want += addend(team, k);
    }
    if (plasmon_get(team->client, team->sum[i], data, ELEMENTS * sizeof(int64_t),
                    READ_MS) != PLASMON_OK) {
        return fail(text, team, "reading its result");
    }
    for (size_t k = 0; k < ELEMENTS; k++) {
        if (data[k] != want) {
            (void)snprintf(text, STRESS_TEXT_BYTES,
                           "reduction %llu: element %zu of result %u is %lld, not %lld",
                           (unsigned long long)team->rounds, k, i, (long long)data[k],
                           (long long)want);
            return false;
        }
    }
    return true;
}

static bool all_ready(struct soak_team *team, bool *out_good, char text[STRESS_TEXT_BYTES])
{
    *out_good = true;
    for (uint32_t i = 0; i < team->devices; i++) {
        plasmon_status_t status = plasmon_state(team->client, team->sum[i]);

        if (status == PLASMON_INPROGRESS) {
            return false;
        }
        if (status != PLASMON_OK) {
            *out_good = fail(text, team, "it failed");
            return false;
        }
    }
    return true;
}

void soak_team_end(struct soak_team *team)
{
    for (uint32_t i = 0; i < team->devices && team->under_way; i++) {
        (void)plasmon_release(team->client, team->sum[i]); /* the client may be closed */
    }
    team->under_way = false;
}

static bool look(struct soak_team *team, uint64_t now_ns, char text[STRESS_TEXT_BYTES])
{
    int64_t *data;
    bool good;

    if (!all_ready(team, &good, text)) {
        return good;
    }
    data = malloc(ELEMENTS * sizeof(*data));
    if (data == NULL) {
        bench_die("out of host memory");
    }
    for (uint32_t i = 0; i < team->devices && good; i++) {
        good = is_right(team, i, data, text);
    }
    free(data);
    soak_team_end(team);
    team->next_ns = now_ns + EVERY_NS;
    team->rounds += good;
    return good;
}

bool soak_team_turn(struct soak_team *team, uint64_t now_ns,
                    char out_text[STRESS_TEXT_BYTES])
{
    if (team->under_way) {
        return look(team, now_ns, out_text);
    }
    return now_ns < team->next_ns || begin(team, out_text);
}
