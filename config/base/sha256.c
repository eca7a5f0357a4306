/* config/base/sha256.c: see sha256.h. */
#include "config/base/sha256.h"

#include <nettle/sha2.h>

void sha256_hash(const struct text_span *parts, int n, uint8_t hash[SHA256_BYTES]) {
    struct sha256_ctx context;
    sha256_init(&context);
    for (int i = 0; i < n; i++) sha256_update(&context, parts[i].size, (const uint8_t *)parts[i].text);
    sha256_digest(&context, SHA256_BYTES, hash);
}
