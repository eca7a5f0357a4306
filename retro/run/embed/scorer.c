/* retro/run/embed/scorer.c: pairs of texts through an encoder, each a text of a pass
 * (text_stack.h). See scorer.h. The embedding kernel adds one token type to all rows; here the
 * second text has a type of its own, so the table of positions is kept twice, with either type
 * added. */
#include "retro/run/embed/scorer.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/run/embed/sequence_head.h"
#include "retro/run/embed/text_stack.h"
#include "retro/weights/gguf_folder.h"

struct scorer {
    struct text_stack pairs;
    struct tensor
        places; /* f32 [2 P, d]: positions with type 0, positions with the second text's type; data
                   NULL where the model has neither, and turns rows by their places */
    bool asks;  /* a decoder is asked whether the text answers the query, and says yes or no */
    char *instruction;            /* owned, in the question; NULL where none is asked */
    struct tokens prefix, suffix; /* what the tokenizer puts before and behind a text, or the
                                     question's own words */
    int room;     /* of a decoder that is asked: tokens of a query and a text together */
    bool doubled; /* two suffixes are between the texts: RoBERTa's kinds and MPNet */
    int max_tokens;
    uint64_t hash;
};

/* The question of Qwen3-Reranker, word for word as its model card has it. */
static const char question_before[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
static const char usual_instruction[] =
    "Given a web search query, retrieve relevant passages that answer the query";
static const char question_behind[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

/* Opening. */

static enum status scorer_check(const struct text_stack *stack, const char *folder,
                                struct error *e) {
    const struct model *model = stack->model;
    if (model->spec.type_vocab > 0 && !model->spec.learned_positions)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: a reranker with token types and rotary positions is not supported",
                         folder);
    bool asks = strcmp(model->info.family, "qwen3") == 0;
    if ((model_has_stack(model, STACK_DECODER) && !asks) || model->spec.joint > 0 ||
        stack->stack->dims.reads != EDGE_NONE)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: a %s model is no reranker; one is BERT's kind, or Qwen3-Reranker",
                         folder, model->info.family);
    return STATUS_OK;
}

static enum status find_word(const struct text_stack *stack, const char *word, int *id,
                             struct error *e) {
    struct tokens tokens = {0};
    enum status status =
        tokenizer_encode(stack->tokenizer, word, strlen(word), TOKENIZER_PLAIN, &tokens, e);
    if (status == STATUS_OK && tokens.n != 1)
        status = error_set(e, STATUS_UNSUPPORTED, "%s: \"%s\" is %d tokens; a reranker has one",
                           stack->folder.model, word, tokens.n);
    if (status == STATUS_OK) *id = tokens.ids[0];
    tokens_free(&tokens);
    return status;
}

/* Opens the tokenizer too, which knows the ids of the two answers. */
static enum status scorer_open_answer(struct scorer *scorer, struct error *e) {
    struct text_stack *stack = &scorer->pairs;
    int yes, no;
    if (text_stack_open_tokenizer(stack, e) || find_word(stack, "yes", &yes, e) ||
        find_word(stack, "no", &no, e))
        return e->status;
    scorer->asks = true;
    return sequence_head_read_answer(&stack->folder, stack->stack->dims.hidden, yes, no, e);
}

static enum status scorer_open_head(struct scorer *scorer, struct error *e) {
    struct text_stack *stack = &scorer->pairs;
    if (model_has_stack(stack->model, STACK_DECODER)) return scorer_open_answer(scorer, e);
    return sequence_head_read(&stack->folder, stack->stack->dims.hidden, e);
}

static enum status scorer_find_limit(struct scorer *scorer, int wanted, struct error *e) {
    const struct encoder_folder *folder = &scorer->pairs.folder;
    int positions = text_stack_positions(&scorer->pairs), limit = folder->tokenizer_tokens;
    if (limit == 0 || (positions > 0 && limit > positions)) limit = positions;
    if (limit == 0 && wanted == 0)
        return error_set(e, STATUS_INVALID,
                         "%s: no file says how long a text may be: set retrieval.reranker_tokens",
                         folder->model);
    scorer->max_tokens = wanted > 0 && (limit == 0 || wanted < limit) ? wanted : limit;
    return STATUS_OK;
}

static enum status scorer_open_model(struct scorer *scorer, const char *folder,
                                     const struct encoder_options *options, struct error *e) {
    struct text_stack *stack = &scorer->pairs;
    if (encoder_folder_read_model(&stack->folder, folder, e) ||
        text_stack_load(stack, &options->model, e) || scorer_check(stack, folder, e) ||
        scorer_open_head(scorer, e))
        return e->status;
    return scorer_find_limit(scorer, options->max_tokens, e);
}

static enum status scorer_open_question(struct scorer *scorer, struct error *e) {
    const struct tokenizer *tokenizer = scorer->pairs.tokenizer;
    if (tokenizer_encode(tokenizer, question_before, sizeof question_before - 1,
                         TOKENIZER_PARSE_SPECIAL, &scorer->prefix, e))
        return e->status;
    return tokenizer_encode(tokenizer, question_behind, sizeof question_behind - 1,
                            TOKENIZER_PARSE_SPECIAL, &scorer->suffix, e);
}

/* GGUF files call RoBERTa's kinds BERT; these have one type of tokens, and BERT two. */
static bool is_doubled(const struct text_stack *stack) {
    const char *family = stack->model->info.family;
    struct buffer file = {0};
    bool gguf = gguf_find_file(stack->folder.model, &file);
    buffer_free(&file);
    if (gguf) return strcmp(family, "bert") == 0 && stack->model->spec.type_vocab == 1;
    return strcmp(family, "roberta") == 0 || strcmp(family, "xlm-roberta") == 0 ||
           strcmp(family, "mpnet") == 0;
}

static enum status scorer_open_tokenizer(struct scorer *scorer, struct error *e) {
    if (scorer->asks) return scorer_open_question(scorer, e);
    if (text_stack_open_tokenizer(&scorer->pairs, e)) return e->status;
    const struct tokenizer *tokenizer = scorer->pairs.tokenizer;
    struct tokens around = {0};
    enum status status = tokenizer_encode(tokenizer, "", 0, TOKENIZER_ADD_SPECIAL, &around, e);
    int n_prefix = around.n - tokenizer_suffix(tokenizer);
    for (int i = 0; i < around.n && status == STATUS_OK; i++)
        tokens_append(i < n_prefix ? &scorer->prefix : &scorer->suffix, around.ids[i], 0);
    tokens_free(&around);
    scorer->doubled = is_doubled(&scorer->pairs);
    return status;
}

/* Rows of the embedding's table as they lie on the device, f32; a table that is missing gives
 * zeros. */
static enum status scorer_read_table(const struct text_stack *stack, const struct tensor *table,
                                     int row, int rows, float *out, struct error *e) {
    size_t d = (size_t)stack->stack->dims.hidden, bytes = (size_t)rows * d * sizeof *out;
    memset(out, 0, bytes);
    if (table->data == NULL || row >= table->rows) return STATUS_OK;
    const char *from = (const char *)table->data + (size_t)row * d * sizeof *out;
    backend_download(stack->backend, out, from, bytes);
    return backend_sync(stack->backend, e);
}

/* Rows of scorer.places. */
static size_t scorer_places(const struct text_stack *stack) {
    const struct model_spec *spec = &stack->model->spec;
    return spec->learned_positions ? 2 * (size_t)max_int(1, spec->max_positions) : 0;
}

/* Where there is one type, both texts have it. */
static enum status scorer_open_places(struct scorer *scorer, struct error *e) {
    const struct text_stack *stack = &scorer->pairs;
    const struct embedding *table = &stack->model->embedding;
    if (scorer_places(stack) == 0) return STATUS_OK;
    size_t d = (size_t)stack->stack->dims.hidden, rows = scorer_places(stack) / 2;
    size_t bytes = 2 * rows * d * sizeof(float);
    float *host = xmalloc(bytes), *types = xmalloc(2 * d * sizeof *types);
    void *memory;
    int second = table->type.data && table->type.rows > 1;
    enum status status = scorer_read_table(stack, &table->position, 0, (int)rows, host, e);
    if (status == STATUS_OK) status = scorer_read_table(stack, &table->type, 0, 1, types, e);
    if (status == STATUS_OK)
        status = scorer_read_table(stack, &table->type, second, 1, types + d, e);
    if (status == STATUS_OK) status = backend_alloc(stack->backend, &memory, bytes, "positions", e);
    if (status == STATUS_OK) {
        scorer->places = tensor_make(memory, DTYPE_F32, 2 * (int)rows, (int)d);
        memcpy(host + rows * d, host, rows * d * sizeof *host);
        for (size_t i = 0; i < 2 * rows * d; i++) host[i] += types[(i >= rows * d ? d : 0) + i % d];
        backend_upload(stack->backend, memory, host, bytes);
        status = backend_sync(stack->backend, e);
    }
    free(host);
    free(types);
    return status;
}

static int scorer_rows(const struct scorer *scorer, const struct encoder_options *options) {
    return max_int(options->max_rows, scorer->max_tokens);
}

static enum status scorer_take_instruction(struct scorer *scorer, const char *instruction,
                                           struct error *e) {
    if (scorer->asks) {
        scorer->instruction = xstrdup(instruction[0] ? instruction : usual_instruction);
        return STATUS_OK;
    }
    if (instruction[0] == '\0') return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s: a %s model reads no instruction; leave out "
                     "retrieval.reranker_instruction",
                     scorer->pairs.folder.model, scorer->pairs.model->info.family);
}

/* Tokens around a query and a text. */
static int scorer_marks(const struct scorer *scorer) {
    if (scorer->asks) return scorer->prefix.n + scorer->suffix.n;
    return scorer->prefix.n + (scorer->doubled ? 3 : 2) * scorer->suffix.n;
}

/* A text may have any bytes, NULs too. */
static void write_question(struct buffer *out, const char *instruction, struct text_span query,
                           struct text_span text) {
    buffer_clear(out);
    buffer_printf(out, "<Instruct>: %s\n<Query>: ", instruction);
    buffer_append(out, query.text, query.size);
    buffer_append_string(out, "\n<Document>: ");
    buffer_append(out, text.text, text.size);
}

/* Rows of a pair that stand around every query and text. */
static enum status scorer_count_fixed(const struct scorer *scorer, int *n, struct error *e) {
    struct buffer question = {0};
    struct tokens tokens = {0};
    const struct text_span none = {"", 0};
    *n = scorer_marks(scorer);
    if (!scorer->asks) return STATUS_OK;
    write_question(&question, scorer->instruction, none, none);
    enum status status = tokenizer_encode(scorer->pairs.tokenizer, question.data, question.size,
                                          TOKENIZER_PLAIN, &tokens, e);
    *n += tokens.n;
    tokens_free(&tokens);
    buffer_free(&question);
    return status;
}

/* A question whose own words fill the pair would leave nothing of documents to judge. */
static enum status scorer_find_room(struct scorer *scorer, struct error *e) {
    const char *folder = scorer->pairs.folder.model;
    int most = scorer->max_tokens, fixed;
    if (scorer_count_fixed(scorer, &fixed, e)) return e->status;
    scorer->room = most - fixed;
    if (!scorer->asks && fixed + 2 > most)
        return error_set(e, STATUS_INVALID, "%s: %d tokens of a pair leave no room for texts",
                         folder, most);
    if (!scorer->asks || fixed <= most - most / 4) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s: the question around a query and a document has %d tokens, and a pair %d: "
                     "less than a quarter is left to both; shorten "
                     "retrieval.reranker_instruction, or raise retrieval.reranker_tokens",
                     folder, fixed, most);
}

enum status scorer_open(struct scorer **out, const char *folder, struct backend *backend,
                        const struct scorer_options *asked, struct error *e) {
    const struct encoder_options *options = &asked->encoder;
    struct scorer *scorer = xcalloc(1, sizeof *scorer);
    scorer->pairs.backend = backend;
    enum status status = scorer_open_model(scorer, folder, options, e);
    if (status == STATUS_OK) status = scorer_take_instruction(scorer, asked->instruction, e);
    if (status == STATUS_OK) status = scorer_open_tokenizer(scorer, e);
    if (status == STATUS_OK) scorer->hash = tokenizer_hash(scorer->pairs.tokenizer);
    if (status == STATUS_OK) status = weights_hash(scorer->pairs.folder.model, &scorer->hash, e);
    if (status == STATUS_OK)
        status = text_stack_open_rows(&scorer->pairs, scorer_rows(scorer, options), e);
    if (status == STATUS_OK) status = scorer_open_places(scorer, e);
    if (status == STATUS_OK) status = scorer_find_room(scorer, e);
    if (status) {
        scorer_close(scorer);
        return status;
    }
    *out = scorer;
    return STATUS_OK;
}

enum status scorer_measure(struct encoder_bytes *out, const char *folder, struct backend *backend,
                           const struct scorer_options *options, struct error *e) {
    struct scorer scorer = {.pairs = {.backend = backend}};
    struct encoder_options checked = options->encoder;
    checked.model.check_only = true;
    *out = (struct encoder_bytes){0};
    enum status status = scorer_open_model(&scorer, folder, &checked, e);
    if (status == STATUS_OK) status = scorer_take_instruction(&scorer, options->instruction, e);
    if (status == STATUS_OK && scorer.asks) status = scorer_open_question(&scorer, e);
    if (status == STATUS_OK && scorer.asks) status = scorer_find_room(&scorer, e);
    if (status == STATUS_OK)
        status = text_stack_measure(out, &scorer.pairs, scorer_rows(&scorer, &checked), e);
    if (status == STATUS_OK)
        out->rows +=
            scorer_places(&scorer.pairs) * (size_t)scorer.pairs.stack->dims.hidden * sizeof(float);
    text_stack_close(&scorer.pairs);
    tokens_free(&scorer.prefix);
    tokens_free(&scorer.suffix);
    free(scorer.instruction);
    return status;
}

void scorer_close(struct scorer *scorer) {
    if (scorer == NULL) return;
    backend_release(scorer->pairs.backend, scorer->places.data);
    text_stack_close(&scorer->pairs);
    tokens_free(&scorer->prefix);
    tokens_free(&scorer->suffix);
    free(scorer->instruction);
    free(scorer);
}

int scorer_max_tokens(const struct scorer *scorer) { return scorer->max_tokens; }
uint64_t scorer_hash(const struct scorer *scorer) { return scorer->hash; }

/* Scoring. */

struct scoring_call {
    struct scorer *scorer;
    struct tokens query, text;
    struct buffer question;
    float *logits; /* of the next pass */
};

/* How many tokens of each text are kept of `room` in all: the shorter one whole where it can be,
 * else half each. */
static void scorer_cut(int room, int *a, int *b) {
    int *shorter = *a <= *b ? a : b, *longer = *a <= *b ? b : a;
    if (*shorter + *longer <= room) return;
    *longer = *shorter > room ? *shorter : max_int(*shorter, room - *shorter);
    if (*shorter + *longer <= room) return;
    *shorter = room / 2;
    *longer = room / 2 + room % 2;
}

static void scorer_add_tokens(struct scorer *scorer, const struct tokens *tokens, int n,
                              int *position, bool second) {
    int table = second ? scorer->places.rows / 2 : 0;
    for (int i = 0; i < n; i++) {
        int place = text_stack_place(&scorer->pairs, tokens->ids[i], position);
        text_stack_add_row(&scorer->pairs, tokens->ids[i], table + place);
    }
}

/* [CLS] query [SEP] text [SEP], or <s> query </s></s> text </s>. */
static void scorer_lay_out(struct scoring_call *call, int n_query, int n_text) {
    struct scorer *scorer = call->scorer;
    int position = scorer->pairs.model->spec.position_pad + 1;
    scorer_add_tokens(scorer, &scorer->prefix, scorer->prefix.n, &position, false);
    scorer_add_tokens(scorer, &call->query, n_query, &position, false);
    scorer_add_tokens(scorer, &scorer->suffix, scorer->suffix.n, &position, false);
    if (scorer->doubled)
        scorer_add_tokens(scorer, &scorer->suffix, scorer->suffix.n, &position, false);
    scorer_add_tokens(scorer, &call->text, n_text, &position, true);
    scorer_add_tokens(scorer, &scorer->suffix, scorer->suffix.n, &position, true);
    text_stack_end_text(&scorer->pairs);
}

static enum status scorer_forward(struct scoring_call *call, struct error *e) {
    struct scorer *scorer = call->scorer;
    struct text_stack *stack = &scorer->pairs;
    const struct model *model = stack->model;
    if (stack->n_texts == 0) return STATUS_OK;
    struct tensor x = text_stack_input(stack);
    backend_embed(stack->backend,
                  &(struct embed_args){.y = x,
                                       .word = &model->embedding.word,
                                       .position = scorer->places.data ? &scorer->places : NULL,
                                       .ids = stack->ids,
                                       .positions = stack->positions,
                                       .scale = model->spec.embedding_scale});
    if (model->embedding.norm.gamma) stack_norm(model, stack->stack, x, x, &model->embedding.norm);
    struct pooling_rows rows = text_stack_forward(stack);

    float *logits = call->logits;
    call->logits += rows.n;
    return pooling_run(stack->pooling, &rows, 1, true, logits, e);
}

static enum status scorer_encode(const struct scorer *scorer, struct text_span text,
                                 struct tokens *out, struct error *e) {
    out->n = 0;
    return tokenizer_encode(scorer->pairs.tokenizer, text.text, text.size, TOKENIZER_PLAIN, out, e);
}

/* A long pair keeps of the query half of what it and the text may have, at whole characters. */
static enum status cut_query(struct scoring_call *call, struct text_span query,
                             struct text_span *kept, struct error *e) {
    int most = call->scorer->room / 2;
    *kept = query;
    if (scorer_encode(call->scorer, query, &call->query, e)) return e->status;
    if (call->query.n <= most) return STATUS_OK;
    kept->size = call->query.starts[most];
    while (kept->size > 0 && !utf8_begins(query.text[kept->size])) kept->size--;
    return STATUS_OK;
}

static enum status encode_question(struct scoring_call *call, struct text_span query,
                                   struct text_span text, struct error *e) {
    write_question(&call->question, call->scorer->instruction, query, text);
    return scorer_encode(call->scorer, (struct text_span){call->question.data, call->question.size},
                         &call->text, e);
}

/* Query and text are read as one text. Where it is too long the end of a long query is cut, and
 * then its own end, which is the document's. */
static enum status score_questions(struct scoring_call *call, const struct scorer_request *request,
                                   struct error *e) {
    struct scorer *scorer = call->scorer;
    struct text_stack *stack = &scorer->pairs;
    int room = scorer->max_tokens - scorer_marks(scorer);
    struct text_span kept;
    if (cut_query(call, request->query, &kept, e)) return e->status;
    for (int i = 0; i < request->n; i++) {
        struct text_span text = request->texts[i];
        if (encode_question(call, request->query, text, e)) return e->status;
        bool cuts = call->text.n > room && kept.size < request->query.size;
        if (cuts && encode_question(call, kept, text, e)) return e->status;
        int n = min_int(call->text.n, room), rows = n + scorer_marks(scorer), position = 0;
        if (!text_stack_fits(stack, rows) && scorer_forward(call, e)) return e->status;
        scorer_add_tokens(scorer, &scorer->prefix, scorer->prefix.n, &position, false);
        scorer_add_tokens(scorer, &call->text, n, &position, false);
        scorer_add_tokens(scorer, &scorer->suffix, scorer->suffix.n, &position, false);
        text_stack_end_text(stack);
        if (request->n_tokens) request->n_tokens[i] = rows;
    }
    return scorer_forward(call, e);
}

static enum status score_pairs(struct scoring_call *call, const struct scorer_request *request,
                               struct error *e) {
    const struct scorer *scorer = call->scorer;
    int room = scorer->max_tokens - scorer_marks(scorer);
    for (int i = 0; i < request->n; i++) {
        if (scorer_encode(scorer, request->texts[i], &call->text, e)) return e->status;
        int n_query = call->query.n, n_text = call->text.n;
        scorer_cut(room, &n_query, &n_text);
        int rows = n_query + n_text + scorer_marks(scorer);
        if (!text_stack_fits(&scorer->pairs, rows) && scorer_forward(call, e)) return e->status;
        scorer_lay_out(call, n_query, n_text);
        if (request->n_tokens) request->n_tokens[i] = rows;
    }
    return scorer_forward(call, e);
}

enum status scorer_score(struct scorer *scorer, const struct scorer_request *request,
                         struct error *e) {
    struct scoring_call call = {.scorer = scorer, .logits = request->logits};
    text_stack_begin(&scorer->pairs);
    enum status status = STATUS_OK;
    if (!scorer->asks) status = scorer_encode(scorer, request->query, &call.query, e);
    if (status == STATUS_OK)
        status = scorer->asks ? score_questions(&call, request, e) : score_pairs(&call, request, e);
    buffer_free(&call.question);
    tokens_free(&call.query);
    tokens_free(&call.text);
    return status;
}
