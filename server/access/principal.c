/* server/access/principal.c: see principal.h. */
#include "server/access/principal.h"

#include <stdlib.h>

struct principal principal_open(uint64_t client) {
    struct principal_work *work = xcalloc(1, sizeof *work);
    atomic_init(&work->references, 1);
    return (struct principal){.client = client, .work = work};
}

struct principal principal_hold(struct principal principal) {
    if (principal.key) key_hold(principal.key);
    if (principal.work) atomic_fetch_add(&principal.work->references, 1);
    return principal;
}

void principal_release(struct principal *principal) {
    key_release(principal->key);
    if (principal->work && atomic_fetch_sub(&principal->work->references, 1) == 1)
        free(principal->work);
    *principal = (struct principal){0};
}

bool principal_scope(const struct principal *principal, bool of_filter, struct buffer *out) {
    const struct key *key = principal->key;
    const struct filter *sees = principal_filter(principal);
    if (key == NULL || (of_filter && sees == NULL)) return false;
    if (!of_filter) buffer_append(out, key->hash, sizeof key->hash);
    buffer_append_string(out, filter_text(sees));
    return true;
}

bool principal_is_late(const struct principal *principal, double now) {
    return principal->deadline > 0 && now >= principal->deadline;
}

void principal_charge(const struct principal *principal, int64_t tokens_read,
                      int64_t tokens_written) {
    if (principal->key) key_charge(principal->key, tokens_read + tokens_written);
    if (principal->work == NULL) return;
    atomic_fetch_add(&principal->work->tokens_read, tokens_read);
    atomic_fetch_add(&principal->work->tokens_written, tokens_written);
}
