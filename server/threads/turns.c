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

void turns_open(struct turns *t) {
    *t = (struct turns){0};
    t->lines_end = &t->lines;
}

void turns_close(struct turns *t) { CHECK(t->lines == NULL && t->clients == NULL); }

static struct turn_client *client_find(struct turns *t, uint64_t key) {
    struct turn_client *client = t->clients;
    while (client && client->key != key) client = client->next;
    if (client) return client;
    client = xcalloc(1, sizeof *client);
    client->key = key;
    client->since = t->serial;
    client->next = t->clients;
    t->clients = client;
    return client;
}

static void client_forget(struct turns *t, struct turn_client *client) {
    struct turn_client **at = &t->clients;
    while (*at != client) at = &(*at)->next;
    *at = client->next;
    free(client);
}

/* A request of which nothing waits and nothing is written is over. */
static void line_forget_when_over(struct turns *t, struct turn_line *line) {
    struct turn_line **at = &t->lines;
    if (line->first || line->n_taken > 0) return;

    while (*at != line) at = &(*at)->next;
    *at = line->next;
    if (*at == NULL) t->lines_end = at;

    line->client->n_lines--;
    if (line->client->n_lines == 0) client_forget(t, line->client);
    free(line);
}

void turns_add(struct turns *t, uint64_t client, struct turn *const *items, int n) {
    struct turn_line *line = xcalloc(1, sizeof *line);
    t->serial++;
    line->since = t->serial;
    line->client = client_find(t, client);
    line->client->n_lines++;
    line->end = &line->first;
    for (int i = 0; i < n; i++) {
        *items[i] = (struct turn){.line = line};
        *line->end = items[i];
        line->end = &items[i]->next;
    }
    t->n_waiting += n;
    *t->lines_end = line;
    t->lines_end = &line->next;
}

static bool line_before(const struct turn_line *a, const struct turn_line *b) {
    if (a->client->n_taken != b->client->n_taken) return a->client->n_taken < b->client->n_taken;
    if (a->client->since != b->client->since) return a->client->since < b->client->since;
    if (a->n_taken != b->n_taken) return a->n_taken < b->n_taken;
    return a->since < b->since;
}

struct turn *turns_take_below(struct turns *t, int most) {
    struct turn_line *best = NULL;
    for (struct turn_line *line = t->lines; line; line = line->next)
        if (line->first && (best == NULL || line_before(line, best))) best = line;
    if (best == NULL || best->client->n_taken >= most) return NULL;

    struct turn *item = best->first;
    best->first = item->next;
    if (best->first == NULL) best->end = &best->first;
    item->next = NULL;
    t->serial++;
    best->since = best->client->since = t->serial;
    best->n_taken++;
    best->client->n_taken++;
    t->n_waiting--;
    return item;
}

struct turn *turns_take(struct turns *t) {
    return turns_take_below(t, INT_MAX);
}

void turns_end(struct turns *t, struct turn *item) {
    item->line->n_taken--;
    item->line->client->n_taken--;
    line_forget_when_over(t, item->line);
}

/* Moves those of one line that leave to the list. */
static void line_drop(struct turns *t, struct turn_line *line, struct turn **list,
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
        t->n_waiting--;
    }
    line->end = at;
}

struct turn *turns_drop(struct turns *t, bool (*leaves)(void *context, const struct turn *item), void *context) {
    struct turn *list = NULL;
    struct turn_line *line = t->lines;
    while (line) {
        struct turn_line *next = line->next;
        line_drop(t, line, &list, leaves, context);
        line_forget_when_over(t, line);
        line = next;
    }
    return list;
}
