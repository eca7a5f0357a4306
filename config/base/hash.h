/* config/base/hash.h: XXH3, the integrity checksum of index files and the identity of models and tokenizers. Not
 * cryptographic: it finds damage and mix-ups, not attackers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* 64-bit XXH3 of data[0, size). */
uint64_t hash_bytes(const void *data, size_t size, uint64_t seed);
