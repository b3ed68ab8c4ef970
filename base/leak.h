/*
 * Memory that nobody can reach any more, looked for by the address sanitizer in a process that ends
 * by _exit(), which skips that look. In a build without the sanitizer there is nothing to ask.
 */
#ifndef BASE_LEAK_H
#define BASE_LEAK_H

#include <stdbool.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PL_LEAKS_ARE_SEEN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define PL_LEAKS_ARE_SEEN 1
#endif

#ifdef PL_LEAKS_ARE_SEEN
#include <sanitizer/lsan_interface.h>
#endif

/* There is some, which standard error tells of. Stops all threads while it looks; not in a signal handler. */
static inline bool pl_leaks(void)
{
#ifdef PL_LEAKS_ARE_SEEN
    return __lsan_do_recoverable_leak_check() != 0;
#else
    return false;
#endif
}

#endif
