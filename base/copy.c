#include "copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    PAGE         = 4096,
    BLOCK        = PAGE / 2,
    LARGE        = 64 << 10, /* less is over before it matters */
    TOO_NEAR_MAX = 768,      /* bytes ahead; from 1024 on memcpy() is as fast as it gets */
    LINE         = 64
};

/* Whole lines to where they begin, past the cache: nobody reads them soon. */
static void put_block(uint8_t *dst, const uint8_t *block)
{
#ifdef __SSE2__
    for (size_t i = 0; i < BLOCK; i += sizeof(__m128i)) {
        _mm_stream_si128((__m128i *)(void *)(dst + i),
                         _mm_load_si128((const __m128i *)(const void *)(block + i)));
    }
#else
    memcpy(dst, block, BLOCK);
#endif
}

static void copy_aside(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    _Alignas(PAGE) uint8_t pages[2 * PAGE];
    size_t head    = (size_t)(-(uintptr_t)dst & (LINE - 1));
    uint8_t *block = pages;

    memcpy(dst, src, head);
    dst += head;
    src += head;
    bytes -= head;
    block += ((uintptr_t)src + BLOCK) % PAGE / LINE * LINE;
    while (bytes >= BLOCK) {
        memcpy(block, src, BLOCK);
        put_block(dst, block);
        dst += BLOCK;
        src += BLOCK;
        bytes -= BLOCK;
    }
#ifdef __SSE2__
    _mm_sfence(); /* before whatever tells others that the bytes are there */
#endif
    memcpy(dst, src, bytes);
}

void pl_copy(void *dst, const void *src, size_t bytes)
{
    size_t ahead = ((uintptr_t)dst - (uintptr_t)src) % PAGE;

    if (bytes >= LARGE && ahead > 0 && ahead <= TOO_NEAR_MAX) {
        copy_aside(dst, src, bytes);
    } else {
        memcpy(dst, src, bytes);
    }
}
