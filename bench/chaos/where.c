/*
 * Where the time goes until a device works again: the median of each phase (store/phases.h) of each
 * kind of fault that ends a worker. Of faults that came alone, as in the report's other table.
 * Medians of phases do not add up to the median of the whole; the last line is of the sums.
 *
 * BY CAUSE  The slow ones are not the usual ones with more of everything: mostly one phase of
 * theirs was long. So each fault is counted under the phase that took longest of its recovery, and
 * the second table has how many those are and how long all of their recovery took. `functions` are
 * the programs' own ones, of which the first launch needed one that nobody on this host had
 * compiled yet; `other devices` may be at the same.
 */
#include <stdio.h>

#include "bench/chaos/chaos.h"

static const enum chaos_kind ending[] = {CHAOS_WORKER_KILL, CHAOS_WORKER_STOP,
                                         CHAOS_ILLEGAL, CHAOS_ENDLESS};

/* Everything but `noticed`, which is the fault's own. */
static double sum_of(const struct chaos_sample *sample)
{
    double sum = 0;

    for (int i = STORE_PHASE_NOTICED + 1; i < STORE_PHASES; i++) {
        sum += sample->phase_ms[i];
    }
    return sum;
}

static bool take_phase(const struct chaos_sample *sample, int phase, double *out_ms)
{
    *out_ms = phase < STORE_PHASES ? sample->phase_ms[phase] : sum_of(sample);
    return sample->phased;
}

/* Of one phase, or of the sum: phase STORE_PHASES. *out_count: how many there are. */
static double median_of(const struct chaos *chaos, enum chaos_kind kind, int phase,
                        uint64_t *out_count)
{
    struct chaos_times times = chaos_times_of(chaos, kind, take_phase, phase);

    *out_count = times.count;
    return times.p50;
}

static void print_line(const struct chaos *chaos, const char *name, int phase)
{
    double ms[PL_COUNT(ending)];
    uint64_t counts[PL_COUNT(ending)];
    double largest = 0;

    for (size_t i = 0; i < PL_COUNT(ending); i++) {
        ms[i]   = median_of(chaos, ending[i], phase, &counts[i]);
        largest = counts[i] > 0 && ms[i] > largest ? ms[i] : largest;
    }
    if (largest < 0.05) {
        return; /* a CPU device has no context to make, say */
    }
    printf("  %-13s", name);
    for (size_t i = 0; i < PL_COUNT(ending); i++) {
        if (counts[i] > 0) {
            printf(" %12.1f", ms[i]);
        } else {
            printf(" %12s", "-");
        }
    }
    printf("\n");
}

/* ----------------------------------------------------------------------------- by cause */

static int longest_of(const struct chaos_sample *sample)
{
    int longest = 0;

    for (int i = 1; i < STORE_PHASES; i++) {
        longest = sample->phase_ms[i] > sample->phase_ms[longest] ? i : longest;
    }
    return longest;
}

static bool take_caused(const struct chaos_sample *sample, int phase, double *out_ms)
{
    *out_ms = sample->recover_ms;
    return sample->phased && longest_of(sample) == phase;
}

static struct chaos_times cause_of(const struct chaos *chaos, enum chaos_kind kind,
                                   int phase)
{
    return chaos_times_of(chaos, kind, take_caused, phase);
}

static void print_causes(const struct chaos *chaos)
{
    printf("\n  %-13s %-13s %8s %10s %10s\n", "fault", "longest was", "faults", "p50 ms",
           "p99 ms");
    for (size_t i = 0; i < PL_COUNT(ending); i++) {
        for (int phase = 0; phase < STORE_PHASES; phase++) {
            struct chaos_times cause = cause_of(chaos, ending[i], phase);

            if (cause.count > 0) {
                printf("  %-13s %-13s %8llu %10.1f %10.1f\n", chaos_kind_name(ending[i]),
                       store_phase_name((enum store_phase)phase),
                       (unsigned long long)cause.count, cause.p50, cause.p99);
            }
        }
    }
}

static void put_causes(struct pl_str *out, const struct chaos *chaos, enum chaos_kind kind)
{
    const char *comma = "";

    pl_str_append(out, ",\"longest_was\":{");
    for (int phase = 0; phase < STORE_PHASES; phase++) {
        struct chaos_times cause = cause_of(chaos, kind, phase);

        if (cause.count > 0) {
            pl_str_append(out, "%s\"%s\":{\"faults\":%llu,\"p50_ms\":%.3f,\"p99_ms\":%.3f}",
                          comma, store_phase_name((enum store_phase)phase),
                          (unsigned long long)cause.count, cause.p50, cause.p99);
            comma = ",";
        }
    }
    pl_str_append(out, "}");
}

/* --------------------------------------------------------------------------- the report */

void chaos_where_print(const struct chaos *chaos)
{
    uint64_t any = 0;

    for (size_t i = 0; i < PL_COUNT(ending); i++) {
        uint64_t count;

        (void)median_of(chaos, ending[i], STORE_PHASES, &count);
        any += count;
    }
    if (any == 0) {
        return;
    }
    printf("\n  until the next worker goes on: each phase, median in ms\n  %-13s", "");
    for (size_t i = 0; i < PL_COUNT(ending); i++) {
        printf(" %12s", chaos_kind_name(ending[i]));
    }
    printf("\n");
    for (int i = 0; i < STORE_PHASES; i++) {
        print_line(chaos, store_phase_name((enum store_phase)i), i);
    }
    print_line(chaos, "since noticed", STORE_PHASES);
    print_causes(chaos);
}

void chaos_where_put(struct pl_str *out, const struct chaos *chaos, enum chaos_kind kind)
{
    uint64_t count;

    (void)median_of(chaos, kind, STORE_PHASES, &count);
    if (count == 0) {
        return;
    }
    pl_str_append(out, ",\"phased\":%llu,\"phases_ms\":{", (unsigned long long)count);
    for (int i = 0; i < STORE_PHASES; i++) {
        pl_str_append(out, "%s\"%s\":%.3f", i > 0 ? "," : "",
                      store_phase_name((enum store_phase)i),
                      median_of(chaos, kind, i, &count));
    }
    pl_str_append(out, "}");
    put_causes(out, chaos, kind);
}
