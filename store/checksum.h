/*
 * Checksum of spilled bytes: XXH64 (seed 0), as its specification describes it, for it is quicker
 * than memory is (four multiplications for 32 bytes, in four independent lanes) and any flipped bit
 * changes it. It finds accidents of disks and drivers, not attackers.
 */
#ifndef STORE_CHECKSUM_H
#define STORE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t store_checksum(const void *data, size_t bytes);

#endif
