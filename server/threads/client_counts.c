/* server/threads/client_counts.c: see client_counts.h. */
#include "server/threads/client_counts.h"

#include <stdlib.h>

static int client_find(const struct client_counts *s, uint64_t client) {
    int i = 0;
    while (i < s->n && s->items[i].client != client) i++;
    return i;
}

void client_counts_add(struct client_counts *s, uint64_t client, int n) {
    int i = client_find(s, client);
    if (i == s->n) {
        s->items = xgrow(s->items, s->n, &s->capacity, sizeof *s->items);
        s->items[i] = (struct client_count){.client = client};
        s->n++;
    }
    s->items[i].n += n;
}

void client_counts_take(struct client_counts *s, uint64_t client, int n) {
    int i = client_find(s, client);
    CHECK(i < s->n && s->items[i].n >= n);
    s->items[i].n -= n;
    if (s->items[i].n > 0) return;
    s->n--;
    s->items[i] = s->items[s->n];
}

int client_counts_of(const struct client_counts *s, uint64_t client) {
    int i = client_find(s, client);
    return i < s->n ? s->items[i].n : 0;
}

void client_counts_free(struct client_counts *s) {
    free(s->items);
    *s = (struct client_counts){0};
}
