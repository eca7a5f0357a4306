/* server/schedule/drafts/draft_table.c: see draft_table.h. */
#include "server/schedule/drafts/draft_table.h"

#include <stdlib.h>

enum { LEAST_BITS = 8, LEAST_CAPACITY = 256 };

void draft_table_close(struct draft_table *table) {
    free(table->tokens);
    free(table->before);
    free(table->latest);
    free(table->marks);
    *table = (struct draft_table){0};
}

/* Of the DRAFT_KEY tokens before `place`: Fibonacci hashing of both. */
static uint32_t hash_key(const struct draft_table *table, int32_t first, int32_t second) {
    uint64_t key = (uint64_t)(uint32_t)first << 32 | (uint32_t)second;
    return (uint32_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - table->latest_bits));
}

static bool has_key(const struct draft_table *table, int place) {
    return place >= DRAFT_KEY && table->tokens[place - 2] >= 0 && table->tokens[place - 1] >= 0;
}

/* `place` is the latest of its key. */
static void chain_place(struct draft_table *table, int place) {
    if (!has_key(table, place)) return;
    uint32_t slot = hash_key(table, table->tokens[place - 2], table->tokens[place - 1]);
    table->before[place] = table->latest[slot];
    table->latest[slot] = place;
}

/* As many slots as places, so that chains stay short. */
static void grow_latest(struct draft_table *table) {
    int bits = max_int(table->latest_bits, LEAST_BITS);
    while (((int64_t)1 << bits) < table->capacity) bits++;
    if (bits == table->latest_bits) return;
    table->latest_bits = bits;
    size_t slots = (size_t)1 << bits;
    table->latest = xrealloc(table->latest, slots * sizeof *table->latest);
    for (size_t i = 0; i < slots; i++) table->latest[i] = -1;
    for (int place = 0; place < table->n; place++) chain_place(table, place);
}

static void reserve(struct draft_table *table, int more) {
    if (more <= table->capacity - table->n) return;
    int capacity = max_int(table->capacity, LEAST_CAPACITY);
    while (capacity - table->n < more) capacity *= 2;
    table->capacity = capacity;
    table->tokens = xrealloc(table->tokens, (size_t)capacity * sizeof *table->tokens);
    table->before = xrealloc(table->before, (size_t)capacity * sizeof *table->before);
    grow_latest(table);
}

/* A place is chained once the token behind it is there, so no place is found before it has one. */
static void append(struct draft_table *table, int32_t token) {
    table->tokens[table->n] = token < 0 ? -1 : token;
    table->before[table->n] = -1;
    chain_place(table, table->n);
    table->n++;
}

static void mark_kind(struct draft_table *table, enum draft_kind kind) {
    if (table->n_marks > 0 && table->marks[table->n_marks - 1].kind == kind) return;
    size_t n = (size_t)table->n_marks + 1;
    table->marks = xrealloc(table->marks, n * sizeof *table->marks);
    table->marks[table->n_marks] = (struct draft_mark){table->n, kind};
    table->n_marks++;
}

void draft_table_add(struct draft_table *table, enum draft_kind kind, const int32_t *tokens,
                     int n) {
    reserve(table, n + 2);
    append(table, -1);
    mark_kind(table, kind);
    for (int i = 0; i < n; i++) append(table, tokens[i]);
    append(table, -1);
}

void draft_table_write(struct draft_table *table, enum draft_kind kind, int32_t token) {
    reserve(table, 1);
    mark_kind(table, kind);
    append(table, token);
    table->recent[table->n_recent % DRAFT_RECENT] = token < 0 ? -1 : token;
    table->n_recent++;
}

static int32_t recent(const struct draft_table *table, int back) {
    return table->recent[(table->n_recent - 1 - back) % DRAFT_RECENT];
}

/* How many of the text's last tokens stand before `place`. */
static int count_same(const struct draft_table *table, int place) {
    int most = min_int(min_int(table->n_recent, DRAFT_RECENT), place), n = 0;
    while (n < most && recent(table, n) >= 0 && table->tokens[place - 1 - n] == recent(table, n))
        n++;
    return n;
}

struct draft_match draft_table_match(const struct draft_table *table) {
    struct draft_match best = {0, 0};
    if (table->n_recent < DRAFT_KEY || recent(table, 0) < 0 || recent(table, 1) < 0) return best;
    int place = table->latest[hash_key(table, recent(table, 1), recent(table, 0))];
    for (int i = 0; i < DRAFT_WALK && place >= 0 && best.length < DRAFT_RECENT; i++) {
        int length = table->tokens[place] < 0 ? 0 : count_same(table, place);
        if (length >= DRAFT_KEY && length > best.length) best = (struct draft_match){place, length};
        place = table->before[place];
    }
    return best;
}

enum draft_kind draft_table_kind(const struct draft_table *table, int place) {
    int low = 0, high = table->n_marks;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table->marks[middle].place <= place)
            low = middle;
        else
            high = middle;
    }
    return table->marks[low].kind;
}

int draft_table_begin(const struct draft_table *table, enum draft_kind kind) {
    for (int i = 0; i < table->n_marks; i++)
        if (table->marks[i].kind == kind) return table->marks[i].place;
    return -1;
}

size_t draft_table_bytes(const struct draft_table *table) {
    size_t places = (size_t)table->capacity * (sizeof *table->tokens + sizeof *table->before);
    size_t slots = table->latest ? ((size_t)1 << table->latest_bits) * sizeof *table->latest : 0;
    return places + slots + (size_t)table->n_marks * sizeof *table->marks;
}
