/* config/base/sha256.h: SHA-256 (FIPS 180-4), for names of content that nobody can make collide.
 * hash.h is for all else. */
#pragma once

#include "config/base/buffer.h"

enum { SHA256_BYTES = 32 };

/* Of the n parts, one behind the other. */
void sha256_hash(const struct text_span *parts, int n, uint8_t hash[SHA256_BYTES]);

/* HMAC-SHA-256 (RFC 2104) of the n parts: shows that whoever made it has the key. */
void sha256_authenticate(struct text_span key, const struct text_span *parts, int n,
                         uint8_t code[SHA256_BYTES]);
