/* retrieval/store/word_demanded.c: phrases and excluded words of a query, by the positions that the
 * index of words keeps. See word_search.h. */
#include <stdlib.h>

#include "retrieval/store/word_search.h"

enum status demand_cursors_open(struct demand_cursors *cursors, const struct word_demands *demands,
                                const struct words *words, struct error *e) {
    size_t n = 0;
    *cursors = (struct demand_cursors){.demands = demands};
    for (int i = 0; demands && i < demands->n; i++) n += (size_t)demands->list[i].n;
    if (n == 0) return STATUS_OK;
    cursors->cursors = xcalloc(n, sizeof *cursors->cursors);
    struct word_cursor *cursor = cursors->cursors;
    for (int i = 0; i < demands->n; i++)
        for (int j = 0; j < demands->list[i].n; j++, cursor++) {
            const struct word_text *word = &demands->list[i].words[j];
            struct word_list list;
            if (words_find(words, (struct text_span){word->bytes, word->size}, &list, e)) {
                demand_cursors_close(cursors);
                return e->status;
            }
            word_cursor_open(cursor, words, &list);
        }
    return STATUS_OK;
}

const char *demand_cursors_close(struct demand_cursors *cursors) {
    const char *damage = NULL;
    struct word_cursor *cursor = cursors->cursors;
    for (int i = 0; cursor && i < cursors->demands->n; i++)
        for (int j = 0; j < cursors->demands->list[i].n; j++, cursor++)
            if (cursor->damage) damage = cursor->damage;
    free(cursors->cursors);
    buffer_free(&cursors->starts);
    buffer_free(&cursors->positions);
    *cursors = (struct demand_cursors){.demands = NULL};
    return damage;
}

/* Where the cursor's word stands in its chunk. */
static void take_positions(const struct word_cursor *cursor, struct buffer *out) {
    const uint32_t zero = 0;
    buffer_clear(out);
    for (uint32_t i = 0; i < cursor->count; i++) buffer_append(out, &zero, sizeof zero);
    word_cursor_positions(cursor, (uint32_t *)(void *)out->data, (int)cursor->count);
}

/* Keeps the starts behind which the word stands at `place`. */
static void keep_starts(struct demand_cursors *cursors, uint32_t place) {
    uint32_t *starts = (void *)cursors->starts.data;
    const uint32_t *positions = (const void *)cursors->positions.data;
    size_t n_starts = cursors->starts.size / sizeof *starts, kept = 0, at = 0,
           n = cursors->positions.size / sizeof *positions;
    for (size_t i = 0; i < n_starts; i++) {
        while (at < n && positions[at] < starts[i] + place) at++;
        if (at == n) break;
        if (positions[at] != starts[i] + place) continue;
        starts[kept] = starts[i];
        kept++;
    }
    cursors->starts.size = kept * sizeof *starts;
}

/* cursor: the first of the demand's. */
static bool stands_in(struct demand_cursors *cursors, const struct word_demand *demand,
                      struct word_cursor *cursor, uint32_t chunk) {
    for (int i = 0; i < demand->n; i++) {
        word_cursor_seek(&cursor[i], chunk);
        if (cursor[i].chunk != chunk) return false;
    }
    if (demand->n == 1) return true;
    take_positions(&cursor[0], &cursors->starts);
    for (int i = 1; i < demand->n && cursors->starts.size > 0; i++) {
        take_positions(&cursor[i], &cursors->positions);
        keep_starts(cursors, demand->places[i]);
    }
    return cursors->starts.size > 0;
}

bool demand_cursors_allow(struct demand_cursors *cursors, uint32_t chunk) {
    struct word_cursor *cursor = cursors->cursors;
    for (int i = 0; cursor && i < cursors->demands->n; i++) {
        const struct word_demand *demand = &cursors->demands->list[i];
        if (stands_in(cursors, demand, cursor, chunk) == demand->without) return false;
        cursor += demand->n;
    }
    return true;
}
