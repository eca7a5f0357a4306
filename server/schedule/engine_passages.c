/* server/schedule/engine_passages.c: passages in a prompt: what they are sought by, where they stand, and how a
 * sequence goes on when others take their place. See engine_private.h.
 *
 * Passages that are sought again (retrieval.every) replace those before: the model then reads the prompt with the new
 * ones and all that was written, as if it were a new prompt (In-Context RALM, arXiv 2302.00083). Rows that both texts
 * begin with are not computed again. */
#include <stdlib.h>
#include <string.h>

#include "server/schedule/scoring.h"
#include "server/schedule/told_attention.h"

void passage_part_close(struct passage_part *p) {
    free(p->rows);
    free(p->source);
}

/* The query. */

/* The end of the prompt, or of the encoder's source, and of what was written: at most PASSAGE_QUERY_TOKENS. */
static void decode_end(struct engine_sequence *s, bool with_prompt) {
    const struct sequence_request *asked = &s->sequence->asked;
    const int32_t *read = asked->n_source > 0 ? asked->source : asked->prompt;
    int n_read = with_prompt ? (asked->n_source > 0 ? asked->n_source : asked->n_prompt) : 0;
    int written = min_int(s->n_ids, PASSAGE_QUERY_TOKENS), before = min_int(n_read, PASSAGE_QUERY_TOKENS - written);
    int32_t ids[PASSAGE_QUERY_TOKENS];
    if (before > 0) memcpy(ids, read + n_read - before, (size_t)before * sizeof *ids);
    if (written > 0) memcpy(ids + before, s->sequence->answer.ids + s->n_ids - written, (size_t)written * sizeof *ids);
    tokenizer_decode(s->engine->o.tokenizer, ids, before + written, true, &s->lookup.query);
}

/* The words that the asker gives, behind the end of the answer so far; or the end of the whole text. */
static void write_query(struct engine_sequence *s) {
    const struct sequence_request *asked = &s->sequence->asked;
    struct text_span said = asked->place.query;
    buffer_clear(&s->lookup.query);
    if (said.text == NULL || s->n_ids > 0) decode_end(s, said.text == NULL);
    if (said.text && s->n_ids > 0) buffer_append(&s->lookup.query, "\n", 1);
    if (said.text) buffer_append(&s->lookup.query, said.text, said.size);
    const char *text = s->lookup.query.data ? s->lookup.query.data : "";
    int candidates = s->engine->o.rerank_candidates;
    s->lookup.job.queries[0] = (struct retriever_query){.text = {text, s->lookup.query.size},
                                                        .k = asked->passages.k,
                                                        .min_similarity = (float)asked->choice.min_similarity,
                                                        .choice = retrieval_choice_ranking(&asked->choice, candidates),
                                                        .filter = s->lookup.filter,
                                                        .excluded = asked->excluded,
                                                        .n_excluded = asked->n_excluded};
}

/* The prompt. */

/* A special token that begins a prompt stays before the passages. */
static void compose_before(const struct tokenizer *t, const int32_t *ids, int n, const struct tokens *passages,
                           struct tokens *all) {
    int first = n > 0 && ids[0] >= 0 && tokenizer_is_special(t, ids[0]) ? 1 : 0;
    for (int i = 0; i < first; i++) tokens_append(all, ids[i], 0);
    for (int i = 0; i < passages->n; i++) tokens_append(all, passages->ids[i], 0);
    for (int i = first; i < n; i++) tokens_append(all, ids[i], 0);
}

/* A prompt with passages: its sources, and the rows that it becomes. */
struct composition {
    struct hits *hits;
    struct passage_picture *pictures; /* [n_pictures] that may stand in it */
    int *places;                      /* [n_pictures] in the sequence's s->found.job->set */
    int n_pictures;
    struct passages passages;
    struct picture_set *set; /* a reference: of all its pictures; NULL: it has none */
    struct tokens all;
};

static void composition_open(struct composition *c, const struct engine_sequence *s, struct hits *hits) {
    size_t most = s->found.job ? (size_t)s->found.job->n : 0;
    *c = (struct composition){.hits = hits};
    c->pictures = xcalloc(most + 1, sizeof *c->pictures);
    c->places = xcalloc(most + 1, sizeof *c->places);
    c->n_pictures = engine_list_found(s, c->pictures, c->places);
}

static void composition_close(struct composition *c) {
    free(c->pictures);
    free(c->places);
    passages_free(&c->passages);
    picture_set_release(c->set);
    tokens_free(&c->all);
}

/* The request's pictures and, where the passages stand, those of the passages. */
static void join_pictures(const struct engine_sequence *s, struct composition *c) {
    const struct sequence_request *asked = &s->sequence->asked;
    const struct passages *p = &c->passages;
    picture_set_release(c->set);
    if (p->n_pictures == 0) {
        c->set = picture_set_hold(asked->pictures);
        return;
    }
    int *chosen = xcalloc((size_t)p->n_pictures, sizeof *chosen);
    for (int i = 0; i < p->n_pictures; i++) chosen[i] = c->places[p->pictures[i]];
    c->set = picture_set_join(asked->pictures, asked->place.pictures_before, s->found.job->set, chosen, p->n_pictures);
    free(chosen);
}

/* The prompt, or the encoder's source, with the passages that fit `room` more rows. */
static enum status compose(const struct engine_sequence *s, struct composition *c, int room, struct error *e) {
    const struct engine_options *o = &s->engine->o;
    const struct sequence_request *asked = &s->sequence->asked;
    const struct sequence_place *place = &asked->place;
    const struct passage_sources from = {c->hits, c->pictures, c->n_pictures};
    struct passages *p = &c->passages;
    bool encodes = asked->n_source > 0;
    if (passages_write(&o->passages, o->tokenizer, &from, room, p, e)) return e->status;
    join_pictures(s, c);
    c->all.n = 0;
    if (p->n > 0 && place->compose) {
        struct placed_text placed = {{p->text.data, p->text.size}, p->foreign.data};
        enum status status = place->compose(place->context, placed, &c->all, e);
        return status || c->set == NULL ? status : picture_set_merge(c->set, &c->all, e);
    }
    if (p->n_pictures > 0 && picture_set_merge(c->set, &p->ids, e)) return e->status;
    compose_before(o->tokenizer, encodes ? asked->source : asked->prompt, encodes ? asked->n_source : asked->n_prompt,
                   &p->ids, &c->all);
    return STATUS_OK;
}

/* The same within the context. Within a text, passages may take a token more than by themselves. */
static enum status compose_within(const struct engine_sequence *s, struct composition *c, struct error *e) {
    const struct sequence_request *asked = &s->sequence->asked;
    bool encodes = asked->n_source > 0;
    int most = s->engine->o.max_context - (encodes ? 0 : asked->max_tokens);
    int room = most - (encodes ? asked->n_source : asked->n_prompt);
    enum status status = compose(s, c, room, e);
    while (status == STATUS_OK && c->passages.n > 0 && c->all.n > most) {
        room -= c->all.n - most;
        status = compose(s, c, room, e);
    }
    return status;
}

/* The hits become the passages that are read. */
static void show_passages(struct hits *hits, struct passages *passages) {
    free(hits->list);
    hits->list = passages->list;
    hits->n = passages->n;
    passages->list = NULL;
}

static bool same_row(const struct engine_sequence *s, int i, int32_t row, const struct picture_set *pictures) {
    if (engine_sequence_row(s, i) != row) return false;
    return row >= 0 ||
           memcmp(&s->pictures.set->names[-1 - row], &pictures->names[-1 - row], sizeof *pictures->names) == 0;
}

/* Rows that the session has computed and the new rows begin with, all but one of these at most. */
static int count_kept(const struct engine_sequence *s, const int32_t *rows, int n, const struct picture_set *pictures) {
    int most = min_int(session_length(s->session), n - 1), kept = 0;
    while (kept < most && same_row(s, kept, rows[kept], pictures)) kept++;
    return kept;
}

/* The sequence goes on behind these rows, which have the pictures of *set: it is the sequence's from here on. */
static void restart(struct engine_sequence *s, int32_t *rows, int n, struct picture_set **set) {
    const struct engine *x = s->engine;
    struct sequence_answer *answer = &s->sequence->answer;
    int kept = count_kept(s, rows, n, *set), m = x->info.chunk_length;
    s->n_prefix = n - s->n_ids - s->sequence->asked.n_prompt;
    free(s->passages.rows);
    pictures_part_take(&s->pictures, set);
    s->rows = s->passages.rows = rows;
    s->n_rows = n;
    s->n_reread = s->n_ids;
    s->lookup.n_neighbors = 0;
    if (m > 0) {
        answer->grid = grid_make(x->o.grid, n, m);
        answer->n_chunks = grid_complete(answer->grid, n + s->sequence->asked.max_tokens - s->n_ids);
    }
    session_rewind(s->session, kept, engine_sequence_grid(s));
    s->prefix.begun = false;
}

/* The composed text is read: as the encoder's source, or as the decoder's rows. */
static void take_composed(struct engine_sequence *s, struct composition *c) {
    struct tokens *all = &c->all;
    const struct sequence_request *asked = &s->sequence->asked;
    bool encodes = asked->n_source > 0;
    int n_before = encodes ? asked->n_prompt : all->n, n = n_before + s->n_ids;
    int32_t *rows = xmalloc((size_t)n * sizeof *rows);
    memcpy(rows, encodes ? asked->prompt : all->ids, (size_t)n_before * sizeof *rows);
    if (s->n_ids > 0) memcpy(rows + n_before, s->sequence->answer.ids, (size_t)s->n_ids * sizeof *rows);
    restart(s, rows, n, &c->set);
    if (!encodes) return;
    free(s->passages.source);
    s->source = s->passages.source = all->ids;
    s->n_source = all->n;
    all->ids = NULL;
}

/* Tokens of the composed text before its passages: those that it shares with the text as it was asked. Within a text
 * a passage may begin a token before or behind where it does by itself. */
static int count_before(const struct engine_sequence *s, const struct passages *passages, const struct tokens *all) {
    const struct sequence_request *asked = &s->sequence->asked;
    const int32_t *ids = asked->n_source > 0 ? asked->source : asked->prompt;
    int n = asked->n_source > 0 ? asked->n_source : asked->n_prompt, most = all->n - passages_rows(passages), same = 0;
    if (asked->place.compose == NULL) return n > 0 && tokenizer_is_special(s->engine->o.tokenizer, ids[0]) ? 1 : 0;
    while (same < min_int(n, most) && all->ids[same] == ids[same]) same++;
    return same;
}

/* Puts passages into the prompt; *hits becomes those that are there. */
static enum status read_passages(struct engine_sequence *s, struct hits *hits, struct error *e) {
    struct composition c;
    composition_open(&c, s, hits);
    enum status status = compose_within(s, &c, e);
    if (status == STATUS_OK) {
        told_attention_place(s, c.passages.ends, c.passages.n, count_before(s, &c.passages, &c.all));
        engine_tell_found(s, c.pictures, c.n_pictures);
        show_passages(hits, &c.passages);
        take_composed(s, &c);
    }
    composition_close(&c);
    return status;
}

/* In the engine's loop. */

/* The entry of what was found is complete: its passages are read, and the chunks of the new rows are next. */
static void accept(struct engine_sequence *s) {
    struct sequence_answer *answer = &s->sequence->answer;
    struct error e = {0};
    if (read_passages(s, &answer->found[s->passages.n_searched], &e)) {
        engine_sequence_finish(s, FINISH_ERROR, &e);
        return;
    }
    answer->search_rows[s->passages.n_searched] = s->n_reread > 0 ? s->n_rows - 1 : 0;
    s->passages.n_searched++;
    comparison_begin(s);
    engine_close_prompt(s);
}

/* The asker's texts as hits, which point into the request. */
static void take_given(struct engine_sequence *s) {
    const struct sequence_passages *asked = &s->sequence->asked.passages;
    struct hits *hits = &s->sequence->answer.found[0];
    hits->list = xcalloc((size_t)asked->n_given, sizeof *hits->list);
    hits->n = asked->n_given;
    for (int i = 0; i < hits->n; i++)
        hits->list[i] = (struct hit){.document = "", .title = "", .text = asked->given[i]};
}

void engine_seek_passages(struct engine_sequence *s) {
    if (s->passages.n_searched > 0) engine_sequence_publish(s);
    if (!s->sequence->asked.passages.search) {
        take_given(s);
        accept(s);
        return;
    }
    write_query(s);
    engine_look_up(s, PARKED_FOR_PASSAGES, s->passages.n_searched, 1);
}

void engine_accept_passages(struct engine_sequence *s) {
    if (!engine_read_found(s)) accept(s);
}

void engine_accept_pictures(struct engine_sequence *s) {
    engine_note_found(s);
    accept(s);
}
