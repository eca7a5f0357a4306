/* server/doors/kept/kept.h: texts that are kept in memory for those who may ask for them again, by
 * ids that cannot be guessed. Each owner has limits of its own, so that none can push out what
 * another has. Any thread. */
#pragma once

#include "config/base/buffer.h"
#include "server/access/principal.h"

struct kept_limits {
    int items;    /* of one owner; 0: nothing is kept */
    size_t bytes; /* likewise */
    int seconds;  /* that an item is kept */
};

struct kept;

struct kept *kept_open(struct kept_limits limits);
void kept_close(struct kept *kept); /* of NULL: nothing */

/* The key, or all clients of a server without keys. */
uint64_t kept_owner(const struct principal *principal);
/* Takes the text. The owner's oldest go where there is no room; false: it is larger than all that
 * the owner may have. */
bool kept_put(struct kept *kept, uint64_t owner, const char *id, struct buffer *text);
/* Appends the text; false: the owner has none of this id. */
bool kept_get(struct kept *kept, uint64_t owner, const char *id, struct buffer *out);
bool kept_delete(struct kept *kept, uint64_t owner, const char *id);
