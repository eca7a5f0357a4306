/* retro/grammar/automaton_intern.c: equal things get equal numbers. See automaton.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/automaton.h"

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15;
    return h ^ h >> 29;
}

/* Counts memory that is about to be taken. */
static void use_bytes(struct automaton *automaton, size_t bytes) {
    automaton->bytes += bytes;
    if (automaton->bytes > automaton->most_bytes) automaton->full = true;
}

/* Tables. */

void automaton_table_free(struct automaton_table *table) {
    free(table->slots);
    *table = (struct automaton_table){0};
}

static void table_put(struct automaton_table *table, uint64_t hash, int number) {
    size_t at = hash & (table->size - 1);
    while (table->slots[2 * at] >= 0) at = (at + 1) & (table->size - 1);
    table->slots[2 * at] = number;
    table->slots[2 * at + 1] = (int)(hash >> 32 & 0x7FFFFFFF);
}

/* Makes room for one more; the hash of each is computed anew. */
static void table_grow(struct automaton *the_automaton, struct automaton_table *table,
                       uint64_t (*hash_of)(const struct automaton *the_automaton, int number)) {
    struct automaton_table old = *table;
    if (2 * (table->used + 1) <= table->size) return;
    table->size = old.size ? 2 * old.size : 64;
    table->slots = xmalloc(2 * table->size * sizeof *table->slots);
    memset(table->slots, 0xFF, 2 * table->size * sizeof *table->slots);
    use_bytes(the_automaton, (table->size - old.size) * 2 * sizeof *table->slots);
    for (size_t i = 0; i < old.size; i++)
        if (old.slots[2 * i] >= 0)
            table_put(table, hash_of(the_automaton, old.slots[2 * i]), old.slots[2 * i]);
    free(old.slots);
}

/* The next number in the table that may be what the hash stands for, from slot *at on; -1: there is
 * none. */
static int table_find(const struct automaton_table *table, uint64_t hash, size_t *at) {
    for (;; (*at)++) {
        size_t slot = *at & (table->size - 1);
        if (table->slots[2 * slot] < 0) return -1;
        if (table->slots[2 * slot + 1] != (int)(hash >> 32 & 0x7FFFFFFF)) continue;
        (*at)++;
        return table->slots[2 * slot];
    }
}

static void table_add(struct automaton *the_automaton, struct automaton_table *table, int number,
                      uint64_t (*hash_of)(const struct automaton *the_automaton, int number)) {
    table_grow(the_automaton, table, hash_of);
    table_put(table, hash_of(the_automaton, number), number);
    table->used++;
}

/* A row of classes whose successors are not known. */
static int *make_row(struct automaton *automaton) {
    size_t bytes = (size_t)automaton->program->n_classes * sizeof(int);
    use_bytes(automaton, bytes);
    return memset(xmalloc(bytes), 0xFF, bytes);
}

/* States. */

static uint64_t hash_places(const struct automaton_place *places, int n) {
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++)
        h = mix(mix(h, (uint64_t)places[i].node), (uint64_t)places[i].value);
    return h;
}

/* NULL of a state without places: there may be no places at all. */
static const struct automaton_place *places_of(const struct automaton *automaton, int number) {
    const struct automaton_state *state = &automaton->states[number];
    return state->n > 0 ? automaton->places + state->first : NULL;
}

static uint64_t hash_state(const struct automaton *automaton, int number) {
    return hash_places(places_of(automaton, number), automaton->states[number].n);
}

static bool same_state(const struct automaton *automaton, int number) {
    const struct automaton_state *state = &automaton->states[number];
    size_t bytes = (size_t)state->n * sizeof *automaton->places;
    return state->n == automaton->n_closure &&
           (state->n == 0 || memcmp(places_of(automaton, number), automaton->closure, bytes) == 0);
}

static int state_add(struct automaton *automaton) {
    struct automaton_state state = {.first = automaton->n_places,
                                    .n = automaton->n_closure,
                                    .near = -1,
                                    .next = make_row(automaton)};
    use_bytes(automaton, sizeof state + (size_t)automaton->n_closure * sizeof *automaton->places);
    for (int i = 0; i < automaton->n_closure; i++) {
        automaton->places = xgrow(automaton->places, automaton->n_places,
                                  &automaton->places_capacity, sizeof *automaton->places);
        automaton->places[automaton->n_places] = automaton->closure[i];
        automaton->n_places++;
        if (automaton->program->nodes[automaton->closure[i].node].kind == NODE_ACCEPT)
            state.accepts = true;
    }
    state.over = state.accepts && state.n == 1;
    automaton->states = xgrow(automaton->states, automaton->n_states, &automaton->states_capacity,
                              sizeof *automaton->states);
    automaton->states[automaton->n_states] = state;
    automaton->n_states++;
    return automaton->n_states - 1;
}

int automaton_intern_state(struct automaton *automaton) {
    uint64_t hash = hash_places(automaton->closure, automaton->n_closure);
    size_t at = hash;
    table_grow(automaton, &automaton->state_table, hash_state);
    for (int found; (found = table_find(&automaton->state_table, hash, &at)) >= 0;)
        if (same_state(automaton, found)) return found;
    int number = state_add(automaton);
    table_add(automaton, &automaton->state_table, number, hash_state);
    return number;
}

/* Frames. */

static uint64_t hash_pair(int state, int below) {
    return mix(mix(3, (uint64_t)state), (uint64_t)below);
}
static uint64_t hash_frame(const struct automaton *automaton, int number) {
    return hash_pair(automaton->frames[number].state, automaton->frames[number].below);
}

int automaton_intern_frame(struct automaton *automaton, int state, int below) {
    const struct automaton_state *automaton_state = &automaton->states[state];
    if (automaton_state->over && below != FRAME_BOTTOM) return below;
    uint64_t hash = hash_pair(state, below);
    size_t at = hash;
    table_grow(automaton, &automaton->frame_table, hash_frame);
    for (int found; (found = table_find(&automaton->frame_table, hash, &at)) >= 0;)
        if (automaton->frames[found].state == state && automaton->frames[found].below == below)
            return found;
    bool finishes =
        automaton_state->accepts && (below == FRAME_BOTTOM || automaton->frames[below].finishes);
    use_bytes(automaton, sizeof *automaton->frames);
    automaton->frames = xgrow(automaton->frames, automaton->n_frames, &automaton->frames_capacity,
                              sizeof *automaton->frames);
    automaton->frames[automaton->n_frames] = (struct automaton_frame){state, below, finishes, -1};
    automaton->n_frames++;
    table_add(automaton, &automaton->frame_table, automaton->n_frames - 1, hash_frame);
    return automaton->n_frames - 1;
}

/* Configurations. */

static uint64_t hash_stacks(const int *stacks, int n) {
    uint64_t h = (uint64_t)n + 7;
    for (int i = 0; i < n; i++) h = mix(h, (uint64_t)stacks[i]);
    return h;
}

static uint64_t hash_config(const struct automaton *automaton, int number) {
    const struct automaton_config *config = &automaton->configs[number];
    return hash_stacks(config->n > 0 ? automaton->stacks + config->first : NULL, config->n);
}

static int compare_frames(const void *x, const void *y) {
    int a = *(const int *)x, b = *(const int *)y;
    return (a > b) - (a < b);
}

static void sort_gathered(struct automaton *automaton) {
    int n = 0;
    if (automaton->n_gathered > 1)
        qsort(automaton->gathered, (size_t)automaton->n_gathered, sizeof *automaton->gathered,
              compare_frames);
    for (int i = 0; i < automaton->n_gathered; i++) {
        if (n > 0 && automaton->gathered[n - 1] == automaton->gathered[i]) continue;
        automaton->gathered[n] = automaton->gathered[i];
        n++;
    }
    automaton->n_gathered = n;
}

static int config_add(struct automaton *automaton) {
    struct automaton_config config = {.first = automaton->n_stacks,
                                      .n = automaton->n_gathered,
                                      .near = -1,
                                      .next = make_row(automaton)};
    use_bytes(automaton, sizeof config + (size_t)automaton->n_gathered * sizeof *automaton->stacks);
    for (int i = 0; i < automaton->n_gathered; i++) {
        automaton->stacks = xgrow(automaton->stacks, automaton->n_stacks,
                                  &automaton->stacks_capacity, sizeof *automaton->stacks);
        automaton->stacks[automaton->n_stacks] = automaton->gathered[i];
        automaton->n_stacks++;
        config.finishes = config.finishes || automaton->frames[automaton->gathered[i]].finishes;
    }
    automaton->configs = xgrow(automaton->configs, automaton->n_configs,
                               &automaton->configs_capacity, sizeof *automaton->configs);
    automaton->configs[automaton->n_configs] = config;
    automaton->n_configs++;
    return automaton->n_configs - 1;
}

int automaton_intern_config(struct automaton *automaton) {
    sort_gathered(automaton);
    uint64_t hash = hash_stacks(automaton->gathered, automaton->n_gathered);
    size_t at = hash, bytes = (size_t)automaton->n_gathered * sizeof *automaton->gathered;
    table_grow(automaton, &automaton->config_table, hash_config);
    for (int found; (found = table_find(&automaton->config_table, hash, &at)) >= 0;) {
        const struct automaton_config *config = &automaton->configs[found];
        if (config->n == automaton->n_gathered &&
            (bytes == 0 ||
             memcmp(automaton->stacks + config->first, automaton->gathered, bytes) == 0))
            return found;
    }
    int number = config_add(automaton);
    table_add(automaton, &automaton->config_table, number, hash_config);
    return number;
}

/* Sets of members. */

static uint64_t hash_words(const uint64_t *words, int n) {
    uint64_t h = 11;
    for (int i = 0; i < n; i++) h = mix(h, words[i]);
    return h;
}

static uint64_t hash_seen(const struct automaton *automaton, int number) {
    return hash_words(automaton->seen + (size_t)number * (size_t)automaton->seen_words,
                      automaton->seen_words);
}

int automaton_intern_seen(struct automaton *automaton, const uint64_t *seen) {
    uint64_t hash = hash_words(seen, automaton->seen_words);
    size_t at = hash, words = (size_t)automaton->seen_words, bytes = words * sizeof *seen;
    table_grow(automaton, &automaton->seen_table, hash_seen);
    for (int found; (found = table_find(&automaton->seen_table, hash, &at)) >= 0;)
        if (memcmp(automaton->seen + (size_t)found * words, seen, bytes) == 0) return found;
    use_bytes(automaton, bytes);
    automaton->seen = xgrow(automaton->seen, automaton->n_seen, &automaton->seen_capacity, bytes);
    memcpy(automaton->seen + (size_t)automaton->n_seen * words, seen, bytes);
    automaton->n_seen++;
    table_add(automaton, &automaton->seen_table, automaton->n_seen - 1, hash_seen);
    return automaton->n_seen - 1;
}
