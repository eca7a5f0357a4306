/* server/schedule/engine_passages.c: passages in a prompt: what they are sought by, where they
 * stand, and how a sequence goes on when others take their place. See engine_private.h.
 *
 * Passages that are sought again (retrieval.every) replace those before: the model then reads the
 * prompt with the new ones and all that was written, as if it were a new prompt (In-Context RALM,
 * arXiv 2302.00083). Rows that both texts begin with are not computed again. */
#include <stdlib.h>
#include <string.h>

#include "server/schedule/earlier_passages.h"
#include "server/schedule/scoring.h"
#include "server/schedule/told_attention.h"

void passage_part_close(struct passage_part *part) {
    free(part->rows);
    free(part->source);
}

/* The query. */

/* The end of the prompt, or of the encoder's source, and of what was written: at most
 * PASSAGE_QUERY_TOKENS. */
static void decode_end(struct engine_sequence *sequence, bool with_prompt) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    const int32_t *read = asked->n_source > 0 ? asked->source : asked->prompt;
    int n_read = with_prompt ? (asked->n_source > 0 ? asked->n_source : asked->n_prompt) : 0;
    int written = min_int(sequence->n_ids, PASSAGE_QUERY_TOKENS),
        before = min_int(n_read, PASSAGE_QUERY_TOKENS - written);
    int32_t ids[PASSAGE_QUERY_TOKENS];
    if (before > 0) memcpy(ids, read + n_read - before, (size_t)before * sizeof *ids);
    if (written > 0)
        memcpy(ids + before, sequence->sequence->answer.ids + sequence->n_ids - written,
               (size_t)written * sizeof *ids);
    tokenizer_decode(sequence->engine->o.tokenizer, ids, before + written, true,
                     &sequence->lookup.query);
}

/* The words that the asker gives, behind the end of the answer so far; or the end of the whole
 * text. */
static void write_query(struct engine_sequence *sequence) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    struct text_span said = asked->place.query;
    buffer_clear(&sequence->lookup.query);
    if (said.text == NULL || sequence->n_ids > 0) decode_end(sequence, said.text == NULL);
    if (said.text && sequence->n_ids > 0) buffer_append(&sequence->lookup.query, "\n", 1);
    if (said.text) buffer_append(&sequence->lookup.query, said.text, said.size);
    const char *text = sequence->lookup.query.data ? sequence->lookup.query.data : "";
    int candidates = sequence->engine->o.rerank_candidates;
    sequence->lookup.job.queries[0] =
        (struct retriever_query){.text = {text, sequence->lookup.query.size},
                                 .k = asked->passages.k,
                                 .min_similarity = (float)asked->choice.min_similarity,
                                 .choice = retrieval_choice_ranking(&asked->choice, candidates),
                                 .filter = sequence->lookup.filter,
                                 .excluded = asked->excluded,
                                 .n_excluded = asked->n_excluded};
}

/* The prompt. */

/* A special token that begins a prompt stays before the passages. */
static void compose_before(const struct tokenizer *tokenizer, const int32_t *ids, int n,
                           const struct tokens *passages, struct tokens *all) {
    int first = n > 0 && ids[0] >= 0 && tokenizer_is_special(tokenizer, ids[0]) ? 1 : 0;
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
    struct earlier_passages earlier;
    struct passage_order order;
    struct passages passages;
    struct picture_set *set; /* a reference: of all its pictures; NULL: it has none */
    struct tokens all;
};

static void composition_open(struct composition *composition,
                             const struct engine_sequence *sequence, struct hits *hits) {
    size_t most = sequence->found.job ? (size_t)sequence->found.job->n : 0;
    const struct sequence_request *asked = &sequence->sequence->asked;
    *composition = (struct composition){.hits = hits, .order = asked->order};
    composition->order.before = turn_key_add(asked->order.before, asked->place.before);
    composition->pictures = xcalloc(most + 1, sizeof *composition->pictures);
    composition->places = xcalloc(most + 1, sizeof *composition->places);
    composition->n_pictures =
        engine_list_found(sequence, composition->pictures, composition->places);
}

static void composition_close(struct composition *composition) {
    free(composition->pictures);
    free(composition->places);
    earlier_close(&composition->earlier);
    passages_free(&composition->passages);
    picture_set_release(composition->set);
    tokens_free(&composition->all);
}

/* The request's pictures and, where the passages stand, those of the passages. */
static void join_pictures(const struct engine_sequence *sequence, struct composition *composition) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    const struct passages *passages = &composition->passages;
    picture_set_release(composition->set);
    if (passages->n_pictures == 0) {
        composition->set = picture_set_hold(asked->pictures);
        return;
    }
    int *chosen = xcalloc((size_t)passages->n_pictures, sizeof *chosen);
    for (int i = 0; i < passages->n_pictures; i++)
        chosen[i] = composition->places[passages->pictures[i]];
    composition->set = picture_set_join(asked->pictures, asked->place.pictures_before,
                                        sequence->found.job->set, chosen, passages->n_pictures);
    free(chosen);
}

/* The prompt with passages in their places in it. */
static enum status place_passages(const struct engine_sequence *sequence,
                                  struct composition *composition, struct error *e) {
    const struct sequence_place *place = &sequence->sequence->asked.place;
    enum status status =
        earlier_place(&composition->earlier, place, &composition->passages, &composition->all, e);
    if (status || composition->set == NULL) return status;
    return picture_set_merge(composition->set, &composition->all, e);
}

/* The prompt, or the encoder's source, with the passages that fit `room` more rows. */
static enum status compose(const struct engine_sequence *sequence, struct composition *composition,
                           int room, struct error *e) {
    const struct engine_options *options = &sequence->engine->o;
    const struct sequence_request *asked = &sequence->sequence->asked;
    const struct earlier_passages *earlier = &composition->earlier;
    const struct passage_sources from = {.hits = composition->hits,
                                         .pictures = composition->pictures,
                                         .n_pictures = composition->n_pictures,
                                         .earlier = earlier->list,
                                         .n_earlier = earlier->n,
                                         .order = &composition->order,
                                         .sections = asked->choice.read == RETRIEVAL_READ_SECTION,
                                         .min_confidence = asked->choice.min_confidence,
                                         .last_number = earlier->last_number};
    struct passages *passages = &composition->passages;
    bool encodes = asked->n_source > 0;
    room -= earlier->n_tokens;
    if (passages_write(&options->passages, options->tokenizer, &from, room, passages, e))
        return e->status;
    join_pictures(sequence, composition);
    composition->all.n = 0;
    if (asked->place.compose && (earlier->n > 0 || passages->text.size > 0))
        return place_passages(sequence, composition, e);
    if (passages->n_pictures > 0 && picture_set_merge(composition->set, &passages->ids, e))
        return e->status;
    compose_before(options->tokenizer, encodes ? asked->source : asked->prompt,
                   encodes ? asked->n_source : asked->n_prompt, &passages->ids, &composition->all);
    return STATUS_OK;
}

/* The same within the context. Within a text, passages may take a token more than by themselves. */
static enum status compose_within(const struct engine_sequence *sequence,
                                  struct composition *composition, struct error *e) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    bool encodes = asked->n_source > 0;
    int most = sequence->engine->o.max_context - (encodes ? 0 : asked->max_tokens);
    int room = most - (encodes ? asked->n_source : asked->n_prompt);
    enum status status = earlier_choose(sequence, room, &composition->earlier, e);
    if (status == STATUS_OK) status = compose(sequence, composition, room, e);
    while (status == STATUS_OK && composition->all.n > most) {
        if (composition->passages.text.size > 0)
            room -= composition->all.n - most;
        else if (composition->earlier.n > 0)
            earlier_drop(sequence, &composition->earlier);
        else
            break;
        status = compose(sequence, composition, room, e);
    }
    return status;
}

/* The hits become the passages that are read. */
static void show_passages(struct hits *hits, struct passages *passages) {
    free(hits->list);
    hits->list = passages->list;
    hits->n = passages->n + passages->n_again;
    hits->n_again = passages->n_again;
    passages->list = NULL;
}

static bool same_row(const struct engine_sequence *sequence, int i, int32_t row,
                     const struct picture_set *pictures) {
    if (engine_sequence_row(sequence, i) != row) return false;
    return row >= 0 || memcmp(&sequence->pictures.set->names[-1 - row], &pictures->names[-1 - row],
                              sizeof *pictures->names) == 0;
}

/* Rows that the session has computed and the new rows begin with, all but one of these at most. */
static int count_kept(const struct engine_sequence *sequence, const int32_t *rows, int n,
                      const struct picture_set *pictures) {
    int most = min_int(session_length(sequence->session), n - 1), kept = 0;
    while (kept < most && same_row(sequence, kept, rows[kept], pictures)) kept++;
    return kept;
}

/* The sequence goes on behind these rows, which have the pictures of *set: it is the sequence's
 * from here on. */
static void restart(struct engine_sequence *sequence, int32_t *rows, int n,
                    struct picture_set **set) {
    const struct engine *engine = sequence->engine;
    struct sequence_answer *answer = &sequence->sequence->answer;
    int kept = count_kept(sequence, rows, n, *set), m = engine->info.chunk_length;
    sequence->n_prefix = n - sequence->n_ids - sequence->sequence->asked.n_prompt;
    free(sequence->passages.rows);
    pictures_part_take(&sequence->pictures, set);
    sequence->rows = sequence->passages.rows = rows;
    sequence->n_rows = n;
    sequence->n_reread = sequence->n_ids;
    sequence->lookup.n_neighbors = 0;
    if (m > 0) {
        answer->grid = grid_make(engine->o.grid, n, m);
        answer->n_chunks =
            grid_complete(answer->grid, n + sequence->sequence->asked.max_tokens - sequence->n_ids);
    }
    session_rewind(sequence->session, kept, engine_sequence_grid(sequence));
    session_move_documents(sequence->session, n - sequence->n_ids);
    sequence->prefix.begun = false;
}

/* The composed text is read: as the encoder's source, or as the decoder's rows. */
static void take_composed(struct engine_sequence *sequence, struct composition *composition) {
    struct tokens *all = &composition->all;
    const struct sequence_request *asked = &sequence->sequence->asked;
    bool encodes = asked->n_source > 0;
    int n_before = encodes ? asked->n_prompt : all->n, n = n_before + sequence->n_ids;
    int32_t *rows = xmalloc((size_t)n * sizeof *rows);
    memcpy(rows, encodes ? asked->prompt : all->ids, (size_t)n_before * sizeof *rows);
    if (sequence->n_ids > 0)
        memcpy(rows + n_before, sequence->sequence->answer.ids,
               (size_t)sequence->n_ids * sizeof *rows);
    restart(sequence, rows, n, &composition->set);
    if (!encodes) return;
    free(sequence->passages.source);
    sequence->source = sequence->passages.source = all->ids;
    sequence->n_source = all->n;
    all->ids = NULL;
}

static int count_same(const struct tokens *all, int most, const int32_t *ids, int n) {
    int same = 0;
    while (same < min_int(n, most) && all->ids[same] == ids[same]) same++;
    return same;
}

/* Tokens of the composed text before its passages: those that it shares with the text without
 * these. Within a text a passage may begin a token before or behind where it does by itself. */
static enum status count_before(const struct engine_sequence *sequence,
                                const struct composition *composition, int *n_before,
                                struct error *e) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    const struct tokens *all = &composition->all;
    const int32_t *ids = asked->n_source > 0 ? asked->source : asked->prompt;
    int n = asked->n_source > 0 ? asked->n_source : asked->n_prompt,
        most = all->n - passages_rows(&composition->passages);
    struct tokens without = {0};
    enum status status = STATUS_OK;
    if (asked->place.compose == NULL) {
        *n_before = n > 0 && tokenizer_is_special(sequence->engine->o.tokenizer, ids[0]) ? 1 : 0;
    } else if (composition->earlier.n == 0) {
        *n_before = count_same(all, most, ids, n);
    } else {
        status = earlier_place(&composition->earlier, &asked->place, NULL, &without, e);
        if (status == STATUS_OK && composition->set)
            status = picture_set_merge(composition->set, &without, e);
        *n_before = count_same(all, most, without.ids, without.n);
    }
    tokens_free(&without);
    return status;
}

/* Documents whose passages stand in the prompt, from the row on where they do: the turn's own from
 * row `before` on, and those of all earlier turns from where the first of them stands. Rows of a
 * decoder that an encoder reads for depend on passages from the first one on. */
static void note_documents(struct engine_sequence *sequence, const struct composition *composition,
                           const struct hits *hits, int before) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    const struct earlier_passages *earlier = &composition->earlier;
    const struct tokens *all = &composition->all;
    bool encodes = asked->n_source > 0;
    int first = encodes ? 0 : count_same(all, all->n, asked->prompt, asked->n_prompt);
    engine_read_hits(sequence, earlier->list, earlier->n, min_int(first, before));
    engine_read_hits(sequence, hits->list, hits->n - hits->n_again, encodes ? 0 : before);
}

/* Whether somebody asks where passages stand. */
static bool places_count(const struct engine_sequence *sequence) {
    return sequence->sequence->asked.told_rows != TOLD_NO_ROWS || sequence->engine->documents;
}

/* Puts passages into the prompt; *hits becomes those that are there. */
static enum status read_passages(struct engine_sequence *sequence, struct hits *hits,
                                 struct error *e) {
    struct composition composition;
    int before = 0;
    composition_open(&composition, sequence, hits);
    enum status status = compose_within(sequence, &composition, e);
    if (status == STATUS_OK && places_count(sequence))
        status = count_before(sequence, &composition, &before, e);
    if (status == STATUS_OK) {
        told_attention_place(sequence, composition.passages.ends, composition.passages.n, before);
        engine_tell_found(sequence, composition.pictures, composition.n_pictures);
        show_passages(hits, &composition.passages);
        passage_order_note(&composition.order, hits->list, hits->n - hits->n_again);
        engine_keep_turn(sequence, &composition.earlier, hits);
        take_composed(sequence, &composition);
        note_documents(sequence, &composition, hits, before);
    }
    composition_close(&composition);
    return status;
}

/* In the engine's loop. */

/* The entry of what was found is complete: its passages are read, and the chunks of the new rows
 * are next. */
static void accept(struct engine_sequence *sequence) {
    struct sequence_answer *answer = &sequence->sequence->answer;
    struct error e = {0};
    if (read_passages(sequence, &answer->found[sequence->passages.n_searched], &e) ||
        engine_quote_passages(sequence, sequence->passages.n_searched, &e)) {
        engine_sequence_finish(sequence, FINISH_ERROR, &e);
        return;
    }
    answer->search_rows[sequence->passages.n_searched] =
        sequence->n_reread > 0 ? sequence->n_rows - 1 : 0;
    sequence->passages.n_searched++;
    comparison_begin(sequence);
    engine_close_prompt(sequence);
}

/* The asker's texts as hits, which point into the request. */
static void take_given(struct engine_sequence *sequence) {
    const struct sequence_passages *asked = &sequence->sequence->asked.passages;
    struct hits *hits = &sequence->sequence->answer.found[0];
    hits->list = xcalloc((size_t)asked->n_given, sizeof *hits->list);
    hits->n = asked->n_given;
    for (int i = 0; i < hits->n; i++)
        hits->list[i] = (struct hit){.document = "", .title = "", .text = asked->given[i]};
}

void engine_seek_passages(struct engine_sequence *sequence) {
    if (sequence->passages.n_searched > 0) engine_sequence_publish(sequence);
    if (!sequence->sequence->asked.passages.search) {
        take_given(sequence);
        accept(sequence);
        return;
    }
    write_query(sequence);
    engine_recall(sequence);
    engine_look_up(sequence, PARKED_FOR_PASSAGES, sequence->passages.n_searched, 1);
}

void engine_accept_passages(struct engine_sequence *sequence) {
    if (!engine_read_found(sequence)) accept(sequence);
}

void engine_accept_pictures(struct engine_sequence *sequence) {
    engine_note_found(sequence);
    accept(sequence);
}
