/* retro/grammar/automaton_intern.c: equal things get equal numbers. See automaton.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/automaton.h"

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15;
    return h ^ h >> 29;
}

/* Counts memory that is about to be taken. */
static void use_bytes(struct automaton *m, size_t bytes) {
    m->bytes += bytes;
    if (m->bytes > m->most_bytes) m->full = true;
}

/* Tables. */

void automaton_table_free(struct automaton_table *t) {
    free(t->slots);
    *t = (struct automaton_table){0};
}

static void table_put(struct automaton_table *t, uint64_t hash, int number) {
    size_t at = hash & (t->size - 1);
    while (t->slots[2 * at] >= 0) at = (at + 1) & (t->size - 1);
    t->slots[2 * at] = number;
    t->slots[2 * at + 1] = (int)(hash >> 32 & 0x7FFFFFFF);
}

/* Makes room for one more; the hash of each is computed anew. */
static void table_grow(struct automaton *m, struct automaton_table *t,
                       uint64_t (*hash_of)(const struct automaton *m, int number)) {
    struct automaton_table old = *t;
    if (2 * (t->used + 1) <= t->size) return;
    t->size = old.size ? 2 * old.size : 64;
    t->slots = xmalloc(2 * t->size * sizeof *t->slots);
    memset(t->slots, 0xFF, 2 * t->size * sizeof *t->slots);
    use_bytes(m, (t->size - old.size) * 2 * sizeof *t->slots);
    for (size_t i = 0; i < old.size; i++)
        if (old.slots[2 * i] >= 0) table_put(t, hash_of(m, old.slots[2 * i]), old.slots[2 * i]);
    free(old.slots);
}

/* The next number in the table that may be what the hash stands for, from slot *at on; -1: there is none. */
static int table_find(const struct automaton_table *t, uint64_t hash, size_t *at) {
    for (;; (*at)++) {
        size_t slot = *at & (t->size - 1);
        if (t->slots[2 * slot] < 0) return -1;
        if (t->slots[2 * slot + 1] != (int)(hash >> 32 & 0x7FFFFFFF)) continue;
        (*at)++;
        return t->slots[2 * slot];
    }
}

static void table_add(struct automaton *m, struct automaton_table *t, int number,
                      uint64_t (*hash_of)(const struct automaton *m, int number)) {
    table_grow(m, t, hash_of);
    table_put(t, hash_of(m, number), number);
    t->used++;
}

/* A row of classes whose successors are not known. */
static int *make_row(struct automaton *m) {
    size_t bytes = (size_t)m->program->n_classes * sizeof(int);
    use_bytes(m, bytes);
    return memset(xmalloc(bytes), 0xFF, bytes);
}

/* States. */

static uint64_t hash_places(const struct automaton_place *places, int n) {
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++) h = mix(mix(h, (uint64_t)places[i].node), (uint64_t)places[i].value);
    return h;
}

/* NULL of a state without places: there may be no places at all. */
static const struct automaton_place *places_of(const struct automaton *m, int number) {
    const struct automaton_state *s = &m->states[number];
    return s->n > 0 ? m->places + s->first : NULL;
}

static uint64_t hash_state(const struct automaton *m, int number) {
    return hash_places(places_of(m, number), m->states[number].n);
}

static bool same_state(const struct automaton *m, int number) {
    const struct automaton_state *s = &m->states[number];
    size_t bytes = (size_t)s->n * sizeof *m->places;
    return s->n == m->n_closure && (s->n == 0 || memcmp(places_of(m, number), m->closure, bytes) == 0);
}

static int state_add(struct automaton *m) {
    struct automaton_state s = {.first = m->n_places, .n = m->n_closure, .near = -1, .next = make_row(m)};
    use_bytes(m, sizeof s + (size_t)m->n_closure * sizeof *m->places);
    for (int i = 0; i < m->n_closure; i++) {
        m->places = xgrow(m->places, m->n_places, &m->places_capacity, sizeof *m->places);
        m->places[m->n_places] = m->closure[i];
        m->n_places++;
        if (m->program->nodes[m->closure[i].node].kind == NODE_ACCEPT) s.accepts = true;
    }
    s.over = s.accepts && s.n == 1;
    m->states = xgrow(m->states, m->n_states, &m->states_capacity, sizeof *m->states);
    m->states[m->n_states] = s;
    m->n_states++;
    return m->n_states - 1;
}

int automaton_intern_state(struct automaton *m) {
    uint64_t hash = hash_places(m->closure, m->n_closure);
    size_t at = hash;
    table_grow(m, &m->state_table, hash_state);
    for (int found; (found = table_find(&m->state_table, hash, &at)) >= 0;)
        if (same_state(m, found)) return found;
    int number = state_add(m);
    table_add(m, &m->state_table, number, hash_state);
    return number;
}

/* Frames. */

static uint64_t hash_pair(int state, int below) { return mix(mix(3, (uint64_t)state), (uint64_t)below); }
static uint64_t hash_frame(const struct automaton *m, int number) {
    return hash_pair(m->frames[number].state, m->frames[number].below);
}

int automaton_intern_frame(struct automaton *m, int state, int below) {
    const struct automaton_state *s = &m->states[state];
    if (s->over && below != FRAME_BOTTOM) return below;
    uint64_t hash = hash_pair(state, below);
    size_t at = hash;
    table_grow(m, &m->frame_table, hash_frame);
    for (int found; (found = table_find(&m->frame_table, hash, &at)) >= 0;)
        if (m->frames[found].state == state && m->frames[found].below == below) return found;
    bool finishes = s->accepts && (below == FRAME_BOTTOM || m->frames[below].finishes);
    use_bytes(m, sizeof *m->frames);
    m->frames = xgrow(m->frames, m->n_frames, &m->frames_capacity, sizeof *m->frames);
    m->frames[m->n_frames] = (struct automaton_frame){state, below, finishes, -1};
    m->n_frames++;
    table_add(m, &m->frame_table, m->n_frames - 1, hash_frame);
    return m->n_frames - 1;
}

/* Configurations. */

static uint64_t hash_stacks(const int *stacks, int n) {
    uint64_t h = (uint64_t)n + 7;
    for (int i = 0; i < n; i++) h = mix(h, (uint64_t)stacks[i]);
    return h;
}

static uint64_t hash_config(const struct automaton *m, int number) {
    const struct automaton_config *c = &m->configs[number];
    return hash_stacks(c->n > 0 ? m->stacks + c->first : NULL, c->n);
}

static int compare_frames(const void *x, const void *y) {
    int a = *(const int *)x, b = *(const int *)y;
    return (a > b) - (a < b);
}

static void sort_gathered(struct automaton *m) {
    int n = 0;
    if (m->n_gathered > 1) qsort(m->gathered, (size_t)m->n_gathered, sizeof *m->gathered, compare_frames);
    for (int i = 0; i < m->n_gathered; i++) {
        if (n > 0 && m->gathered[n - 1] == m->gathered[i]) continue;
        m->gathered[n] = m->gathered[i];
        n++;
    }
    m->n_gathered = n;
}

static int config_add(struct automaton *m) {
    struct automaton_config c = {.first = m->n_stacks, .n = m->n_gathered, .near = -1, .next = make_row(m)};
    use_bytes(m, sizeof c + (size_t)m->n_gathered * sizeof *m->stacks);
    for (int i = 0; i < m->n_gathered; i++) {
        m->stacks = xgrow(m->stacks, m->n_stacks, &m->stacks_capacity, sizeof *m->stacks);
        m->stacks[m->n_stacks] = m->gathered[i];
        m->n_stacks++;
        c.finishes = c.finishes || m->frames[m->gathered[i]].finishes;
    }
    m->configs = xgrow(m->configs, m->n_configs, &m->configs_capacity, sizeof *m->configs);
    m->configs[m->n_configs] = c;
    m->n_configs++;
    return m->n_configs - 1;
}

int automaton_intern_config(struct automaton *m) {
    sort_gathered(m);
    uint64_t hash = hash_stacks(m->gathered, m->n_gathered);
    size_t at = hash, bytes = (size_t)m->n_gathered * sizeof *m->gathered;
    table_grow(m, &m->config_table, hash_config);
    for (int found; (found = table_find(&m->config_table, hash, &at)) >= 0;) {
        const struct automaton_config *c = &m->configs[found];
        if (c->n == m->n_gathered && (bytes == 0 || memcmp(m->stacks + c->first, m->gathered, bytes) == 0))
            return found;
    }
    int number = config_add(m);
    table_add(m, &m->config_table, number, hash_config);
    return number;
}

/* Sets of members. */

static uint64_t hash_words(const uint64_t *words, int n) {
    uint64_t h = 11;
    for (int i = 0; i < n; i++) h = mix(h, words[i]);
    return h;
}

static uint64_t hash_seen(const struct automaton *m, int number) {
    return hash_words(m->seen + (size_t)number * (size_t)m->seen_words, m->seen_words);
}

int automaton_intern_seen(struct automaton *m, const uint64_t *seen) {
    uint64_t hash = hash_words(seen, m->seen_words);
    size_t at = hash, words = (size_t)m->seen_words, bytes = words * sizeof *seen;
    table_grow(m, &m->seen_table, hash_seen);
    for (int found; (found = table_find(&m->seen_table, hash, &at)) >= 0;)
        if (memcmp(m->seen + (size_t)found * words, seen, bytes) == 0) return found;
    use_bytes(m, bytes);
    m->seen = xgrow(m->seen, m->n_seen, &m->seen_capacity, bytes);
    memcpy(m->seen + (size_t)m->n_seen * words, seen, bytes);
    m->n_seen++;
    table_add(m, &m->seen_table, m->n_seen - 1, hash_seen);
    return m->n_seen - 1;
}
