/* server/access/principal.h: who asks. It travels with the request to whoever shares out or limits work. */
#pragma once

#include "server/access/key.h"

struct principal {
    uint64_t client; /* the same number, the same client: of the key, else of the address */
    struct key *key; /* a reference of whoever holds the principal; NULL: the server has no keys */
};

static inline struct principal principal_hold(struct principal p) {
    if (p.key) key_hold(p.key);
    return p;
}

static inline void principal_release(struct principal *p) {
    key_release(p->key);
    p->key = NULL;
}

static inline void principal_charge(const struct principal *p, int64_t tokens) {
    if (p->key) key_charge(p->key, tokens);
}
