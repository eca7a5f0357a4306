/* tools/eval/support_question.c: one question: what is read for it, the sentences that are scored
 * as its answer, and their figures (eval_support.h). */
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/json/json_table.h"
#include "server/host/prompt/passage_list.h"
#include "server/host/prompt/support.h"
#include "tools/eval/eval_support.h"
#include "tools/eval/support_plant.h"

const char *const support_kind_names[SUPPORT_KINDS] = {"true",      "numbers", "names",
                                                       "elsewhere", "quoted",  "unquoted"};

/* One question while it is asked. */
struct asked {
    struct support_eval *eval;
    const char *question;
    struct tokens prompt, head; /* and the prompt with passages in it */
    struct hits *hits;          /* [n_searches] found for the prompt's chunks, or for the prompt */
    int n_searches;
    struct neighbor_tokens *read; /* [n_searches] neighbours; NULL: passages are in the prompt */
    struct buffer *texts;         /* [n_texts] what was read, text by text */
    int n_texts;
    struct buffer all; /* the same, one behind the other */
};

static bool attends(const struct asked *asked) {
    return retrieval_attends(asked->eval->model.mode);
}

/* Reading. */

static struct text_span span_of(const struct buffer *text) {
    return (struct text_span){text->data ? text->data : "", text->size};
}

/* Chunks of the prompt that its end closes, each by its own text; or the end of the prompt. */
static enum status search(struct asked *asked, struct error *e) {
    struct subject *model = &asked->eval->model;
    int m = attends(asked) ? model->info->chunk_length : PASSAGE_QUERY_TOKENS, n = asked->prompt.n;
    struct grid grid = grid_make(attends(asked) ? model->grid : GRID_END, n, m);
    int chunks = grid_complete(grid, n), first = attends(asked) ? 0 : chunks - 1;
    enum status status = STATUS_OK;
    asked->n_searches = chunks - first;
    asked->hits = xcalloc((size_t)asked->n_searches, sizeof *asked->hits);
    asked->read = xcalloc((size_t)asked->n_searches, sizeof *asked->read);
    for (int j = first; j < chunks && status == STATUS_OK; j++) {
        int end = grid_end(grid, j),
            begin = attends(asked) ? grid_start(grid, j) : max_int(0, end - m);
        struct buffer text = {0};
        tokenizer_decode(model->tokenizer, asked->prompt.ids + begin, end - begin, true, &text);
        struct retriever_query query = {.text = span_of(&text),
                                        .k = asked->eval->k,
                                        .r = attends(asked) ? model->info->retrieved_length : 0,
                                        .min_similarity = model->min_similarity,
                                        .choice = asked->eval->choice};
        struct hits *hits = &asked->hits[j - first];
        status = retriever_search(model->documents.retriever, &query, 1, hits, e);
        asked->read[j - first] = (struct neighbor_tokens){hits->ids, hits->n};
        buffer_free(&text);
    }
    return status;
}

static struct buffer *add_text(struct asked *asked) {
    asked->texts = xrealloc(asked->texts, ((size_t)asked->n_texts + 1) * sizeof *asked->texts);
    struct buffer *text = &asked->texts[asked->n_texts];
    *text = (struct buffer){0};
    asked->n_texts++;
    return text;
}

/* Neighbours as the model reads them, with what follows each in its document. */
static void take_neighbors(struct asked *asked) {
    const struct subject *model = &asked->eval->model;
    int r = model->info->retrieved_length;
    for (int j = 0; j < asked->n_searches; j++)
        for (int i = 0; i < asked->hits[j].n; i++) {
            const int32_t *ids = asked->hits[j].ids + (ptrdiff_t)i * r;
            int n = 0;
            while (n < r && ids[n] != asked->eval->model.snapshot->info->eod) n++;
            tokenizer_decode(model->tokenizer, ids, n, true, add_text(asked));
        }
    for (int i = 0; i < asked->prompt.n; i++) tokens_append(&asked->head, asked->prompt.ids[i], 0);
}

/* Passages before the prompt, behind the token that begins texts. */
static enum status take_passages(struct asked *asked, struct error *e) {
    const struct subject *model = &asked->eval->model;
    struct passages passages = {0};
    struct passage_sources from = {.hits = &asked->hits[0]};
    int room = asked->eval->context - asked->prompt.n - SUPPORT_ANSWER_TOKENS;
    if (passages_write(&model->passages, model->tokenizer, &from, room, &passages, e))
        return e->status;
    int first = subject_begin(model) >= 0 ? 1 : 0;
    for (int i = 0; i < first; i++) tokens_append(&asked->head, asked->prompt.ids[i], 0);
    for (int i = 0; i < passages.ids.n; i++) tokens_append(&asked->head, passages.ids.ids[i], 0);
    for (int i = first; i < asked->prompt.n; i++)
        tokens_append(&asked->head, asked->prompt.ids[i], 0);
    for (int i = 0; i < passages.n; i++)
        buffer_append(add_text(asked), passages.list[i].text.text, passages.list[i].text.size);
    passages_free(&passages);
    free(asked->read);
    asked->read = NULL;
    return STATUS_OK;
}

static enum status take_found(struct asked *asked, struct error *e) {
    enum status status = STATUS_OK;
    if (attends(asked))
        take_neighbors(asked);
    else
        status = take_passages(asked, e);
    for (int i = 0; i < asked->n_texts; i++) {
        buffer_append(&asked->all, asked->texts[i].data, asked->texts[i].size);
        buffer_append(&asked->all, "\n\n", 2);
    }
    return status;
}

static enum status read_texts(struct asked *asked, struct error *e) {
    struct buffer text = {0};
    buffer_printf(&text, "Question: %s\nAnswer:", asked->question);
    enum status status =
        tokenizer_encode(asked->eval->model.tokenizer, text.data, text.size,
                         TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, &asked->prompt, e);
    buffer_free(&text);
    if (status || search(asked, e)) return e->status;
    return take_found(asked, e);
}

/* Scores. */

/* Log-probabilities of the sentence's tokens behind the prompt, or behind the prompt with what was
 * read. */
static enum status score(struct asked *asked, const struct tokens *sentence, bool reads,
                         double *logprobs, struct error *e) {
    struct subject *model = &asked->eval->model;
    const struct tokens *before = reads ? &asked->head : &asked->prompt;
    int n = before->n + sentence->n, m = max_int(1, model->info->chunk_length);
    int32_t *ids = xmalloc((size_t)n * sizeof *ids);
    double *all = xcalloc((size_t)n, sizeof *all);
    memcpy(ids, before->ids, (size_t)before->n * sizeof *ids);
    memcpy(ids + before->n, sentence->ids, (size_t)sentence->n * sizeof *ids);
    struct scored_sequence sequence = {
        .tokens = ids, .n = n, .from = before->n, .grid = grid_make(model->grid, before->n, m)};
    enum status status = subject_score(model, &sequence, reads ? asked->read : NULL, all, e);
    memcpy(logprobs, all + before->n, (size_t)sentence->n * sizeof *logprobs);
    free(ids);
    free(all);
    return status;
}

/* A sentence, and log-probabilities of its tokens: with what was read, and without. */
struct judged_sentence {
    struct text_span text;
    enum support_kind kind;
    const double *with, *without; /* [n] */
    int n;
};

static enum status write_record(const struct asked *asked, const struct judged_sentence *judged,
                                double figure, struct error *e) {
    struct buffer line = {0};
    struct json_writer w;
    put_begin(&w, &line);
    put_object(&w);
    put_key_string(&w, "question", asked->question);
    put_key_string(&w, "kind", support_kind_names[judged->kind]);
    put_key_string_n(&w, "sentence", judged->text.text, judged->text.size);
    put_key_float(&w, "support", (float)figure);
    put_key_array(&w, "gains");
    for (int i = 0; i < judged->n; i++)
        put_float(&w, (float)(judged->with[i] - judged->without[i]));
    put_array_end(&w);
    put_object_end(&w);
    buffer_append(&line, "\n", 1);
    bool written = fwrite(line.data, 1, line.size, asked->eval->records_out) == line.size;
    buffer_free(&line);
    return written ? STATUS_OK : error_errno(e, "--records: write");
}

static void keep(struct support_eval *eval, enum support_kind kind, double figure) {
    int *n = &eval->n[kind];
    eval->figures[kind] =
        xgrow(eval->figures[kind], *n, &eval->capacity[kind], sizeof *eval->figures[kind]);
    eval->figures[kind][*n] = figure;
    ++*n;
}

struct token_scores {
    double with[SUPPORT_ANSWER_TOKENS], without[SUPPORT_ANSWER_TOKENS];
};

static enum status score_both(struct asked *asked, const struct tokens *tokens,
                              struct token_scores *out, struct error *e) {
    CHECK(tokens->n <= SUPPORT_ANSWER_TOKENS);
    if (score(asked, tokens, true, out->with, e)) return e->status;
    return score(asked, tokens, false, out->without, e);
}

static enum status keep_sentence(struct asked *asked, const struct judged_sentence *judged,
                                 struct error *e) {
    struct support support = {0};
    for (int i = 0; i < judged->n; i++) support_add(&support, judged->with[i], judged->without[i]);
    double figure = support_value(&support);
    keep(asked->eval, judged->kind, figure);
    return asked->eval->records_out ? write_record(asked, judged, figure, e) : STATUS_OK;
}

/* Scores a sentence as the answer; *counts: it is not too long. */
static enum status judge(struct asked *asked, struct text_span text, enum support_kind kind,
                         bool *counts, struct error *e) {
    struct buffer answer = {0};
    struct tokens sentence = {0};
    buffer_append(&answer, " ", 1);
    buffer_append(&answer, text.text, text.size);
    enum status status = tokenizer_encode(asked->eval->model.tokenizer, answer.data, answer.size,
                                          TOKENIZER_PLAIN, &sentence, e);
    *counts = status == STATUS_OK && sentence.n > 0 && sentence.n <= SUPPORT_SENTENCE_TOKENS;
    struct token_scores scores;
    const struct judged_sentence judged = {text, kind, scores.with, scores.without, sentence.n};
    if (*counts) status = score_both(asked, &sentence, &scores, e);
    if (*counts && status == STATUS_OK) status = keep_sentence(asked, &judged, e);
    tokens_free(&sentence);
    buffer_free(&answer);
    return status;
}

/* Planted sentences. */

/* The texts that were read but for number `i`, which a name may come from. */
static void append_others(const struct asked *asked, int i, struct buffer *out) {
    for (int j = 1; j < asked->n_texts; j++) {
        const struct buffer *other = &asked->texts[(i + j) % asked->n_texts];
        buffer_append(out, other->data, other->size);
        buffer_append(out, "\n", 1);
    }
}

static enum status judge_planted(struct asked *asked, struct text_span sentence, int text,
                                 struct error *e) {
    struct buffer numbers = {0}, names = {0}, others = {0};
    bool counts;
    enum status status = STATUS_OK;
    append_others(asked, text, &others);
    if (plant_numbers(sentence, &numbers))
        status = judge(asked, span_of(&numbers), SUPPORT_NUMBERS, &counts, e);
    if (status == STATUS_OK && plant_name(sentence, span_of(&others), &names))
        status = judge(asked, span_of(&names), SUPPORT_NAMES, &counts, e);
    buffer_free(&numbers);
    buffer_free(&names);
    buffer_free(&others);
    return status;
}

static enum status judge_read(struct asked *asked, struct error *e) {
    int judged = 0;
    enum status status = STATUS_OK;
    for (int i = 0; i < asked->n_texts; i++) {
        struct text_span text = span_of(&asked->texts[i]), sentence;
        size_t at = 0;
        while (status == STATUS_OK && judged < SUPPORT_PER_QUESTION &&
               plant_true(text, attends(asked), &at, &sentence)) {
            bool counts;
            status = judge(asked, sentence, SUPPORT_TRUE, &counts, e);
            if (status || !counts) continue;
            judged++;
            status = judge_planted(asked, sentence, i, e);
        }
    }
    return status;
}

static bool is_read(const struct asked *asked, const char *document) {
    for (int j = 0; j < asked->n_searches; j++)
        for (int i = 0; i < asked->hits[j].n; i++)
            if (strcmp(asked->hits[j].list[i].document, document) == 0) return true;
    return false;
}

/* Chunks are drawn by the question's hash. */
static enum status judge_elsewhere(struct asked *asked, struct error *e) {
    const struct snapshot *snapshot = asked->eval->model.snapshot;
    enum status status = STATUS_OK;
    int judged = 0;
    for (uint64_t draw = 0; draw < 100 && judged < SUPPORT_PER_QUESTION && status == STATUS_OK;
         draw++) {
        uint64_t number = hash_bytes(asked->question, strlen(asked->question), draw);
        struct chunk chunk =
            snapshot_chunk(snapshot, (int64_t)(number % (uint64_t)snapshot->n_chunks));
        struct text_span sentence;
        size_t at = 0;
        bool counts = false;
        if (is_read(asked, chunk.document_id) || !plant_true(chunk.text, true, &at, &sentence) ||
            plant_quotes(sentence, span_of(&asked->all)))
            continue;
        status = judge(asked, sentence, SUPPORT_ELSEWHERE, &counts, e);
        judged += counts;
    }
    return status;
}

/* The model's own answer. */

static int32_t likeliest(const struct subject *model) {
    int32_t best = 0;
    for (int32_t id = 1; id < model->info->vocab; id++)
        if (model->logits[id] > model->logits[best]) best = id;
    return best;
}

/* The model's answer as it is written. */
struct own_answer {
    struct session *session;
    const struct neighbor_tokens *read; /* of all chunks; NULL of a model that reads none */
    struct tokens all;                  /* what was read, and the answer */
    int n_read;                         /* rows of the session */
    struct tokens ids;                  /* the answer */
    struct buffer text;
    struct token_scores scores;
    int judged; /* tokens of the sentences so far */
};

/* Reads the tokens that the session has not, and draws the token behind them. */
static enum status draw(struct subject *model, struct own_answer *own, int32_t *next,
                        struct error *e) {
    enum { ROWS = 64 };
    const struct grid grid = session_grid(own->session);
    while (own->n_read < own->all.n) {
        int at = own->n_read, rows = min_int(ROWS, own->all.n - at);
        struct tensor logits;
        struct step_item item = {
            .session = own->session,
            .tokens = own->all.ids + at,
            .n_tokens = rows,
            .neighbors = own->read ? own->read + grid_complete(grid, at) : NULL,
            .n_logits = at + rows == own->all.n};
        if (session_step(model->pool, &item, 1, &logits, e)) return e->status;
        own->n_read += rows;
        if (item.n_logits == 0) continue;
        backend_download(model->model.backend, model->logits, logits.data,
                         (size_t)model->info->padded_vocab * sizeof *model->logits);
        if (backend_sync(model->model.backend, e)) return e->status;
    }
    *next = likeliest(model);
    return STATUS_OK;
}

/* The likeliest tokens, up to an end of text or an empty line; none of them closes a chunk. */
static enum status write_answer(struct asked *asked, struct own_answer *own, struct error *e) {
    struct subject *model = &asked->eval->model;
    int m = max_int(1, model->info->chunk_length);
    for (int i = 0; i < asked->head.n; i++) tokens_append(&own->all, asked->head.ids[i], 0);
    enum status status =
        session_open(&own->session, model->pool, grid_make(model->grid, own->all.n, m), e);
    while (status == STATUS_OK && own->ids.n < SUPPORT_ANSWER_TOKENS) {
        int32_t next = -1;
        status = draw(model, own, &next, e);
        if (status || tokenizer_is_special(model->tokenizer, next)) break;
        tokens_append(&own->all, next, 0);
        tokens_append(&own->ids, next, 0);
        buffer_clear(&own->text);
        tokenizer_decode(model->tokenizer, own->ids.ids, own->ids.n, true, &own->text);
        if (memmem(own->text.data, own->text.size, "\n\n", 2)) break;
    }
    session_close(own->session);
    return status;
}

static enum status judge_part(struct asked *asked, struct own_answer *own, struct sentence sentence,
                              struct error *e) {
    int first = own->judged;
    struct buffer so_far = {0};
    while (own->judged < own->ids.n && so_far.size < sentence.end) {
        own->judged++;
        buffer_clear(&so_far);
        tokenizer_decode(asked->eval->model.tokenizer, own->ids.ids, own->judged, true, &so_far);
        if (so_far.size <= sentence.begin) first = own->judged;
    }
    buffer_free(&so_far);
    struct text_span text = {own->text.data + sentence.begin, sentence.end - sentence.begin};
    bool quotes = plant_quotes(text, span_of(&asked->all));
    struct judged_sentence judged = {text, quotes ? SUPPORT_QUOTED : SUPPORT_UNQUOTED,
                                     own->scores.with + first, own->scores.without + first,
                                     own->judged - first};
    return judged.n > 0 ? keep_sentence(asked, &judged, e) : STATUS_OK;
}

static enum status judge_own(struct asked *asked, struct error *e) {
    struct own_answer own = {.read = asked->read};
    struct neighbor_tokens *none = NULL;
    struct sentence sentence;
    size_t at = 0;
    if (own.read == NULL && asked->eval->model.info->chunk_length > 0)
        own.read = none = xcalloc((size_t)asked->head.n + 1, sizeof *none);
    enum status status = write_answer(asked, &own, e);
    if (status == STATUS_OK && own.ids.n > 0) status = score_both(asked, &own.ids, &own.scores, e);
    while (status == STATUS_OK && sentence_next(span_of(&own.text), &at, &sentence))
        status = judge_part(asked, &own, sentence, e);
    tokens_free(&own.all);
    tokens_free(&own.ids);
    buffer_free(&own.text);
    free(none);
    return status;
}

/* A question. */

static void asked_close(struct asked *asked) {
    for (int j = 0; j < asked->n_searches; j++) hits_free(&asked->hits[j]);
    for (int i = 0; i < asked->n_texts; i++) buffer_free(&asked->texts[i]);
    buffer_free(&asked->all);
    free(asked->hits);
    free(asked->texts);
    free(asked->read);
    tokens_free(&asked->prompt);
    tokens_free(&asked->head);
}

/* A line of the file; what other tools read of it is not. */
struct question_line {
    char *question, *manual;
};
static const struct json_field question_fields[] = {
    {"question", JSON_TEXT, JSON_AT(struct question_line, question), .required = true},
    {"manual", JSON_TEXT, JSON_AT(struct question_line, manual), .text = ""},
};
static const struct json_table question_table = JSON_TABLE(question_fields);

enum status support_score_question(void *context, const struct json *record, struct error *e) {
    struct asked asked = {.eval = context};
    struct question_line line = {0};
    struct json_reader reader = {.e = e};
    enum status status = json_table_read(&reader, &question_table, record, &line);
    asked.question = line.question;
    if (status == STATUS_OK) status = read_texts(&asked, e);
    if (status == STATUS_OK) status = judge_read(&asked, e);
    if (status == STATUS_OK) status = judge_elsewhere(&asked, e);
    if (status == STATUS_OK) status = judge_own(&asked, e);
    asked.eval->n_questions++;
    asked_close(&asked);
    json_table_free(&question_table, &line);
    return status;
}
