/* retro/run/encoder.c: the embedder: tokenise, one pass of packed texts through the layers, pooling. See encoder.h.
 * Texts are packed without padding: each is a span of rows, so no work is spent on pad tokens and a text's vector does
 * not depend on its neighbours in the batch. */
#include "retro/run/encoder.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "retro/model/layer.h"
#include "retro/run/joint.h"
#include "retro/run/pooling.h"
#include "retro/run/sequence_head.h"
#include "retro/text/tokenizer.h"
#include "retro/weights/weights.h"

struct encoder {
    struct encoder_folder folder;
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct tokenizer *tokenizer;
    struct scratch scratch;
    struct pooling *pooling;
    struct joint *joint; /* NULL: vectors are pooled rows; else the space of texts and pictures */
    int dim, max_rows, max_tokens;
    uint64_t hash;
    /* Host arrays of one pass. */
    int32_t *ids, *positions, *starts;
    struct attention_span *spans;
};

/* The stack whose rows are pooled: BERT's, or a decoder's. */
static enum stack_id stack_id_of(const struct model *m) {
    return model_has_stack(m, STACK_DECODER) ? STACK_DECODER : STACK_ENCODER;
}
static const struct stack *stack_of(const struct model *m) { return &m->stacks[stack_id_of(m)]; }

/* A decoder is an embedder where the folder says how its rows become a vector. */
static enum status check_model(const struct model *m, const struct encoder_folder *f, const char *folder,
                               struct error *e) {
    if (stack_of(m)->dims.reads != EDGE_NONE)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: a %s model is no embedder; one is BERT's kind, or a decoder with modules.json", folder,
                         m->info.family);
    if (model_writes(m) && !f->described)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: a %s model writes text, and no modules.json says how its rows become a vector; in a GGUF "
                         "file pooling_type would",
                         folder, m->info.family);
    return STATUS_OK;
}

/* Positions of a text that the model has; 0: no limit. */
static int count_positions(const struct model *m) {
    return m->spec.max_positions == 0 ? 0 : max_int(1, m->spec.max_positions - (m->spec.position_pad + 1));
}

/* The most tokens of a text: the folder's word, else the smaller of the tokenizer's and the model's positions; and the
 * caller may ask for fewer. */
static enum status find_max_tokens(const struct model *m, const struct encoder_folder *f, int wanted, int *max_tokens,
                                   struct error *e) {
    int positions = count_positions(m), limit = f->max_tokens;
    if (limit == 0) limit = f->tokenizer_tokens;
    if (limit == 0 || (f->max_tokens == 0 && positions > 0)) limit = limit ? min_int(limit, positions) : positions;
    if (m->spec.learned_positions && limit > positions)
        return error_set(e, STATUS_INVALID, "%s: max_seq_length is %d, the model has %d positions", f->model, limit,
                         positions);
    if (limit == 0 && wanted == 0)
        return error_set(e, STATUS_INVALID, "%s: no file says how long a text may be: set retrieval.embedder_tokens",
                         f->model);
    if (limit > 0 && wanted > limit)
        return error_set(e, STATUS_INVALID, "retrieval.embedder_tokens is %d; %s reads %d tokens of a text", wanted,
                         f->model, limit);
    *max_tokens = wanted ? wanted : limit;
    return STATUS_OK;
}

/* Opening. */

/* Everything that changes a vector enters the hash; prompts are compared by their own words. */
static enum status hash_folder(struct encoder *enc, struct error *e) {
    const struct encoder_folder *f = &enc->folder;
    enc->hash = hash_bytes(f->modes, (size_t)f->n_modes * sizeof f->modes[0], tokenizer_hash(enc->tokenizer));
    enc->hash += (uint64_t)enc->max_tokens * 2 + f->include_prompt;
    if (weights_hash(f->model, &enc->hash, e)) return e->status;
    for (int i = 0; i < f->n_modules; i++) {
        const struct encoder_module *m = &f->modules[i];
        enc->hash += (uint64_t)m->activation * 2 + m->normalize;
        if (!m->normalize && weights_hash(m->folder, &enc->hash, e)) return e->status;
    }
    return STATUS_OK;
}

static enum status open_rows(struct encoder *enc, const struct encoder_options *o, struct error *e) {
    const struct stack *s = stack_of(enc->model);
    enc->max_rows = max_int(o->max_rows, enc->max_tokens);
    size_t rows = (size_t)enc->max_rows;
    if (scratch_open(&enc->scratch, enc->model, s, enc->max_rows, e) ||
        pooling_open(&enc->pooling, &enc->folder, enc->backend, enc->max_rows, s->dims.hidden, e))
        return e->status;
    if (enc->model->spec.joint > 0 && joint_open(&enc->joint, enc->model, enc->max_rows, e)) return e->status;
    enc->ids = xmalloc(rows * sizeof *enc->ids);
    enc->positions = xmalloc(rows * sizeof *enc->positions);
    enc->starts = xmalloc((rows + 1) * sizeof *enc->starts);
    enc->spans = xmalloc(rows * sizeof *enc->spans);
    return STATUS_OK;
}

static enum status open_tokenizer(struct encoder *enc, struct error *e) {
    const char *folder = enc->folder.model;
    if (tokenizer_open(&enc->tokenizer, folder, e)) return e->status;
    if (tokenizer_vocab_size(enc->tokenizer) > enc->model->spec.vocab)
        return error_set(e, STATUS_INVALID, "%s: the tokenizer has %d ids, the model %d", folder,
                         tokenizer_vocab_size(enc->tokenizer), enc->model->spec.vocab);
    if (enc->model->spec.joint_padded && tokenizer_pad(enc->tokenizer) < 0)
        return error_set(e, STATUS_INVALID, "%s: texts are filled up with a token that its tokenizer lacks (pad_token)",
                         folder);
    if (enc->folder.lowercase && !tokenizer_lowercases(enc->tokenizer))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: do_lower_case is true and the tokenizer's normalizer does not lowercase; that is not "
                         "supported",
                         folder);
    return STATUS_OK;
}

static enum status open_parts(struct encoder *enc, const char *folder, const struct encoder_options *o,
                              struct error *e) {
    struct model_options model = o->model;
    model.rows_only = true;
    if (encoder_folder_read(&enc->folder, folder, e) || sequence_head_refuse(enc->folder.model, e) ||
        comm_open_single(&enc->comm, e) ||
        model_open(&enc->model, enc->folder.model, enc->backend, enc->comm, &model, e) ||
        check_model(enc->model, &enc->folder, folder, e) ||
        pooling_check(&enc->folder, stack_of(enc->model)->dims.hidden, &enc->dim, e) ||
        find_max_tokens(enc->model, &enc->folder, o->max_tokens, &enc->max_tokens, e))
        return e->status;
    if (enc->model->spec.joint > 0) enc->dim = enc->model->spec.joint;
    return STATUS_OK;
}

enum status encoder_open(struct encoder **out, const char *folder, struct backend *b, const struct encoder_options *o,
                         struct error *e) {
    struct encoder *enc = xcalloc(1, sizeof *enc);
    enc->backend = b;
    enum status status = open_parts(enc, folder, o, e);
    if (status == STATUS_OK) status = open_tokenizer(enc, e);
    if (status == STATUS_OK) status = hash_folder(enc, e);
    if (status == STATUS_OK) status = open_rows(enc, o, e);
    if (status) {
        encoder_close(enc);
        return status;
    }
    *out = enc;
    return STATUS_OK;
}

enum status encoder_measure(struct encoder_bytes *out, const char *folder, struct backend *b,
                            const struct encoder_options *o, struct error *e) {
    struct encoder enc = {.backend = b};
    struct encoder_options checked = *o;
    checked.model.check_only = true;
    *out = (struct encoder_bytes){0};
    enum status status = open_parts(&enc, folder, &checked, e);
    if (status == STATUS_OK) {
        const struct stack *s = stack_of(enc.model);
        int rows = max_int(o->max_rows, enc.max_tokens);
        status = scratch_measure(s, rows, &out->rows, e);
        out->rows += pooling_bytes(&enc.folder, rows, s->dims.hidden);
        size_t joint = 0;
        if (status == STATUS_OK && enc.model->spec.joint > 0) status = joint_measure(&joint, enc.model, rows, e);
        out->rows += joint;
        out->weights = model_info(enc.model)->weight_bytes;
        out->mapped = model_info(enc.model)->mapped;
    }
    model_close(enc.model);
    comm_close(enc.comm);
    encoder_folder_free(&enc.folder);
    return status;
}

void encoder_close(struct encoder *enc) {
    if (enc == NULL) return;
    if (enc->model) scratch_close(&enc->scratch, enc->model);
    pooling_close(enc->pooling);
    joint_close(enc->joint);
    tokenizer_close(enc->tokenizer);
    model_close(enc->model);
    comm_close(enc->comm);
    encoder_folder_free(&enc->folder);
    free(enc->ids);
    free(enc->positions);
    free(enc->starts);
    free(enc->spans);
    free(enc);
}

int encoder_dim(const struct encoder *enc) { return enc->dim; }
int encoder_max_tokens(const struct encoder *enc) { return enc->max_tokens; }
uint64_t encoder_hash(const struct encoder *enc) { return enc->hash; }
const char *encoder_prompt(const struct encoder *enc, enum encoder_role role) { return enc->folder.prompts[role]; }

/* Embedding. */

/* One encoder_embed. */
struct embedding_call {
    struct encoder *enc;
    const struct encoder_request *request;
    struct tokens tokens;
    struct buffer text; /* a prompt and a text */
    int dimensions, prompt_tokens;
    int first, rows; /* the first text of the pass being laid out, and its rows */
};

/* At most max_tokens: the text is cut, what the tokenizer puts after it stays. A special token's name in the text is
 * that token, as sentence-transformers reads it: other vectors would not match an index made there. */
static enum status tokenize_text(struct embedding_call *c, struct text_span text, int *n, struct error *e) {
    const struct encoder *enc = c->enc;
    struct tokens *t = &c->tokens;
    t->n = 0;
    if (tokenizer_encode(enc->tokenizer, text.text, text.size, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, t, e))
        return e->status;
    *n = min_int(t->n, enc->max_tokens);
    int kept = min_int(tokenizer_suffix(enc->tokenizer), *n);
    memmove(t->ids + *n - kept, t->ids + t->n - kept, (size_t)kept * sizeof *t->ids);
    return STATUS_OK;
}

static enum status tokenize_prompted(struct embedding_call *c, int i, int *n, struct error *e) {
    const char *prompt = c->request->prompt;
    struct text_span text = c->request->texts[i];
    if (prompt == NULL || prompt[0] == '\0') return tokenize_text(c, text, n, e);
    buffer_clear(&c->text);
    buffer_append_string(&c->text, prompt);
    buffer_append(&c->text, text.text, text.size);
    return tokenize_text(c, (struct text_span){c->text.data, c->text.size}, n, e);
}

/* The rows of a prompt, as the reference counts them: it is tokenised alone, and a special token at its end is not its
 * own. */
static enum status count_prompt(struct embedding_call *c, struct error *e) {
    const struct encoder *enc = c->enc;
    const char *prompt = c->request->prompt;
    int n;
    if (enc->folder.include_prompt || prompt == NULL || prompt[0] == '\0') return STATUS_OK;
    if (tokenize_text(c, (struct text_span){prompt, strlen(prompt)}, &n, e)) return e->status;
    bool ended = n > 0 && tokenizer_is_special(enc->tokenizer, c->tokens.ids[n - 1]);
    c->prompt_tokens = ended ? n - 1 : n;
    return STATUS_OK;
}

/* Where the model counts only tokens other than padding, the padding's name in a text stands at the padding's place. */
static void lay_out_text(struct embedding_call *c, int i, int n) {
    struct encoder *enc = c->enc;
    int at = i - c->first, row = c->rows, pad = enc->model->spec.position_pad, position = pad + 1;
    for (int j = 0; j < n; j++) {
        bool skipped = pad >= 0 && c->tokens.ids[j] == pad;
        enc->ids[row + j] = c->tokens.ids[j];
        enc->positions[row + j] = skipped ? pad : position;
        if (!skipped) position++;
    }
    if (enc->model->spec.joint_padded) {
        for (int j = n; j < enc->max_tokens; j++) {
            enc->ids[row + j] = tokenizer_pad(enc->tokenizer);
            enc->positions[row + j] = j;
        }
        n = enc->max_tokens;
    }
    enc->spans[at] = (struct attention_span){row, n, row, n};
    enc->starts[at] = row;
    enc->starts[at + 1] = row + n;
    c->rows += n;
}

/* One pass over texts first .. end, which are laid out. */
static enum status forward_texts(struct embedding_call *c, int end, struct error *e) {
    struct encoder *enc = c->enc;
    const struct model *m = enc->model;
    const struct stack *s = stack_of(m);
    int n = end - c->first;
    struct pass pass = {.model = m,
                        .stack = s,
                        .scratch = scratch_rows(&enc->scratch, c->rows),
                        .spans = enc->spans,
                        .n_spans = n,
                        .positions = enc->positions};
    struct tensor x = pass.scratch.x;
    if (n == 0) return STATUS_OK;

    stack_embed(m, s, x, enc->ids, enc->positions);
    for (int i = 0; i < s->dims.n_layers; i++) layer_forward(&pass, &s->layers[i]);
    if (s->final_norm.gamma) stack_norm(m, s, x, x, &s->final_norm);

    float *vectors = c->request->vectors + (size_t)c->first * (size_t)c->dimensions;
    struct pooling_rows rows = {.x = x, .starts = enc->starts, .n = n, .skip = c->prompt_tokens};
    c->first = end;
    c->rows = 0;
    if (enc->joint) return joint_texts(enc->joint, &rows, c->dimensions, vectors, e);
    return pooling_run(enc->pooling, &rows, c->dimensions, vectors, e);
}

static enum status embed_texts(struct embedding_call *c, struct error *e) {
    const struct encoder *enc = c->enc;
    for (int i = 0; i < c->request->n; i++) {
        int n = 0;
        if (tokenize_prompted(c, i, &n, e)) return e->status;
        int taken = enc->model->spec.joint_padded ? enc->max_tokens : n;
        bool full = c->rows + taken > enc->max_rows || i - c->first == enc->max_rows;
        if (full && forward_texts(c, i, e)) return e->status;
        lay_out_text(c, i, n);
        if (c->request->n_tokens) c->request->n_tokens[i] = n;
    }
    return forward_texts(c, c->request->n, e);
}

bool encoder_sees(const struct encoder *enc) { return enc->joint != NULL; }

enum status encoder_embed_pictures(struct encoder *enc, const struct tower_picture *pictures, int n, int dimensions,
                                   float *vectors, struct error *e) {
    CHECK(enc->joint && dimensions >= 0 && dimensions <= enc->dim);
    return joint_pictures(enc->joint, pictures, n, dimensions ? dimensions : enc->dim, vectors, e);
}

enum status encoder_embed(struct encoder *enc, const struct encoder_request *r, struct error *e) {
    struct embedding_call c = {.enc = enc, .request = r, .dimensions = r->dimensions ? r->dimensions : enc->dim};
    if (c.dimensions < 1 || c.dimensions > enc->dim)
        return error_set(e, STATUS_INVALID, "%d dimensions: this embedder's vectors have %d", r->dimensions, enc->dim);
    enum status status = count_prompt(&c, e);
    if (status == STATUS_OK) status = embed_texts(&c, e);
    tokens_free(&c.tokens);
    buffer_free(&c.text);
    return status;
}
