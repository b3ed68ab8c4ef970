/*
 * The operations on memory that several processes share. table.c is written in these and nothing
 * else, so that tests/unit/store/test_table_model.c can put its own in their place (STORE_MODEL)
 * and run the real code under every interleaving, with store buffers.
 *
 *   shared_load         acquire; sequentially consistent among shared_store_sc and shared_swap
 *   shared_store        release: may become visible late, never out of order
 *   shared_store_sc     visible before the next load
 *   shared_swap         compare and swap; visible before the next load
 *
 * (No fences: the thread sanitizer does not know them. On x86 a load is a plain load, a release
 * store a plain store.)
 */
#ifndef STORE_SHARED_INT_H
#define STORE_SHARED_INT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef STORE_MODEL
uint64_t store_model_load(const void *word, unsigned bytes);
void store_model_store(void *word, unsigned bytes, uint64_t value, bool drain);
bool store_model_swap(void *word, uint64_t expected, uint64_t value);

#define shared_load32(word)            ((uint32_t)store_model_load((const void *)(word), 4))
#define shared_load64(word)            store_model_load((const void *)(word), 8)
#define shared_store32(word, value)    store_model_store((void *)(word), 4, (value), false)
#define shared_store64(word, value)    store_model_store((void *)(word), 8, (value), false)
#define shared_store_sc32(word, value) store_model_store((void *)(word), 4, (value), true)
#define shared_store_sc64(word, value) store_model_store((void *)(word), 8, (value), true)
#define shared_swap64(word, expected, value) \
    store_model_swap((void *)(word), (expected), (value))
#else

static inline uint32_t shared_load32(const volatile void *word)
{
    return __atomic_load_n((const volatile uint32_t *)word, __ATOMIC_SEQ_CST);
}
static inline uint64_t shared_load64(const volatile void *word)
{
    return __atomic_load_n((const volatile uint64_t *)word, __ATOMIC_SEQ_CST);
}
static inline void shared_store32(volatile void *word, uint32_t value)
{
    __atomic_store_n((volatile uint32_t *)word, value, __ATOMIC_RELEASE);
}
static inline void shared_store64(volatile void *word, uint64_t value)
{
    __atomic_store_n((volatile uint64_t *)word, value, __ATOMIC_RELEASE);
}
static inline void shared_store_sc32(volatile void *word, uint32_t value)
{
    __atomic_store_n((volatile uint32_t *)word, value, __ATOMIC_SEQ_CST);
}
static inline void shared_store_sc64(volatile void *word, uint64_t value)
{
    __atomic_store_n((volatile uint64_t *)word, value, __ATOMIC_SEQ_CST);
}
static inline bool shared_swap64(volatile void *word, uint64_t expected, uint64_t value)
{
    return __atomic_compare_exchange_n((volatile uint64_t *)word, &expected, value, false,
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
#endif

#endif
