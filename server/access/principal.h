/* server/access/principal.h: who asks, and what was done for it. It travels with the request to
 * whoever divides or limits work. */
#pragma once

#include "server/access/key.h"

/* Tokens of one request, which the log tells. Counted, since the engine may let go of it after the
 * client. */
struct principal_work {
    atomic_int references;
    atomic_int_fast64_t tokens_read, tokens_written;
};

struct principal {
    uint64_t client; /* the same number, the same client: of the key, else of the address */
    struct key *key; /* a reference of whoever holds the principal; NULL: the server has no keys */
    struct principal_work *work; /* likewise; NULL: nobody asks */
    double deadline;             /* after which the answer is of no use; 0: none */
};

/* Without a key. */
struct principal principal_open(uint64_t client);
struct principal principal_hold(struct principal principal);
void principal_release(struct principal *principal);
/* The documents that there are for it; borrowed. NULL: all. */
static inline struct filter *principal_filter(const struct principal *principal) {
    return principal->key ? key_filter(principal->key) : NULL;
}
/* Appends what tells clients apart that take over nothing of each other's: their key's hash, or
 * nothing of it where clients of one filter share (`of_filter`), and the filter, since what was
 * found by one filter is not for another. False: nothing tells the client apart. */
bool principal_scope(const struct principal *principal, bool of_filter, struct buffer *out);
bool principal_is_late(const struct principal *principal, double now);
/* Tokens that were read and written for it. */
void principal_charge(const struct principal *principal, int64_t tokens_read,
                      int64_t tokens_written);
