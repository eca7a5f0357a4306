/* retro/run/embed/encoder.c: the embedder: tokenise, passes of packed texts (text_stack.h),
 * pooling. See encoder.h. */
#include "retro/run/embed/encoder.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "retro/run/embed/dual_encoder.h"
#include "retro/run/embed/sequence_head.h"
#include "retro/run/embed/sparse_head.h"
#include "retro/run/embed/text_stack.h"
#include "retro/weights/weights.h"

struct encoder {
    struct text_stack texts;
    struct dual_encoder
        *joint; /* NULL: vectors are pooled rows; else the space of texts and pictures */
    struct sparse_head *sparse; /* NULL: the folder has none */
    bool is_sparse;
    int dim, max_tokens;
    uint64_t hash;
};

/* A decoder is an embedder where the folder says how its rows become a vector. */
static enum status check_model(const struct text_stack *stack, const char *folder,
                               struct error *e) {
    const struct model *model = stack->model;
    if (stack->stack->dims.reads != EDGE_NONE)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "%s: a %s model is no embedder; one is BERT's kind, or a decoder with modules.json",
            folder, model->info.family);
    if (model_has_stack(model, STACK_DECODER) && !stack->folder.described)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "%s: a %s model has a decoder, and no modules.json says how its rows become "
            "a vector; in a GGUF "
            "file pooling_type would",
            folder, model->info.family);
    return STATUS_OK;
}

/* The product behind the rows is linear, as the poolings beside it must be, so it follows them. */
static enum status add_product(struct text_stack *stack, struct error *e) {
    static const char *const names[] = {"embedding_projection.weight",
                                        "language_model.embedding_projection.weight",
                                        "model.language_model.embedding_projection.weight"};
    struct encoder_folder *folder = &stack->folder;
    const int widened = stack->model->spec.widened;
    struct weights *weights;
    if (widened == 0) return STATUS_OK;
    if (folder->n_modes != 1 || folder->modes[0] == POOLING_MAX ||
        folder->n_modules == ENCODER_MAX_MODULES)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: a %s model needs one pooling, which is not the maximum, and fewer "
                         "than %d modules behind it",
                         folder->model, stack->model->info.family, ENCODER_MAX_MODULES);
    if (weights_open(&weights, folder->model, e)) return e->status;
    const char *name = names[0];
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (weights_find(weights, names[i])) name = names[i];
    weights_close(weights);

    memmove(&folder->modules[1], &folder->modules[0],
            (size_t)folder->n_modules * sizeof folder->modules[0]);
    folder->n_modules++;
    folder->modules[0] = (struct encoder_module){.n_in = stack->stack->dims.hidden,
                                                 .n_out = widened,
                                                 .activation = DENSE_IDENTITY,
                                                 .folder = xstrdup(folder->model),
                                                 .weight_name = name};
    if (folder->pooled == widened) folder->pooled = -1; /* of rows behind the product */
    return STATUS_OK;
}

/* The most tokens of a text: the folder's word, else the smaller of the tokenizer's and the model's
 * positions; and the caller may ask for fewer. */
static enum status find_max_tokens(const struct text_stack *stack, int wanted, int *max_tokens,
                                   struct error *e) {
    const struct encoder_folder *folder = &stack->folder;
    int positions = text_stack_positions(stack), limit = folder->max_tokens;
    if (limit == 0) limit = folder->tokenizer_tokens;
    if (limit == 0 || (folder->max_tokens == 0 && positions > 0))
        limit = limit ? min_int(limit, positions) : positions;
    if (stack->model->spec.learned_positions && limit > positions)
        return error_set(e, STATUS_INVALID, "%s: max_seq_length is %d, the model has %d positions",
                         folder->model, limit, positions);
    if (limit == 0 && wanted == 0)
        return error_set(e, STATUS_INVALID,
                         "%s: no file says how long a text may be: set retrieval.embedder_tokens",
                         folder->model);
    if (limit > 0 && wanted > limit)
        return error_set(e, STATUS_INVALID,
                         "retrieval.embedder_tokens is %d; %s reads %d tokens of a text", wanted,
                         folder->model, limit);
    *max_tokens = wanted ? wanted : limit;
    return STATUS_OK;
}

/* Opening. */

/* Everything that changes a vector enters the hash; prompts are compared by their own words. */
static enum status hash_folder(struct encoder *enc, struct error *e) {
    const struct encoder_folder *folder = &enc->texts.folder;
    enc->hash = hash_bytes(folder->modes, (size_t)folder->n_modes * sizeof folder->modes[0],
                           tokenizer_hash(enc->texts.tokenizer));
    enc->hash += (uint64_t)enc->max_tokens * 2 + folder->include_prompt;
    if (weights_hash(folder->model, &enc->hash, e)) return e->status;
    for (int i = 0; i < folder->n_modules; i++) {
        const struct encoder_module *module = &folder->modules[i];
        enc->hash += (uint64_t)module->activation * 2 + module->normalize;
        bool own_file = !module->normalize && module->weight_name == NULL;
        if (own_file && weights_hash(module->folder, &enc->hash, e)) return e->status;
    }
    return enc->is_sparse ? sparse_head_hash(folder->model, &enc->hash, e) : STATUS_OK;
}

static int rows_of(const struct encoder *enc, const struct encoder_options *options) {
    return max_int(options->max_rows, enc->max_tokens);
}

static enum status open_rows(struct encoder *enc, const struct encoder_options *options,
                             struct error *e) {
    const struct model *model = enc->texts.model;
    const struct text_stack *stack = &enc->texts;
    if (text_stack_open_rows(&enc->texts, rows_of(enc, options), e)) return e->status;
    if (enc->is_sparse && sparse_head_open(&enc->sparse, stack->folder.model, stack->backend,
                                           rows_of(enc, options), stack->stack->dims.hidden, e))
        return e->status;
    return model->spec.joint > 0 ? dual_encoder_open(&enc->joint, model, rows_of(enc, options), e)
                                 : STATUS_OK;
}

static enum status open_tokenizer(struct encoder *enc, struct error *e) {
    const struct text_stack *stack = &enc->texts;
    if (text_stack_open_tokenizer(&enc->texts, e)) return e->status;
    if (stack->model->spec.dual_encoder_padded && tokenizer_pad(stack->tokenizer) < 0)
        return error_set(
            e, STATUS_INVALID,
            "%s: texts are filled up with a token that its tokenizer lacks (pad_token)",
            stack->folder.model);
    if (stack->folder.lowercase && !tokenizer_lowercases(stack->tokenizer))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: do_lower_case is true and the tokenizer's normalizer does not "
                         "lowercase; that is not "
                         "supported",
                         stack->folder.model);
    return STATUS_OK;
}

static enum status open_model(struct encoder *enc, const char *folder,
                              const struct encoder_options *options, struct error *e) {
    struct text_stack *stack = &enc->texts;
    if (encoder_folder_read(&stack->folder, folder, e) ||
        sequence_head_refuse(stack->folder.model, e) ||
        text_stack_load(stack, &options->model, e) || check_model(stack, folder, e) ||
        add_product(stack, e) ||
        pooling_check(&stack->folder, stack->stack->dims.hidden, &enc->dim, e) ||
        find_max_tokens(stack, options->max_tokens, &enc->max_tokens, e))
        return e->status;
    if (stack->model->spec.joint > 0) enc->dim = stack->model->spec.joint;
    enc->is_sparse = stack->model->spec.joint == 0 && sparse_head_is_there(stack->folder.model);
    return STATUS_OK;
}

enum status encoder_open(struct encoder **out, const char *folder, struct backend *backend,
                         const struct encoder_options *options, struct error *e) {
    struct encoder *enc = xcalloc(1, sizeof *enc);
    enc->texts.backend = backend;
    enum status status = open_model(enc, folder, options, e);
    if (status == STATUS_OK) sparse_head_advise(enc->texts.folder.model);
    if (status == STATUS_OK) status = open_tokenizer(enc, e);
    if (status == STATUS_OK) status = hash_folder(enc, e);
    if (status == STATUS_OK) status = open_rows(enc, options, e);
    if (status) {
        encoder_close(enc);
        return status;
    }
    *out = enc;
    return STATUS_OK;
}

enum status encoder_measure(struct encoder_bytes *out, const char *folder, struct backend *backend,
                            const struct encoder_options *options, struct error *e) {
    struct encoder enc = {.texts = {.backend = backend}};
    struct encoder_options checked = *options;
    size_t joint = 0;
    checked.model.check_only = true;
    *out = (struct encoder_bytes){0};
    enum status status = open_model(&enc, folder, &checked, e);
    if (status == STATUS_OK)
        status = text_stack_measure(out, &enc.texts, rows_of(&enc, options), e);
    if (status == STATUS_OK && enc.texts.model->spec.joint > 0)
        status = dual_encoder_measure(&joint, enc.texts.model, rows_of(&enc, options), e);
    out->rows += joint;
    if (status == STATUS_OK && enc.is_sparse)
        out->rows += sparse_head_bytes(rows_of(&enc, options), enc.texts.stack->dims.hidden);
    text_stack_close(&enc.texts);
    return status;
}

void encoder_close(struct encoder *enc) {
    if (enc == NULL) return;
    dual_encoder_close(enc->joint);
    sparse_head_close(enc->sparse);
    text_stack_close(&enc->texts);
    free(enc);
}

int encoder_dim(const struct encoder *enc) { return enc->dim; }
bool encoder_is_raw(const struct encoder *enc) {
    return enc->texts.folder.raw && enc->joint == NULL;
}
bool encoder_is_sparse(const struct encoder *enc) { return enc->is_sparse; }
int encoder_max_tokens(const struct encoder *enc) { return enc->max_tokens; }
uint64_t encoder_hash(const struct encoder *enc) { return enc->hash; }
const char *encoder_prompt(const struct encoder *enc, enum encoder_role role) {
    return enc->texts.folder.prompts[role];
}

/* Embedding. */

/* One encoder_embed. */
struct embedding_call {
    struct encoder *enc;
    const struct encoder_request *request;
    struct tokens tokens;
    struct buffer text; /* a prompt and a text */
    int dimensions, prompt_tokens;
    int first; /* text of the pass being laid out */
};

/* At most max_tokens: the text is cut, what the tokenizer puts after it stays. A special token's
 * name in the text is that token, as sentence-transformers reads it: other vectors would not match
 * an index made there. */
static enum status tokenize_text(struct embedding_call *call, struct text_span text, int *n,
                                 struct error *e) {
    const struct encoder *enc = call->enc;
    const struct tokenizer *tokenizer = enc->texts.tokenizer;
    struct tokens *tokens = &call->tokens;
    tokens->n = 0;
    if (tokenizer_encode(tokenizer, text.text, text.size,
                         TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, tokens, e))
        return e->status;
    *n = min_int(tokens->n, enc->max_tokens);
    int kept = min_int(tokenizer_suffix(tokenizer), *n);
    memmove(tokens->ids + *n - kept, tokens->ids + tokens->n - kept,
            (size_t)kept * sizeof *tokens->ids);
    return STATUS_OK;
}

static enum status tokenize_prompted(struct embedding_call *call, int i, int *n, struct error *e) {
    const char *prompt = call->request->prompt;
    struct text_span text = call->request->texts[i];
    if (prompt == NULL || prompt[0] == '\0') return tokenize_text(call, text, n, e);
    buffer_clear(&call->text);
    buffer_append_string(&call->text, prompt);
    buffer_append(&call->text, text.text, text.size);
    return tokenize_text(call, (struct text_span){call->text.data, call->text.size}, n, e);
}

/* The rows of a prompt, as the reference counts them: it is tokenised alone, and a special token at
 * its end is not its own. */
static enum status count_prompt(struct embedding_call *call, struct error *e) {
    const struct text_stack *stack = &call->enc->texts;
    const char *prompt = call->request->prompt;
    int n;
    if (stack->folder.include_prompt || prompt == NULL || prompt[0] == '\0') return STATUS_OK;
    if (tokenize_text(call, (struct text_span){prompt, strlen(prompt)}, &n, e)) return e->status;
    bool ended = n > 0 && tokenizer_is_special(stack->tokenizer, call->tokens.ids[n - 1]);
    call->prompt_tokens = ended ? n - 1 : n;
    return STATUS_OK;
}

/* SigLIP's texts are filled up to the longest. */
static void lay_out_text(struct embedding_call *call, int n) {
    struct text_stack *stack = &call->enc->texts;
    int position = stack->model->spec.position_pad + 1;
    for (int i = 0; i < n; i++) {
        int32_t id = call->tokens.ids[i];
        text_stack_add_row(stack, id, text_stack_place(stack, id, &position));
    }
    int filled = stack->model->spec.dual_encoder_padded ? call->enc->max_tokens : n;
    for (int i = n; i < filled; i++) text_stack_add_row(stack, tokenizer_pad(stack->tokenizer), i);
    text_stack_end_text(stack);
}

/* One pass over the texts that are laid out. */
static enum status forward_texts(struct embedding_call *call, struct error *e) {
    struct encoder *enc = call->enc;
    struct text_stack *stack = &enc->texts;
    if (stack->n_texts == 0) return STATUS_OK;
    text_stack_embed(stack);
    struct pooling_rows rows = text_stack_forward(stack);
    rows.skip = call->prompt_tokens;
    if (call->request->sparse &&
        sparse_head_run(enc->sparse, &rows, stack->ids, stack->tokenizer, call->request->sparse, e))
        return e->status;

    float *vectors = call->request->vectors + (size_t)call->first * (size_t)call->dimensions;
    call->first += rows.n;
    if (enc->joint) return dual_encoder_texts(enc->joint, &rows, call->dimensions, vectors, e);
    return pooling_run(stack->pooling, &rows, call->dimensions, call->request->raw, vectors, e);
}

static enum status embed_texts(struct embedding_call *call, struct error *e) {
    const struct encoder *enc = call->enc;
    for (int i = 0; i < call->request->n; i++) {
        int n = 0;
        if (tokenize_prompted(call, i, &n, e)) return e->status;
        int rows = enc->texts.model->spec.dual_encoder_padded ? enc->max_tokens : n;
        if (!text_stack_fits(&enc->texts, rows) && forward_texts(call, e)) return e->status;
        lay_out_text(call, n);
        if (call->request->n_tokens) call->request->n_tokens[i] = n;
    }
    return forward_texts(call, e);
}

bool encoder_sees(const struct encoder *enc) { return enc->joint != NULL; }

enum status encoder_embed_pictures(struct encoder *enc, const struct tower_picture *pictures, int n,
                                   int dimensions, float *vectors, struct error *e) {
    CHECK(enc->joint && dimensions >= 0 && dimensions <= enc->dim);
    return dual_encoder_pictures(enc->joint, pictures, n, dimensions ? dimensions : enc->dim,
                                 vectors, e);
}

enum status encoder_embed(struct encoder *enc, const struct encoder_request *request,
                          struct error *e) {
    struct embedding_call call = {
        .enc = enc,
        .request = request,
        .dimensions = request->dimensions ? request->dimensions : enc->dim};
    if (call.dimensions < 1 || call.dimensions > enc->dim)
        return error_set(e, STATUS_INVALID, "%d dimensions: this embedder's vectors have %d",
                         request->dimensions, enc->dim);
    CHECK(request->sparse == NULL || enc->sparse);
    text_stack_begin(&enc->texts);
    enum status status = count_prompt(&call, e);
    if (status == STATUS_OK) status = embed_texts(&call, e);
    tokens_free(&call.tokens);
    buffer_free(&call.text);
    return status;
}
