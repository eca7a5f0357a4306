/* server/access/principal.c: see principal.h. */
#include "server/access/principal.h"

#include <stdlib.h>

struct principal principal_open(uint64_t client) {
    struct principal_work *work = xcalloc(1, sizeof *work);
    atomic_init(&work->references, 1);
    return (struct principal){.client = client, .work = work};
}

struct principal principal_hold(struct principal p) {
    if (p.key) key_hold(p.key);
    if (p.work) atomic_fetch_add(&p.work->references, 1);
    return p;
}

void principal_release(struct principal *p) {
    key_release(p->key);
    if (p->work && atomic_fetch_sub(&p->work->references, 1) == 1) free(p->work);
    *p = (struct principal){0};
}

bool principal_is_late(const struct principal *p, double now) { return p->deadline > 0 && now >= p->deadline; }

void principal_charge(const struct principal *p, int64_t tokens_read, int64_t tokens_written) {
    if (p->key) key_charge(p->key, tokens_read + tokens_written);
    if (p->work == NULL) return;
    atomic_fetch_add(&p->work->tokens_read, tokens_read);
    atomic_fetch_add(&p->work->tokens_written, tokens_written);
}
