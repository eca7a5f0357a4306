/* server/host/prompt/passage_order.c: see passage_order.h. */
#include "server/host/prompt/passage_order.h"

#include <stdlib.h>
#include <string.h>

float hit_score(const struct hit *hit) {
    if (hit->relevance >= 0) return hit->relevance;
    return hit->worth.joined ? hit->worth.total : hit->similarity;
}

/* The passages of the document that list [n] begins with. */
static int count_document(const struct hit *list, int n) {
    int i = 1;
    while (i < n && strcmp(list[i].document, list[0].document) == 0) i++;
    return i;
}

static float score_document(const struct hit *list, int n) {
    float best = hit_score(&list[0]);
    for (int i = 1; i < n; i++)
        if (hit_score(&list[i]) > best) best = hit_score(&list[i]);
    return best;
}

/* The chain with n passages of a document more. */
static struct turn_key add_document(struct turn_key key, const struct hit *list, int n) {
    key = turn_key_add(key, (struct text_span){list[0].document, strlen(list[0].document)});
    for (int i = 0; i < n; i++) {
        uint64_t places[] = {list[i].start, list[i].end};
        key = turn_key_add(key, (struct text_span){(const char *)places, sizeof places});
    }
    return key;
}

static bool is_known(const struct passage_order *order, struct turn_key key) {
    struct read_turn *turn = conversations_find(order->known, key);
    bool known = turn != NULL;
    read_turn_release(turn);
    return known;
}

static float best_score(const struct hit *list, int n) {
    float best = score_document(list, count_document(list, n));
    for (int i = 0; i < n; i += count_document(list + i, n - i)) {
        float score = score_document(list + i, count_document(list + i, n - i));
        if (score > best) best = score;
    }
    return best;
}

/* Where the document begins that goes first among list [n]; *key is the chain, and then that with
 * the document. */
static int choose_next(const struct passage_order *order, const struct hit *list, int n,
                       struct turn_key *key) {
    float least = best_score(list, n) - (float)order->distance;
    struct turn_key first = add_document(*key, list, count_document(list, n));
    for (int i = 0; i < n; i += count_document(list + i, n - i)) {
        int passages = count_document(list + i, n - i);
        struct turn_key next = add_document(*key, list + i, passages);
        if (score_document(list + i, passages) < least || !is_known(order, next)) continue;
        *key = next;
        return i;
    }
    *key = first;
    return 0;
}

/* Moves list [at, at + n) to its front. */
static void move_first(struct hit *list, int at, int n) {
    struct hit *moved = xcalloc((size_t)n, sizeof *moved);
    memcpy(moved, list + at, (size_t)n * sizeof *list);
    memmove(list + n, list, (size_t)at * sizeof *list);
    memcpy(list, moved, (size_t)n * sizeof *list);
    free(moved);
}

void passage_order_choose(const struct passage_order *order, struct hit *list, int n) {
    struct turn_key key = order->before;
    if (order->known == NULL) return;
    for (int i = 0; i < n; i += count_document(list + i, n - i)) {
        int next = choose_next(order, list + i, n - i, &key);
        move_first(list + i, next, count_document(list + i + next, n - i - next));
    }
}

void passage_order_note(const struct passage_order *order, const struct hit *list, int n) {
    struct turn_key key = order->before;
    if (order->known == NULL) return;
    for (int i = 0; i < n; i += count_document(list + i, n - i)) {
        key = add_document(key, list + i, count_document(list + i, n - i));
        conversations_put(order->known, read_turn_open(key));
    }
}
