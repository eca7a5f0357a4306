/* server/threads/client_counts.c: see client_counts.h. */
#include "server/threads/client_counts.h"

#include <stdlib.h>

static int client_find(const struct client_counts *counts, uint64_t client) {
    int i = 0;
    while (i < counts->n && counts->items[i].client != client) i++;
    return i;
}

void client_counts_add(struct client_counts *counts, uint64_t client, int n) {
    int i = client_find(counts, client);
    if (i == counts->n) {
        counts->items = xgrow(counts->items, counts->n, &counts->capacity, sizeof *counts->items);
        counts->items[i] = (struct client_count){.client = client};
        counts->n++;
    }
    counts->items[i].n += n;
}

void client_counts_take(struct client_counts *counts, uint64_t client, int n) {
    int i = client_find(counts, client);
    CHECK(i < counts->n && counts->items[i].n >= n);
    counts->items[i].n -= n;
    if (counts->items[i].n > 0) return;
    counts->n--;
    counts->items[i] = counts->items[counts->n];
}

int client_counts_of(const struct client_counts *counts, uint64_t client) {
    int i = client_find(counts, client);
    return i < counts->n ? counts->items[i].n : 0;
}

void client_counts_free(struct client_counts *counts) {
    free(counts->items);
    *counts = (struct client_counts){0};
}
