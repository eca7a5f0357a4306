/* server/threads/turns.c: lines of waiting prompts, and whose turn it is. See turns.h. */
#include "server/threads/turns.h"

#include <limits.h>
#include <stdlib.h>

struct turn_client {
    uint64_t key;
    int n_lines, n_taken;
    uint64_t since; /* serial of its latest turn, or of its coming */
    struct turn_client *next;
};

/* One request. */
struct turn_line {
    struct turn_client *client;
    struct turn *first, **end; /* who waits */
    int n_taken;
    uint64_t since; /* as a client's */
    struct turn_line *next;
};

void turns_open(struct turns *turns) {
    *turns = (struct turns){0};
    turns->lines_end = &turns->lines;
}

void turns_close(struct turns *turns) { CHECK(turns->lines == NULL && turns->clients == NULL); }

static struct turn_client *client_find(struct turns *turns, uint64_t key) {
    struct turn_client *client = turns->clients;
    while (client && client->key != key) client = client->next;
    if (client) return client;
    client = xcalloc(1, sizeof *client);
    client->key = key;
    client->since = turns->serial;
    client->next = turns->clients;
    turns->clients = client;
    return client;
}

static void client_forget(struct turns *turns, struct turn_client *client) {
    struct turn_client **at = &turns->clients;
    while (*at != client) at = &(*at)->next;
    *at = client->next;
    free(client);
}

/* A request of which nothing waits and nothing is written is over. */
static void line_forget_when_over(struct turns *turns, struct turn_line *line) {
    struct turn_line **at = &turns->lines;
    if (line->first || line->n_taken > 0) return;

    while (*at != line) at = &(*at)->next;
    *at = line->next;
    if (*at == NULL) turns->lines_end = at;

    line->client->n_lines--;
    if (line->client->n_lines == 0) client_forget(turns, line->client);
    free(line);
}

void turns_add(struct turns *turns, uint64_t client, struct turn *const *items, int n) {
    struct turn_line *line = xcalloc(1, sizeof *line);
    turns->serial++;
    line->since = turns->serial;
    line->client = client_find(turns, client);
    line->client->n_lines++;
    line->end = &line->first;
    for (int i = 0; i < n; i++) {
        *items[i] = (struct turn){.line = line};
        *line->end = items[i];
        line->end = &items[i]->next;
    }
    turns->n_waiting += n;
    *turns->lines_end = line;
    turns->lines_end = &line->next;
}

static bool line_before(const struct turn_line *left, const struct turn_line *right) {
    if (left->client->n_taken != right->client->n_taken)
        return left->client->n_taken < right->client->n_taken;
    if (left->client->since != right->client->since)
        return left->client->since < right->client->since;
    if (left->n_taken != right->n_taken) return left->n_taken < right->n_taken;
    return left->since < right->since;
}

struct turn *turns_take_below(struct turns *turns, int most) {
    struct turn_line *best = NULL;
    for (struct turn_line *line = turns->lines; line; line = line->next)
        if (line->first && (best == NULL || line_before(line, best))) best = line;
    if (best == NULL || best->client->n_taken >= most) return NULL;

    struct turn *item = best->first;
    best->first = item->next;
    if (best->first == NULL) best->end = &best->first;
    item->next = NULL;
    turns->serial++;
    best->since = best->client->since = turns->serial;
    best->n_taken++;
    best->client->n_taken++;
    turns->n_waiting--;
    return item;
}

struct turn *turns_take(struct turns *turns) {
    return turns_take_below(turns, INT_MAX);
}

void turns_end(struct turns *turns, struct turn *item) {
    item->line->n_taken--;
    item->line->client->n_taken--;
    line_forget_when_over(turns, item->line);
}

/* Moves those of one line that leave to the list. */
static void line_drop(struct turns *turns, struct turn_line *line, struct turn **list,
                      bool (*leaves)(void *context, const struct turn *item), void *context) {
    struct turn **at = &line->first;
    while (*at) {
        struct turn *item = *at;
        if (!leaves(context, item)) {
            at = &item->next;
            continue;
        }
        *at = item->next;
        item->next = *list;
        *list = item;
        turns->n_waiting--;
    }
    line->end = at;
}

struct turn *turns_drop(struct turns *turns, bool (*leaves)(void *context, const struct turn *item),
                        void *context) {
    struct turn *list = NULL;
    struct turn_line *line = turns->lines;
    while (line) {
        struct turn_line *next = line->next;
        line_drop(turns, line, &list, leaves, context);
        line_forget_when_over(turns, line);
        line = next;
    }
    return list;
}
