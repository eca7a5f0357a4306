/* server/threads/client_shares.h: how many prompts each client has in flight: as many entries as there are such
 * clients, so those that have none take no memory. Whoever owns it guards it. */
#pragma once

#include "config/base/base.h"

/* Zero-initialise. */
struct shares {
    struct share {
        uint64_t client;
        int n;
    } * items;
    int n, capacity;
};

void shares_add(struct shares *s, uint64_t client, int n);
void shares_take(struct shares *s, uint64_t client, int n); /* of those that were added */
int shares_of(const struct shares *s, uint64_t client);
void shares_free(struct shares *s);
