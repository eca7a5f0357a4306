/* config/base/hash.h: XXH3, the integrity checksum of index files and the identity of models and
 * tokenizers. Not cryptographic: it finds damage and mix-ups, not attackers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 64-bit XXH3 of data[0, size). */
uint64_t hash_bytes(const void *data, size_t size, uint64_t seed);
/* The 16 lower-case hexadecimal digits at `digits`: one spelling per number, so that a flipped bit
 * cannot hide in the case. False for anything else. */
bool hash_parse(const char *digits, uint64_t *hash);
