/* config/base/sha256.c: see sha256.h. */
#include "config/base/sha256.h"

#include <nettle/hmac.h>

void sha256_hash(const struct text_span *parts, int n, uint8_t hash[SHA256_BYTES]) {
    struct sha256_ctx context;
    sha256_init(&context);
    for (int i = 0; i < n; i++)
        sha256_update(&context, parts[i].size, (const uint8_t *)parts[i].text);
    sha256_digest(&context, SHA256_BYTES, hash);
}

void sha256_authenticate(struct text_span key, const struct text_span *parts, int n,
                         uint8_t code[SHA256_BYTES]) {
    struct hmac_sha256_ctx context;
    hmac_sha256_set_key(&context, key.size, (const uint8_t *)key.text);
    for (int i = 0; i < n; i++)
        hmac_sha256_update(&context, parts[i].size, (const uint8_t *)parts[i].text);
    hmac_sha256_digest(&context, SHA256_BYTES, code);
}
