/* tools/eval/quote_answers.c: see quote_answers.h. */
#include "tools/eval/quote_answers.h"

#include <stdlib.h>
#include <string.h>

#include "retro/grammar/quote_text.h"
#include "server/host/prompt/quotable.h"

enum { STEP_ROWS = 64 };

/* Opening. */

static enum status open_grammar(struct quote_writer *writer, struct error *e) {
    const struct model_info *info = writer->model.info;
    struct grammar_draft draft = {0};
    vocab_open(&writer->vocab, writer->model.tokenizer, info->vocab, info->ends.ids, info->ends.n);
    grammar_draft_open(&draft);
    enum status status = quote_text_draft(&draft, e);
    if (status == STATUS_OK) status = grammar_open(&writer->grammar, &draft, &writer->vocab, e);
    grammar_draft_free(&draft);
    return status;
}

static enum status check_reading(const struct quote_writer *writer, struct error *e) {
    const struct subject *model = &writer->model;
    if (model->snapshot == NULL)
        return error_set(e, STATUS_INVALID, "retrieval.collection is needed: --config or --set");
    if (model->info->reads_source)
        return error_set(e, STATUS_UNSUPPORTED,
                         "answers of models with an encoder cannot be held to quotes");
    if (model->mode != RETRIEVAL_PROMPT)
        return error_set(e, STATUS_UNSUPPORTED,
                         "retrieval.mode is %s, and retro-eval quotes reads passages in the "
                         "prompt: --set retrieval.mode=prompt",
                         retrieval_mode_name(model->mode));
    return STATUS_OK;
}

enum status quote_writer_open(struct quote_writer *writer, const struct config *config,
                              struct error *e) {
    const char *folder = config->model.path;
    writer->quote_words = config->retrieval.choice.quote_words;
    if (subject_open(&writer->model, config, folder, e) ||
        subject_open_retrieval(&writer->model, config, 0, e) || check_reading(writer, e) ||
        check_context(config, writer->model.info, &writer->context, e) ||
        subject_open_pool(&writer->model, writer->context, e) || open_grammar(writer, e))
        return e->status;
    enum status status = chat_open(&writer->chat, folder, e);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

void quote_writer_close(struct quote_writer *writer) {
    grammar_release(writer->grammar);
    vocab_close(&writer->vocab);
    chat_close(writer->chat);
    subject_close(&writer->model);
}

/* Prompts. */

static enum status find_passages(struct quote_writer *writer, const char *question,
                                 struct quote_answer *out, struct error *e) {
    struct subject *model = &writer->model;
    struct retriever_query query = {.text = {question, strlen(question)},
                                    .k = model->k_passages,
                                    .min_similarity = model->min_similarity,
                                    .choice = model->ranking,
                                    .snapshot = model->snapshot};
    struct passage_sources from = {.hits = &out->hits};
    int room = writer->context - writer->max_tokens - (int)strlen(question);
    if (retriever_search(model->documents.retriever, &query, 1, &out->hits, e)) return e->status;
    return passages_write(&model->passages, model->tokenizer, &from, room, &out->passages, e);
}

/* A user's message with the passages before the question. */
static enum status write_chat(const struct quote_writer *writer, struct text_span content,
                              struct tokens *ids, struct error *e) {
    struct buffer request = {0};
    struct json_writer w;
    struct json *json;
    struct chat_input in;
    struct template_output text = {0};
    const struct template *template;
    put_begin(&w, &request);
    put_object(&w);
    put_key_array(&w, "messages");
    put_object(&w);
    put_key_string(&w, "role", "user");
    put_key_string_n(&w, "content", content.text, content.size);
    put_object_end(&w);
    put_array_end(&w);
    put_object_end(&w);
    enum status status =
        json_parse_any(&json, (struct text_span){request.data, request.size}, "question", e);
    if (status == STATUS_OK) {
        status = chat_input_read(&in, json, e);
        if (status == STATUS_OK) status = chat_render(writer->chat, &in, &text, e);
        if (status == STATUS_OK) status = chat_pick(writer->chat, &in, &template, e);
        if (status == STATUS_OK)
            status = chat_encode(template, writer->model.tokenizer, &text, ids, e);
        json_close(json);
    }
    template_output_free(&text);
    buffer_free(&request);
    return status;
}

static enum status write_prompt(const struct quote_writer *writer, const char *question,
                                const struct passages *passages, struct tokens *ids,
                                struct error *e) {
    struct buffer content = {0};
    buffer_append(&content, passages->text.data, passages->text.size);
    buffer_append_string(&content, question);
    struct text_span text = {content.data, content.size};
    enum status status = writer->chat ? write_chat(writer, text, ids, e)
                                      : tokenizer_encode(writer->model.tokenizer, text.text,
                                                         text.size, TOKENIZER_ADD_SPECIAL, ids, e);
    buffer_free(&content);
    if (status == STATUS_OK && ids->n + writer->max_tokens > writer->context)
        return error_set(e, STATUS_INVALID,
                         "a question and its passages have %d tokens, with --tokens %d more than "
                         "the %d of the context (server.max_context); retrieval.prompt_tokens "
                         "says how long passages are",
                         ids->n, writer->max_tokens, writer->context);
    return status;
}

/* Writing. */

/* The likeliest id that may be written. */
static int32_t draw(const struct quote_writer *writer, const uint32_t *mask) {
    int32_t best = -1;
    const float *logits = writer->model.logits;
    for (int32_t id = 0; id < writer->model.info->vocab; id++) {
        if (mask && !(mask[id / 32] >> (id % 32) & 1)) continue;
        if (best < 0 || logits[id] > logits[best]) best = id;
    }
    return best;
}

/* Reads the rows; the logits behind the last are then on the host. */
static enum status read_rows(struct quote_writer *writer, struct session *session,
                             const int32_t *ids, int n, struct error *e) {
    struct subject *model = &writer->model;
    static const struct neighbor_tokens none[STEP_ROWS];
    struct tensor logits = {0};
    for (int at = 0; at < n;) {
        int rows = min_int(STEP_ROWS, n - at);
        struct step_item item = {.session = session,
                                 .tokens = ids + at,
                                 .n_tokens = rows,
                                 .neighbors = model->info->chunk_length > 0 ? none : NULL,
                                 .n_logits = at + rows == n};
        if (session_step(model->pool, &item, 1, &logits, e)) return e->status;
        at += rows;
    }
    backend_download(model->model.backend, model->logits, logits.data,
                     (size_t)model->info->padded_vocab * sizeof *model->logits);
    return backend_sync(model->model.backend, e);
}

/* Whether the token ends the text; else it is added. */
static bool add_token(struct quote_writer *writer, int32_t token, struct detokenizer *detokenizer,
                      struct buffer *text) {
    int32_t turn_end = writer->chat ? chat_end(writer->chat, writer->model.tokenizer) : -1;
    if (token < 0 || token == turn_end || end_ids_have(&writer->model.info->ends, token))
        return true;
    if (!tokenizer_is_special(writer->model.tokenizer, token))
        detokenizer_push(detokenizer, writer->model.tokenizer, token, text);
    return false;
}

static enum status write_text(struct quote_writer *writer, const struct tokens *prompt,
                              struct matcher *matcher, struct buffer *text, struct error *e) {
    struct subject *model = &writer->model;
    struct detokenizer detokenizer = {.started = true};
    struct session *session = NULL;
    int m = model->info->chunk_length;
    struct grid grid = m > 0 ? grid_make(GRID_START, prompt->n, m) : (struct grid){0};
    enum status status = session_open(&session, model->pool, grid, e);
    if (status == STATUS_OK) status = read_rows(writer, session, prompt->ids, prompt->n, e);
    for (int i = 0; i < writer->max_tokens && status == STATUS_OK; i++) {
        const uint32_t *mask = NULL;
        if (!writer->free && matcher_mask(matcher, &mask, e)) break;
        int32_t token = draw(writer, mask);
        if (add_token(writer, token, &detokenizer, text)) break;
        if (!writer->free && matcher_note(matcher, token, e)) break;
        status = read_rows(writer, session, &token, 1, e);
    }
    detokenizer_finish(&detokenizer, text);
    session_close(session);
    return e->status;
}

static enum status answer_from(struct quote_writer *writer, const char *question,
                               struct quote_answer *out, struct error *e) {
    const struct matcher_begin begin = {
        .after = -1, .optional = -1, .quote_words = writer->quote_words};
    const struct model_info *info = writer->model.info;
    struct tokens prompt = {0};
    struct matcher matcher;
    enum status status = write_prompt(writer, question, &out->passages, &prompt, e);
    int32_t ends[ARRAY_COUNT(info->ends.ids) + 1];
    int n_ends = info->ends.n;
    memcpy(ends, info->ends.ids, (size_t)n_ends * sizeof *ends);
    int32_t turn_end = writer->chat ? chat_end(writer->chat, writer->model.tokenizer) : -1;
    if (turn_end >= 0) {
        ends[n_ends] = turn_end;
        n_ends++;
    }
    matcher_open(&matcher, writer->grammar, &begin, info->vocab, ends, n_ends);
    for (int i = 0; i < out->passages.n && status == STATUS_OK; i++) {
        const struct hit *hit = &out->passages.list[i];
        struct passage_text passage = quotable_text(hit, hit->text);
        status = matcher_add_passage(&matcher, &passage, i, e);
    }
    if (status == STATUS_OK) status = write_text(writer, &prompt, &matcher, &out->text, e);
    matcher_close(&matcher);
    tokens_free(&prompt);
    return status;
}

enum status quote_writer_answer(struct quote_writer *writer, const char *question,
                                struct quote_answer *out, struct error *e) {
    *out = (struct quote_answer){0};
    *e = (struct error){0};
    enum status status = find_passages(writer, question, out, e);
    if (status == STATUS_OK) status = answer_from(writer, question, out, e);
    if (status) quote_answer_free(out);
    return status;
}

void quote_answer_free(struct quote_answer *answer) {
    passages_free(&answer->passages);
    hits_free(&answer->hits);
    buffer_free(&answer->text);
    *answer = (struct quote_answer){0};
}
