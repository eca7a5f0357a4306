/* retro/run/cross/sources.c: encoding the texts that sessions read. See sources.h. */
#include "retro/run/cross/sources.h"

#include <stdlib.h>
#include <string.h>

/* Rows the encoder works on at once, where no text is longer. */
enum { GROUP_ROWS = 512 };

enum status sources_measure(struct sources *s, struct cross_cache *cache, const struct model *m,
                            const struct session_limits *l, struct error *e) {
    *s = (struct sources){.model = m, .cache = cache, .keeps = l->kept_blocks > 0};
    int most = m->spec.learned_positions ? m->spec.max_positions : INT32_MAX;
    if (l->max_source < 1 || l->max_source > most)
        return error_set(e, STATUS_INVALID, "%d tokens for the encoder of one sequence; allowed is 1 .. %d",
                         l->max_source, most);
    int rows = max_int(l->max_source, GROUP_ROWS);
    struct cross_cache_sizes sizes = {
        .n_slots = l->max_sessions, .slot_rows = l->max_source, .group_rows = rows, .dtype = l->kv_dtype};
    if (cross_cache_measure(cache, m, &sizes, e) || encoder_group_measure(&s->group, m, rows, e)) return e->status;
    s->bytes = s->group.bytes;
    return STATUS_OK;
}

enum status sources_open(struct sources *s, struct error *e) {
    s->texts = xcalloc((size_t)s->cache->n_slots, sizeof *s->texts);
    return encoder_group_open(&s->group, e);
}

void sources_close(struct sources *s) {
    for (int i = 0; s->texts && i < s->cache->n_slots; i++) free(s->texts[i].ids);
    free(s->texts);
    encoder_group_close(&s->group);
}

int sources_find(const struct sources *s, uint32_t scope, const int32_t *ids, int n) {
    for (int i = 0; i < s->cache->n_slots && s->keeps; i++) {
        const struct source_text *text = &s->texts[i];
        if (text->n == n && text->scope == scope && memcmp(text->ids, ids, (size_t)n * sizeof *ids) == 0) return i;
    }
    return -1;
}

/* The free slot whose text was not read for longest. */
static int choose_slot(const struct sources *s) {
    int best = -1;
    for (int i = 0; i < s->cache->n_slots; i++) {
        const struct source_text *text = &s->texts[i];
        if (text->holders == 0 && (best < 0 || text->used < s->texts[best].used)) best = i;
    }
    CHECK(best >= 0);
    return best;
}

int sources_take(struct sources *s, uint32_t scope, const int32_t *ids, int n) {
    int slot = choose_slot(s);
    struct source_text *text = &s->texts[slot];
    free(text->ids);
    s->events++;
    *text = (struct source_text){.ids = xmalloc((size_t)n * sizeof *ids), .n = n, .scope = scope, .number = s->events};
    memcpy(text->ids, ids, (size_t)n * sizeof *ids);
    return slot;
}

void sources_hold(struct sources *s, int slot) {
    s->events++;
    s->texts[slot].holders++;
    s->texts[slot].used = s->events;
}

void sources_drop(struct sources *s, int slot) {
    if (slot >= 0) s->texts[slot].holders--;
}

static void encode_group(struct sources *s) {
    const struct stack *encoder = s->group.encoder;
    struct tensor x = encoder_group_run(&s->group, NULL, NULL);
    if (encoder->final_norm.gamma) stack_norm(s->model, encoder, x, x, &encoder->final_norm);
    cross_cache_fill(s->cache, x, s->group.slot_row_of);
    encoder_group_clear(&s->group);
}

void sources_encode(struct sources *s, const struct source *list, int n) {
    struct encoder_group *g = &s->group;
    encoder_group_clear(g);
    for (int i = 0; i < n; i++) {
        if (g->n_rows + list[i].n > g->max_rows) encode_group(s);
        encoder_group_add(g, list[i].ids, list[i].n, list[i].slot * s->cache->slot_rows);
    }
    if (g->n_rows > 0) encode_group(s);
}
