/*
 * For every function of the catalogue: how to call it on random arrays, and what a naive reference
 * says comes out. One list for the CPU and the GPU tests, so that no function is forgotten on
 * either.
 */
#ifndef TESTS_KERNELS_CASES_H
#define TESTS_KERNELS_CASES_H

#include "trial.h"

enum kernel_case_flags {
    CASE_SAME_BITS = 1u << 0, /* CPU and GPU give the same bits also for floats */
    CASE_FAILS     = 1u << 1, /* when it runs */
};

struct kernel_case {
    const char *name;
    uint32_t dtypes; /* to try */
    unsigned flags;
    void (*build)(struct trial *trial);  /* arguments, up to trial_prepare() */
    void (*expect)(struct trial *trial); /* expected values */
};

/* u s vh = a and so on, of any call of svd; for trial.verify. */
void kernel_verify_svd(const struct trial *trial, const char *where);

uint32_t kernel_case_count(void);
const struct kernel_case *kernel_case_at(uint32_t index);

/*
 * Calls fn for `rounds` trials (PLASMON_ROUNDS: at most so many) of each dtype of each case,
 * prepared and with expected values.
 */
void kernel_cases_each(uint32_t rounds, uint64_t seed,
                       void (*fn)(const struct kernel_case *kase, struct trial *trial,
                                  void *user),
                       void *user);

#endif
