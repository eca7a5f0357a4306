/* server/schedule/engine_prefix.c: rows that a prompt takes over from earlier ones (retro/run/session/session.h). See
 * engine_private.h. */
#include <string.h>

#include "config/base/hash.h"

#include "server/schedule/scoring.h"
#include "server/schedule/told_attention.h"

/* Rows that may be taken over: those whose logits nobody needs, and that need not tell their attention. */
static int count_wanted(const struct engine_sequence *s) { return told_attention_of_all(s) ? 0 : scoring_first_row(s); }

static struct session_text text_of(const struct engine_sequence *s) {
    const struct picture_set *pictures = s->pictures.set;
    return (struct session_text){.ids = s->rows,
                                 .n = count_wanted(s),
                                 .positions = s->pictures.positions,
                                 .names = pictures ? pictures->names : NULL,
                                 .neighbors = s->lookup.neighbors,
                                 .source = s->source,
                                 .n_source = s->n_source};
}

static bool same_ids(const int32_t *a, const int32_t *b, int n) {
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Whether the given rows among rows [0, n), which have equal ids, are of equal pictures. */
static bool same_pictures(const struct engine_sequence *a, const struct engine_sequence *b, int n) {
    int given = 0;
    for (int i = 0; i < n; i++) given += a->rows[i] < 0;
    if (given == 0) return true;
    const struct row_name *p = a->pictures.set->names, *q = b->pictures.set->names;
    return memcmp(p, q, (size_t)given * sizeof *p) == 0;
}

/* Whether rows [0, n) of both prompts are computed from the same. */
static bool begin_alike(const struct engine_sequence *a, const struct engine_sequence *b, int n) {
    const struct engine *x = a->engine;
    struct grid grid = session_grid(a->session);
    if (a->prefix.scope != b->prefix.scope) return false;
    if (a->n_source != b->n_source || !same_ids(a->source, b->source, a->n_source)) return false;
    if (!same_ids(a->rows, b->rows, n) || !same_pictures(a, b, n)) return false;
    if (a->sequence->answer.n_chunks == 0) return true;
    if (grid.f != session_grid(b->session).f) return false;
    for (int j = 0; j < grid_complete(grid, n); j++) {
        const struct neighbor_tokens *p = &a->lookup.neighbors[j], *q = &b->lookup.neighbors[j];
        if (p->k != q->k || !same_ids(p->ids, q->ids, p->k * x->info.retrieved_length)) return false;
    }
    return true;
}

/* Whether an earlier prompt will have a full block soon that this one can take over, beyond the `found` rows that are
 * there already. */
static bool is_coming(const struct engine_sequence *s, int found) {
    const struct engine *x = s->engine;
    int rows = found + ATTENTION_BLOCK;
    if (rows > count_wanted(s)) return false;
    for (int i = 0; i < x->n_active && x->active[i] != s; i++) {
        const struct engine_sequence *other = x->active[i];
        bool reads = other->prefix.begun && session_length(other->session) < other->n_rows;
        if (reads && rows <= other->n_rows && begin_alike(s, other, rows)) return true;
    }
    return false;
}

/* Scopes are counted from 1 in the order in which they come. Clients without keys are one scope, 0: nothing tells them
 * apart. A key's hash stays when the file of keys is read again; with another filter it is another scope, since what
 * was found by the first may stand in prompts. */
uint32_t engine_scope(struct engine *x, const struct engine_sequence *s) {
    const struct key *key = s->sequence->asked.principal.key;
    struct buffer who = {0};
    if (key == NULL || (x->o.prefixes_of_filter && key->filter == NULL)) return 0;
    if (!x->o.prefixes_of_filter) buffer_append(&who, key->hash, sizeof key->hash);
    buffer_append_string(&who, filter_text(key->filter));
    uint64_t first = hash_bytes(who.data, who.size, 0), second = hash_bytes(who.data, who.size, 1);
    buffer_free(&who);
    if (key_set_add(&x->scopes, first, second)) *key_set_number(&x->scopes, first, second) = (int64_t)x->scopes.n;
    return (uint32_t)*key_set_number(&x->scopes, first, second);
}

bool engine_begin_prompt(struct engine_sequence *s) {
    struct engine *x = s->engine;
    if (s->prefix.begun) return true;
    bool keeps = x->metrics.blocks.kept_most > 0;
    if (s->pictures.positions == NULL) s->pictures.positions = picture_set_place(s->pictures.set, s->rows, s->n_rows);
    struct session_text text = text_of(s);
    if (keeps && is_coming(s, session_find(s->session, &text))) return false;

    s->prefix.begun = true;
    if (!keeps) return true;
    int reused = session_reuse(s->session, &text);
    if (s->n_reread == 0) s->prefix.n_cached = reused;
    x->metrics.prefix_queries += s->n_rows + s->n_source;
    x->metrics.prefix_hits += reused;
    return true;
}
