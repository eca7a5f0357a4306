/* config/base/hash.c: the only file that includes xxHash. See hash.h. */
#include "config/base/hash.h"

#include <xxhash.h>

uint64_t hash_bytes(const void *data, size_t size, uint64_t seed) {
    return XXH3_64bits_withSeed(size ? data : "", size, seed);
}

bool hash_parse(const char *digits, uint64_t *hash) {
    *hash = 0;
    for (int i = 0; i < 16; i++) {
        char c = digits[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        *hash = *hash << 4 | (uint64_t)digit;
    }
    return true;
}
