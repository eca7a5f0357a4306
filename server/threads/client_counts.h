/* server/threads/client_counts.h: how many prompts each client has in flight: as many entries as
 * there are such clients, so those that have none take no memory. Whoever owns it guards it. */
#pragma once

#include "config/base/base.h"

/* Zero-initialise. */
struct client_counts {
    struct client_count {
        uint64_t client;
        int n;
    } * items;
    int n, capacity;
};

void client_counts_add(struct client_counts *counts, uint64_t client, int n);
void client_counts_take(struct client_counts *counts, uint64_t client,
                        int n); /* of those that were added */
int client_counts_of(const struct client_counts *counts, uint64_t client);
void client_counts_free(struct client_counts *counts);
