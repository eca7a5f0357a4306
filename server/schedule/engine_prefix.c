/* server/schedule/engine_prefix.c: rows that a prompt takes over from earlier ones
 * (retro/run/session/session.h). See engine_private.h. */
#include <string.h>

#include "config/base/hash.h"

#include "server/schedule/scoring.h"
#include "server/schedule/told_attention.h"

/* Rows that may be taken over: those whose logits nobody needs, and that need not tell their
 * attention. */
static int count_wanted(const struct engine_sequence *sequence) {
    return told_attention_of_all(sequence) ? 0 : scoring_first_row(sequence);
}

struct session_text engine_prompt_text(const struct engine_sequence *sequence) {
    const struct picture_set *pictures = sequence->pictures.set;
    return (struct session_text){.ids = sequence->rows,
                                 .n = count_wanted(sequence),
                                 .positions = sequence->pictures.positions,
                                 .names = pictures ? pictures->names : NULL,
                                 .neighbors = sequence->lookup.neighbors,
                                 .source = sequence->source,
                                 .n_source = sequence->n_source};
}

static bool same_ids(const int32_t *a, const int32_t *b, int n) {
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Whether the given rows among rows [0, n), which have equal ids, are of equal pictures. */
static bool same_pictures(const struct engine_sequence *left, const struct engine_sequence *right,
                          int n) {
    int given = 0;
    for (int i = 0; i < n; i++) given += left->rows[i] < 0;
    if (given == 0) return true;
    const struct row_name *name = left->pictures.set->names, *row_name = right->pictures.set->names;
    return memcmp(name, row_name, (size_t)given * sizeof *name) == 0;
}

/* Whether rows [0, n) of both prompts are computed from the same. */
static bool begin_alike(const struct engine_sequence *left, const struct engine_sequence *right,
                        int n) {
    const struct engine *engine = left->engine;
    struct grid grid = session_grid(left->session);
    if (left->prefix.scope != right->prefix.scope) return false;
    if (left->n_source != right->n_source || !same_ids(left->source, right->source, left->n_source))
        return false;
    if (!same_ids(left->rows, right->rows, n) || !same_pictures(left, right, n)) return false;
    if (left->sequence->answer.n_chunks == 0) return true;
    if (grid.f != session_grid(right->session).f) return false;
    for (int j = 0; j < grid_complete(grid, n); j++) {
        const struct neighbor_tokens *tokens = &left->lookup.neighbors[j],
                                     *neighbor_tokens = &right->lookup.neighbors[j];
        if (tokens->k != neighbor_tokens->k ||
            !same_ids(tokens->ids, neighbor_tokens->ids, tokens->k * engine->info.retrieved_length))
            return false;
    }
    return true;
}

/* Whether an earlier prompt will soon have rows that this one can take over, beyond the
 * `found` rows that are there already. */
static bool is_coming(const struct engine_sequence *sequence, int found) {
    const struct engine *engine = sequence->engine;
    for (int i = 0; i < engine->n_active && engine->active[i] != sequence; i++) {
        const struct engine_sequence *other = engine->active[i];
        int rows = session_next_kept(other->session, found, other->n_rows);
        if (rows <= found || rows > count_wanted(sequence)) continue;
        if (!session_is_found(other->session, rows - session_length(other->session))) continue;
        bool reads = (other->prefix.begun || other->blocks.loading) &&
                     session_length(other->session) < other->n_rows;
        if (reads && rows <= other->n_rows && begin_alike(sequence, other, rows)) return true;
    }
    return false;
}

struct block_address engine_origin(const struct engine *engine,
                                   const struct engine_sequence *sequence) {
    struct buffer who = {0};
    struct block_address origin;
    bool named =
        principal_scope(&sequence->sequence->asked.principal, engine->o.prefixes_of_filter, &who);
    const char *kind = !named ? "all" : engine->o.prefixes_of_filter ? "filter" : "key";
    const struct text_span parts[] = {{kind, strlen(kind) + 1}, {who.data, who.size}};
    sha256_hash(parts, ARRAY_COUNT(parts), origin.bytes);
    buffer_free(&who);
    return origin;
}

/* Scopes are counted from 1 in the order in which they come. Clients without keys are one scope, 0:
 * nothing tells them apart. A key's hash stays when the file of keys is read again; with another
 * filter it is another scope, since what was found by the first may stand in prompts. */
uint32_t engine_scope(struct engine *engine, const struct engine_sequence *sequence) {
    struct buffer who = {0};
    if (!principal_scope(&sequence->sequence->asked.principal, engine->o.prefixes_of_filter, &who))
        return 0;
    uint64_t first = hash_bytes(who.data, who.size, 0), second = hash_bytes(who.data, who.size, 1);
    buffer_free(&who);
    if (key_set_add(&engine->scopes, first, second))
        *key_set_number(&engine->scopes, first, second) = (int64_t)engine->scopes.n;
    return (uint32_t)*key_set_number(&engine->scopes, first, second);
}

bool engine_begin_prompt(struct engine_sequence *sequence) {
    struct engine *engine = sequence->engine;
    if (sequence->prefix.begun) return true;
    bool keeps = engine->metrics.blocks.kept_most > 0;
    if (sequence->pictures.positions == NULL)
        sequence->pictures.positions =
            picture_set_place(sequence->pictures.set, sequence->rows, sequence->n_rows);
    struct session_text text = engine_prompt_text(sequence);
    if (keeps && is_coming(sequence, session_find(sequence->session, &text))) return false;

    if (!engine_load_blocks(sequence)) return false;

    sequence->prefix.begun = true;
    if (!keeps) return true;
    int reused = session_reuse(sequence->session, &text);
    if (sequence->n_reread == 0) sequence->prefix.n_cached = reused;
    engine->metrics.prefix_queries += sequence->n_rows + sequence->n_source;
    engine->metrics.prefix_hits += reused;
    return true;
}
