/* server/threads/client_shares.c: see client_shares.h. */
#include "server/threads/client_shares.h"

#include <stdlib.h>

static int share_find(const struct shares *s, uint64_t client) {
    int i = 0;
    while (i < s->n && s->items[i].client != client) i++;
    return i;
}

void shares_add(struct shares *s, uint64_t client, int n) {
    int i = share_find(s, client);
    if (i == s->n) {
        s->items = xgrow(s->items, s->n, &s->capacity, sizeof *s->items);
        s->items[i] = (struct share){.client = client};
        s->n++;
    }
    s->items[i].n += n;
}

void shares_take(struct shares *s, uint64_t client, int n) {
    int i = share_find(s, client);
    CHECK(i < s->n && s->items[i].n >= n);
    s->items[i].n -= n;
    if (s->items[i].n > 0) return;
    s->n--;
    s->items[i] = s->items[s->n];
}

int shares_of(const struct shares *s, uint64_t client) {
    int i = share_find(s, client);
    return i < s->n ? s->items[i].n : 0;
}

void shares_free(struct shares *s) {
    free(s->items);
    *s = (struct shares){0};
}
