/* tools/eval/parity_cases.c: reads reference cases. See parity_cases.h. */
#include "tools/eval/parity_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/eval/parity_pictures.h"

static const struct stored_tensor *find_part(const struct weights *w, const char *prefix, const char *suffix) {
    char name[160];
    snprintf(name, sizeof name, "%s.%s", prefix, suffix);
    return weights_find(w, name);
}

static bool is_shaped(const struct stored_tensor *t, enum stored_dtype dtype, int n_dims) {
    if (t == NULL || t->dtype != dtype || t->n_dims != n_dims) return false;
    for (int i = 0; i < n_dims; i++)
        if (t->shape[i] < 1 || t->shape[i] > 1 << 24) return false;
    return true;
}

static enum status refuse(const struct parity_case *c, const char *what, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: %s is missing or has the wrong shape", c->name, what);
}

/* The numbers of a tensor of n_dims, NULL where it is none of i32 or i64. Ids beyond i32 become -1, which no model has.
 */
static const int32_t *take_integers(struct parity_case *c, const struct stored_tensor *t, int n_dims) {
    if (is_shaped(t, STORED_I32, n_dims)) return t->data;
    if (!is_shaped(t, STORED_I64, n_dims)) return NULL;
    CHECK(c->n_narrowed < (int)ARRAY_COUNT(c->narrowed));
    int32_t *narrow = xmalloc(t->elements * sizeof *narrow);
    const int64_t *wide = t->data;
    for (size_t i = 0; i < t->elements; i++)
        narrow[i] = wide[i] < INT32_MIN || wide[i] > INT32_MAX ? -1 : (int32_t)wide[i];
    c->narrowed[c->n_narrowed] = narrow;
    c->n_narrowed++;
    return narrow;
}

/* [b, n] ids, as the case's own copy. */
static void take_tokens(struct parity_case *c, const int32_t *ids) {
    size_t bytes = (size_t)c->b * (size_t)c->n * sizeof *ids;
    c->tokens = xmalloc(bytes);
    memcpy(c->tokens, ids, bytes);
}

static enum status take_logits(struct parity_case *c, const struct weights *w, struct error *e) {
    const struct stored_tensor *logits = find_part(w, c->name, "logits");
    if (!is_shaped(logits, STORED_F32, 3) || logits->shape[0] != c->b || logits->shape[1] != c->n ||
        logits->shape[2] != c->vocab)
        return refuse(c, "logits [b, n, V] f32", e);
    c->logits = logits->data;
    return STATUS_OK;
}

/* The lengths in a tensor [b], or all of them `n` where it is absent. */
static enum status take_lengths(const struct parity_case *c, const struct stored_tensor *t, int n, int **out,
                                struct error *e) {
    *out = xmalloc((size_t)c->b * sizeof **out);
    for (int i = 0; i < c->b; i++) (*out)[i] = n;
    if (t == NULL) return STATUS_OK;
    if (!is_shaped(t, STORED_I32, 1) || t->shape[0] != c->b) return refuse(c, "lengths [b] i32", e);
    const int32_t *lengths = t->data;
    for (int i = 0; i < c->b; i++) {
        if (lengths[i] < 1 || lengths[i] > n) return refuse(c, "lengths within 1 .. n", e);
        (*out)[i] = lengths[i];
    }
    return STATUS_OK;
}

/* A mask [b, n] of ones, then zeros, as lengths. */
static enum status take_mask(struct parity_case *c, const struct stored_tensor *t, int n, int **out, struct error *e) {
    if (take_lengths(c, NULL, n, out, e)) return e->status;
    if (t == NULL) return STATUS_OK;
    const int32_t *mask = take_integers(c, t, 2);
    if (mask == NULL || t->shape[0] != c->b || t->shape[1] != n) return refuse(c, "attention_mask [b, n] i32", e);
    for (int i = 0; i < c->b; i++) {
        int length = 0;
        while (length < n && mask[i * n + length] == 1) length++;
        (*out)[i] = length;
        for (int j = length; j < n; j++)
            if (mask[i * n + j] != 0) return refuse(c, "attention_mask with its ones on the left", e);
        if (length == 0) return refuse(c, "attention_mask with a one", e);
    }
    return STATUS_OK;
}

/* Forward cases. */

static enum status read_neighbors(struct parity_case *c, const struct weights *w, const struct model_info *info,
                                  struct error *e) {
    const struct stored_tensor *nb = find_part(w, c->name, "neighbors");
    int m = info->chunk_length;
    if (m == 0) return STATUS_OK;
    c->l = (c->n + m - 1) / m;
    if (!is_shaped(nb, STORED_I32, 4) || nb->shape[0] != c->b || nb->shape[1] != c->l ||
        nb->shape[3] != info->retrieved_length)
        return refuse(c, "neighbors [b, l, k, r] i32", e);
    c->k = (int)nb->shape[2];
    c->r = info->retrieved_length;
    c->neighbors = nb->data;
    c->grid = grid_make(GRID_END, c->n, m);
    return STATUS_OK;
}

static enum status read_decoder_case(struct parity_case *c, const struct stored_tensor *ids, const struct weights *w,
                                     const struct model_info *info, struct error *e) {
    const int32_t *values = take_integers(c, ids, 2);
    if (values == NULL) return refuse(c, "tokens or input_ids [b, n] i32", e);
    c->b = (int)ids->shape[0];
    c->n = (int)ids->shape[1];
    take_tokens(c, values);
    if (take_logits(c, w, e) || take_mask(c, find_part(w, c->name, "attention_mask"), c->n, &c->lengths, e))
        return e->status;
    return read_neighbors(c, w, info, e);
}

static enum status read_encoder_case(struct parity_case *c, const struct stored_tensor *source, const struct weights *w,
                                     struct error *e) {
    const struct stored_tensor *hf = find_part(w, c->name, "decoder_input_ids");
    const struct stored_tensor *ids = hf ? hf : find_part(w, c->name, "decoder_tokens");
    if (!is_shaped(ids, STORED_I32, 2) || ids->shape[0] != source->shape[0])
        return refuse(c, "decoder_tokens or decoder_input_ids [b, Sd] i32", e);
    c->b = (int)ids->shape[0];
    c->n = (int)ids->shape[1];
    c->max_source = (int)source->shape[1];
    c->sources = source->data;
    take_tokens(c, ids->data);
    if (take_logits(c, w, e) || take_lengths(c, find_part(w, c->name, "decoder_lengths"), c->n, &c->lengths, e))
        return e->status;
    if (hf) return take_mask(c, find_part(w, c->name, "attention_mask"), c->max_source, &c->source_lengths, e);
    return take_lengths(c, find_part(w, c->name, "encoder_lengths"), c->max_source, &c->source_lengths, e);
}

/* Generations. */

/* Prompt and generated ids but the last are the rows; the prompt's last row predicts the first generated id. */
static enum status read_greedy(struct parity_case *c, const int32_t *prompt, int p, const struct weights *w,
                               struct error *e) {
    const struct stored_tensor *tokens = find_part(w, c->name, "tokens"), *logits = find_part(w, c->name, "logits");
    c->greedy = take_integers(c, tokens, 1);
    if (c->greedy == NULL) return refuse(c, "tokens [G] i32", e);
    int generated = (int)tokens->shape[0];
    if (!is_shaped(logits, STORED_F32, 2) || logits->shape[0] != generated || logits->shape[1] != c->vocab)
        return refuse(c, "logits [G, V] f32", e);
    c->b = 1;
    c->n = p + generated - 1;
    c->first_row = p - 1;
    c->logits = logits->data;
    c->tokens = xmalloc((size_t)c->n * sizeof *c->tokens);
    memcpy(c->tokens, prompt, (size_t)p * sizeof *prompt);
    memcpy(c->tokens + p, c->greedy, (size_t)(generated - 1) * sizeof *c->tokens);
    return take_lengths(c, NULL, c->n, &c->lengths, e);
}

static enum status read_generation_neighbors(struct parity_case *c, const struct weights *w,
                                             const struct model_info *info, struct error *e) {
    const struct stored_tensor *nb = find_part(w, c->name, "neighbors");
    if (info->chunk_length == 0) return STATUS_OK;
    c->grid = grid_make(GRID_END, c->first_row + 1, info->chunk_length);
    if (!is_shaped(nb, STORED_I32, 3) || nb->shape[0] < grid_complete(c->grid, c->n) ||
        nb->shape[2] != info->retrieved_length)
        return refuse(c, "neighbors [l, k, r] i32", e);
    c->l = (int)nb->shape[0];
    c->k = (int)nb->shape[1];
    c->r = info->retrieved_length;
    c->neighbors = nb->data;
    return STATUS_OK;
}

/* Megatron's T5 gives the encoder's ids beside the decoder's prompt; Hugging Face's prompt is the encoder's, and the
 * decoder begins with its start id. */
static enum status read_generation(struct parity_case *c, const struct stored_tensor *prompt, const struct weights *w,
                                   const struct model_info *info, struct error *e) {
    const struct stored_tensor *source = find_part(w, c->name, "encoder_tokens");
    const int32_t *ids = take_integers(c, prompt, 1);
    if (ids == NULL) return refuse(c, "prompt [P] i32", e);
    const int32_t start = info->start;
    bool starts = info->reads_source && source == NULL;
    if (starts) source = prompt;
    if (info->reads_source) {
        if (!is_shaped(source, STORED_I32, 1)) return refuse(c, "encoder_tokens [Se] i32", e);
        c->max_source = (int)source->shape[0];
        c->sources = source->data;
    }
    if (read_greedy(c, starts ? &start : ids, starts ? 1 : (int)prompt->shape[0], w, e)) return e->status;
    if (info->reads_source) return take_lengths(c, NULL, c->max_source, &c->source_lengths, e);
    return read_generation_neighbors(c, w, info, e);
}

enum status parity_case_read(struct parity_case *c, const char *name, const struct weights *w, const struct model *m,
                             struct error *e) {
    const struct model_info *info = model_info(m);
    *c = (struct parity_case){.vocab = info->padded_vocab};
    if (strlen(name) >= sizeof c->name) return error_set(e, STATUS_INVALID, "the name %s is too long", name);
    memcpy(c->name, name, strlen(name) + 1);
    const struct stored_tensor *prompt = find_part(w, name, "prompt"), *hf = find_part(w, name, "input_ids");
    const struct stored_tensor *ids = hf ? hf : find_part(w, name, info->reads_source ? "encoder_tokens" : "tokens");
    if (model_sees(m)) return parity_pictures_read(c, name, w, m, e);
    if (prompt) return read_generation(c, prompt, w, info, e);
    if (!info->reads_source) return read_decoder_case(c, ids, w, info, e);
    if (!is_shaped(ids, STORED_I32, 2)) return refuse(c, "input_ids or encoder_tokens [b, n] i32", e);
    return read_encoder_case(c, ids, w, e);
}

void parity_case_free(struct parity_case *c) {
    for (int i = 0; c->merged && i < c->b; i++) merged_text_free(&c->merged[i]);
    free(c->merged);
    free(c->pictures.list);
    free(c->positions);
    free(c->tokens);
    free(c->lengths);
    free(c->source_lengths);
    for (int i = 0; i < c->n_narrowed; i++) free(c->narrowed[i]);
    *c = (struct parity_case){0};
}

/* Each case has logits, and nothing else is called so. */
enum status parity_cases_visit(const char *path, parity_visitor *visit, void *context, struct error *e) {
    static const char marker[] = ".logits";
    struct weights *w;
    if (access(path, F_OK) != 0) return STATUS_OK;
    if (weights_open(&w, path, e)) return e->status;
    enum status status = STATUS_OK;
    for (int i = 0; i < weights_count(w) && status == STATUS_OK; i++) {
        const char *tensor = weights_at(w, i)->name;
        size_t n = strlen(tensor), tail = sizeof marker - 1;
        if (n <= tail || strcmp(tensor + n - tail, marker) != 0) continue;
        char *name = xstrndup(tensor, n - tail);
        status = visit(context, w, name, e);
        free(name);
    }
    weights_close(w);
    return status;
}
