/* retro/run/cross/sources.c: encoding the texts that sessions read. See sources.h. */
#include "retro/run/cross/sources.h"

#include <stdlib.h>
#include <string.h>

/* Rows the encoder works on at once, where no text is longer. */
enum { GROUP_ROWS = 512 };

enum status sources_measure(struct sources *sources, struct cross_cache *cache,
                            const struct model *model, const struct session_limits *limits,
                            struct error *e) {
    *sources = (struct sources){.model = model, .cache = cache, .keeps = limits->kept_blocks > 0};
    int most = model->spec.learned_positions ? model->spec.max_positions : INT32_MAX;
    if (limits->max_source < 1 || limits->max_source > most)
        return error_set(e, STATUS_INVALID,
                         "%d tokens for the encoder of one sequence; allowed is 1 .. %d",
                         limits->max_source, most);
    int rows = max_int(limits->max_source, GROUP_ROWS);
    struct cross_cache_sizes sizes = {.n_slots = limits->max_sessions,
                                      .slot_rows = limits->max_source,
                                      .group_rows = rows,
                                      .dtype = limits_cross_dtype(limits)};
    if (cross_cache_measure(cache, model, &sizes, e) ||
        encoder_group_measure(&sources->group, model, rows, e))
        return e->status;
    sources->bytes = sources->group.bytes;
    return STATUS_OK;
}

enum status sources_open(struct sources *sources, struct error *e) {
    sources->texts = xcalloc((size_t)sources->cache->n_slots, sizeof *sources->texts);
    return encoder_group_open(&sources->group, e);
}

void sources_close(struct sources *sources) {
    for (int i = 0; sources->texts && i < sources->cache->n_slots; i++) free(sources->texts[i].ids);
    free(sources->texts);
    encoder_group_close(&sources->group);
}

int sources_find(const struct sources *sources, uint32_t scope, const int32_t *ids, int n) {
    for (int i = 0; i < sources->cache->n_slots && sources->keeps; i++) {
        const struct source_text *text = &sources->texts[i];
        if (text->n == n && text->scope == scope &&
            memcmp(text->ids, ids, (size_t)n * sizeof *ids) == 0)
            return i;
    }
    return -1;
}

/* The free slot whose text was not read for longest. */
static int choose_slot(const struct sources *sources) {
    int best = -1;
    for (int i = 0; i < sources->cache->n_slots; i++) {
        const struct source_text *text = &sources->texts[i];
        if (text->holders == 0 && (best < 0 || text->used < sources->texts[best].used)) best = i;
    }
    CHECK(best >= 0);
    return best;
}

int sources_take(struct sources *sources, uint32_t scope, const int32_t *ids, int n) {
    int slot = choose_slot(sources);
    struct source_text *text = &sources->texts[slot];
    free(text->ids);
    sources->events++;
    *text = (struct source_text){
        .ids = xmalloc((size_t)n * sizeof *ids), .n = n, .scope = scope, .number = sources->events};
    memcpy(text->ids, ids, (size_t)n * sizeof *ids);
    return slot;
}

void sources_hold(struct sources *sources, int slot) {
    sources->events++;
    sources->texts[slot].holders++;
    sources->texts[slot].used = sources->events;
}

void sources_drop(struct sources *sources, int slot) {
    if (slot >= 0) sources->texts[slot].holders--;
}

static void encode_group(struct sources *sources) {
    const struct stack *encoder = sources->group.encoder;
    struct tensor x = encoder_group_run(&sources->group, NULL, NULL);
    if (encoder->final_norm.gamma) stack_norm(sources->model, encoder, x, x, &encoder->final_norm);
    cross_cache_fill(sources->cache, x, sources->group.slot_row_of);
    encoder_group_clear(&sources->group);
}

void sources_encode(struct sources *sources, const struct source *list, int n) {
    struct encoder_group *group = &sources->group;
    encoder_group_clear(group);
    for (int i = 0; i < n; i++) {
        if (group->n_rows + list[i].n > group->max_rows) encode_group(sources);
        encoder_group_add(group, list[i].ids, list[i].n, list[i].slot * sources->cache->slot_rows);
    }
    if (group->n_rows > 0) encode_group(sources);
}
