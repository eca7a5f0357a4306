/* server/threads/turns.h: whose turn it is to be written. The prompts of one request wait in a line
 * of their own; a free sequence goes to the client with the fewest sequences, of its requests to
 * the one with the fewest, and among equals to the one whose latest turn, or whose coming, is
 * longest ago. So an array of prompts takes what nobody else wants, gives back one sequence after
 * the other as soon as somebody waits, and starves nobody. One thread at a time.
 */
#pragma once

#include "config/base/base.h"

/* One prompt that waits or is written; embedded in what the caller keeps of it. */
struct turn {
    struct turn *next;
    struct turn_line *line;
};

struct turns {
    struct turn_line *lines, **lines_end; /* requests that are not over, in order of arrival */
    struct turn_client *clients;          /* those of these requests */
    int n_waiting;
    uint64_t serial; /* of turns and of requests that came */
};

void turns_open(struct turns *turns);
void turns_close(struct turns *turns); /* nobody waits or is written any more */
/* The n >= 1 prompts of one request wait, in this order. */
void turns_add(struct turns *turns, uint64_t client, struct turn *const *items, int n);
/* The next one to be written, NULL when nobody waits. It counts for its request and client until
 * turns_end. */
struct turn *turns_take(struct turns *turns);
/* The same among clients of whom fewer than `most` are written. */
struct turn *turns_take_below(struct turns *turns, int most);
void turns_end(struct turns *turns, struct turn *item);
/* Those that `leaves` picks of the ones that wait, as a list; they are forgotten here. */
struct turn *turns_drop(struct turns *turns, bool (*leaves)(void *context, const struct turn *item),
                        void *context);
