/* tools/eval/parity_cases.c: reads reference cases. See parity_cases.h. */
#include "tools/eval/parity_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/eval/parity_pictures.h"

static const struct stored_tensor *find_part(const struct weights *weights, const char *prefix,
                                             const char *suffix) {
    char name[160];
    snprintf(name, sizeof name, "%s.%s", prefix, suffix);
    return weights_find(weights, name);
}

static bool is_shaped(const struct stored_tensor *stored, enum stored_dtype dtype, int n_dims) {
    if (stored == NULL || stored->dtype != dtype || stored->n_dims != n_dims) return false;
    for (int i = 0; i < n_dims; i++)
        if (stored->shape[i] < 1 || stored->shape[i] > 1 << 24) return false;
    return true;
}

static enum status refuse(const struct parity_case *test, const char *what, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: %s is missing or has the wrong shape", test->name,
                     what);
}

/* The numbers of a tensor of n_dims, NULL where it is none of i32 or i64. Ids beyond i32 become -1,
 * which no model has.
 */
static const int32_t *take_integers(struct parity_case *test, const struct stored_tensor *stored,
                                    int n_dims) {
    if (is_shaped(stored, STORED_I32, n_dims)) return stored->data;
    if (!is_shaped(stored, STORED_I64, n_dims)) return NULL;
    CHECK(test->n_narrowed < (int)ARRAY_COUNT(test->narrowed));
    int32_t *narrow = xmalloc(stored->elements * sizeof *narrow);
    const int64_t *wide = stored->data;
    for (size_t i = 0; i < stored->elements; i++)
        narrow[i] = wide[i] < INT32_MIN || wide[i] > INT32_MAX ? -1 : (int32_t)wide[i];
    test->narrowed[test->n_narrowed] = narrow;
    test->n_narrowed++;
    return narrow;
}

/* [b, n] ids, as the case's own copy. */
static void take_tokens(struct parity_case *test, const int32_t *ids) {
    size_t bytes = (size_t)test->b * (size_t)test->n * sizeof *ids;
    test->tokens = xmalloc(bytes);
    memcpy(test->tokens, ids, bytes);
}

static enum status take_logits(struct parity_case *test, const struct weights *weights,
                               struct error *e) {
    const struct stored_tensor *logits = find_part(weights, test->name, "logits");
    if (!is_shaped(logits, STORED_F32, 3) || logits->shape[0] != test->b ||
        logits->shape[1] != test->n || logits->shape[2] != test->vocab)
        return refuse(test, "logits [b, n, V] f32", e);
    test->logits = logits->data;
    return STATUS_OK;
}

/* The lengths in a tensor [b], or all of them `n` where it is absent. */
static enum status take_lengths(const struct parity_case *test, const struct stored_tensor *stored,
                                int n, int **out, struct error *e) {
    *out = xmalloc((size_t)test->b * sizeof **out);
    for (int i = 0; i < test->b; i++) (*out)[i] = n;
    if (stored == NULL) return STATUS_OK;
    if (!is_shaped(stored, STORED_I32, 1) || stored->shape[0] != test->b)
        return refuse(test, "lengths [b] i32", e);
    const int32_t *lengths = stored->data;
    for (int i = 0; i < test->b; i++) {
        if (lengths[i] < 1 || lengths[i] > n) return refuse(test, "lengths within 1 .. n", e);
        (*out)[i] = lengths[i];
    }
    return STATUS_OK;
}

enum status parity_case_mask(struct parity_case *test, const struct stored_tensor *stored, int n,
                             int **out, struct error *e) {
    if (take_lengths(test, NULL, n, out, e)) return e->status;
    if (stored == NULL) return STATUS_OK;
    const int32_t *mask = take_integers(test, stored, 2);
    if (mask == NULL || stored->shape[0] != test->b || stored->shape[1] != n)
        return refuse(test, "attention_mask [b, n] i32", e);
    for (int i = 0; i < test->b; i++) {
        int length = 0;
        while (length < n && mask[i * n + length] == 1) length++;
        (*out)[i] = length;
        for (int j = length; j < n; j++)
            if (mask[i * n + j] != 0)
                return refuse(test, "attention_mask with its ones on the left", e);
        if (length == 0) return refuse(test, "attention_mask with a one", e);
    }
    return STATUS_OK;
}

/* Forward cases. */

static enum status read_neighbors(struct parity_case *test, const struct weights *weights,
                                  const struct model_info *info, struct error *e) {
    const struct stored_tensor *nb = find_part(weights, test->name, "neighbors");
    int m = info->chunk_length;
    if (m == 0) return STATUS_OK;
    test->l = (test->n + m - 1) / m;
    if (!is_shaped(nb, STORED_I32, 4) || nb->shape[0] != test->b || nb->shape[1] != test->l ||
        nb->shape[3] != info->retrieved_length)
        return refuse(test, "neighbors [b, l, k, r] i32", e);
    test->k = (int)nb->shape[2];
    test->r = info->retrieved_length;
    test->neighbors = nb->data;
    test->grid = grid_make(GRID_END, test->n, m);
    return STATUS_OK;
}

static enum status read_decoder_case(struct parity_case *test, const struct stored_tensor *ids,
                                     const struct weights *weights, const struct model_info *info,
                                     struct error *e) {
    const int32_t *values = take_integers(test, ids, 2);
    if (values == NULL) return refuse(test, "tokens or input_ids [b, n] i32", e);
    test->b = (int)ids->shape[0];
    test->n = (int)ids->shape[1];
    take_tokens(test, values);
    if (take_logits(test, weights, e) ||
        parity_case_mask(test, find_part(weights, test->name, "attention_mask"), test->n,
                         &test->lengths, e))
        return e->status;
    return read_neighbors(test, weights, info, e);
}

static enum status read_encoder_case(struct parity_case *test, const struct stored_tensor *source,
                                     const struct weights *weights, struct error *e) {
    const struct stored_tensor *hf = find_part(weights, test->name, "decoder_input_ids");
    const struct stored_tensor *ids = hf ? hf : find_part(weights, test->name, "decoder_tokens");
    if (!is_shaped(ids, STORED_I32, 2) || ids->shape[0] != source->shape[0])
        return refuse(test, "decoder_tokens or decoder_input_ids [b, Sd] i32", e);
    test->b = (int)ids->shape[0];
    test->n = (int)ids->shape[1];
    test->max_source = (int)source->shape[1];
    test->sources = source->data;
    take_tokens(test, ids->data);
    if (take_logits(test, weights, e) ||
        take_lengths(test, find_part(weights, test->name, "decoder_lengths"), test->n,
                     &test->lengths, e))
        return e->status;
    if (hf)
        return parity_case_mask(test, find_part(weights, test->name, "attention_mask"),
                                test->max_source, &test->source_lengths, e);
    return take_lengths(test, find_part(weights, test->name, "encoder_lengths"), test->max_source,
                        &test->source_lengths, e);
}

/* Generations. */

/* Prompt and generated ids but the last are the rows; the prompt's last row predicts the first
 * generated id. */
static enum status read_greedy(struct parity_case *test, const int32_t *prompt, int p,
                               const struct weights *weights, struct error *e) {
    const struct stored_tensor *tokens = find_part(weights, test->name, "tokens"),
                               *logits = find_part(weights, test->name, "logits");
    test->greedy = take_integers(test, tokens, 1);
    if (test->greedy == NULL) return refuse(test, "tokens [G] i32", e);
    int generated = (int)tokens->shape[0];
    if (!is_shaped(logits, STORED_F32, 2) || logits->shape[0] != generated ||
        logits->shape[1] != test->vocab)
        return refuse(test, "logits [G, V] f32", e);
    test->b = 1;
    test->n = p + generated - 1;
    test->first_row = p - 1;
    test->logits = logits->data;
    test->tokens = xmalloc((size_t)test->n * sizeof *test->tokens);
    memcpy(test->tokens, prompt, (size_t)p * sizeof *prompt);
    memcpy(test->tokens + p, test->greedy, (size_t)(generated - 1) * sizeof *test->tokens);
    return take_lengths(test, NULL, test->n, &test->lengths, e);
}

static enum status read_generation_neighbors(struct parity_case *test,
                                             const struct weights *weights,
                                             const struct model_info *info, struct error *e) {
    const struct stored_tensor *nb = find_part(weights, test->name, "neighbors");
    if (info->chunk_length == 0) return STATUS_OK;
    test->grid = grid_make(GRID_END, test->first_row + 1, info->chunk_length);
    if (!is_shaped(nb, STORED_I32, 3) || nb->shape[0] < grid_complete(test->grid, test->n) ||
        nb->shape[2] != info->retrieved_length)
        return refuse(test, "neighbors [l, k, r] i32", e);
    test->l = (int)nb->shape[0];
    test->k = (int)nb->shape[1];
    test->r = info->retrieved_length;
    test->neighbors = nb->data;
    return STATUS_OK;
}

/* Megatron's T5 gives the encoder's ids beside the decoder's prompt; Hugging Face's prompt is the
 * encoder's, and the decoder begins with its start id. */
static enum status read_generation(struct parity_case *test, const struct stored_tensor *prompt,
                                   const struct weights *weights, const struct model_info *info,
                                   struct error *e) {
    const struct stored_tensor *source = find_part(weights, test->name, "encoder_tokens");
    const int32_t *ids = take_integers(test, prompt, 1);
    if (ids == NULL) return refuse(test, "prompt [P] i32", e);
    const int32_t start = info->start;
    bool starts = info->reads_source && source == NULL;
    if (starts) source = prompt;
    if (info->reads_source) {
        if (!is_shaped(source, STORED_I32, 1)) return refuse(test, "encoder_tokens [Se] i32", e);
        test->max_source = (int)source->shape[0];
        test->sources = source->data;
    }
    if (read_greedy(test, starts ? &start : ids, starts ? 1 : (int)prompt->shape[0], weights, e))
        return e->status;
    if (info->reads_source)
        return take_lengths(test, NULL, test->max_source, &test->source_lengths, e);
    return read_generation_neighbors(test, weights, info, e);
}

enum status parity_case_read(struct parity_case *test, const char *name,
                             const struct weights *weights, const struct model *model,
                             struct error *e) {
    const struct model_info *info = model_info(model);
    *test = (struct parity_case){.vocab = info->padded_vocab};
    if (strlen(name) >= sizeof test->name)
        return error_set(e, STATUS_INVALID, "the name %s is too long", name);
    memcpy(test->name, name, strlen(name) + 1);
    const struct stored_tensor *prompt = find_part(weights, name, "prompt"),
                               *hf = find_part(weights, name, "input_ids");
    const struct stored_tensor *ids =
        hf ? hf : find_part(weights, name, info->reads_source ? "encoder_tokens" : "tokens");
    bool masked = find_part(weights, name, "attention_mask") != NULL; /* texts alone */
    if (model_sees(model) && !masked) return parity_pictures_read(test, name, weights, model, e);
    if (prompt) return read_generation(test, prompt, weights, info, e);
    if (!info->reads_source) return read_decoder_case(test, ids, weights, info, e);
    if (!is_shaped(ids, STORED_I32, 2))
        return refuse(test, "input_ids or encoder_tokens [b, n] i32", e);
    return read_encoder_case(test, ids, weights, e);
}

void parity_case_free(struct parity_case *test) {
    for (int i = 0; test->merged && i < test->b; i++) merged_text_free(&test->merged[i]);
    free(test->merged);
    free(test->pictures.list);
    free(test->positions);
    free(test->tokens);
    free(test->lengths);
    free(test->source_lengths);
    for (int i = 0; i < test->n_narrowed; i++) free(test->narrowed[i]);
    *test = (struct parity_case){0};
}

/* Each case has logits, and nothing else is called so. */
enum status parity_cases_visit(const char *path, parity_visitor *visit, void *context,
                               struct error *e) {
    static const char marker[] = ".logits";
    struct weights *weights;
    if (access(path, F_OK) != 0) return STATUS_OK;
    if (weights_open(&weights, path, e)) return e->status;
    enum status status = STATUS_OK;
    for (int i = 0; i < weights_count(weights) && status == STATUS_OK; i++) {
        const char *tensor = weights_at(weights, i)->name;
        size_t n = strlen(tensor), tail = sizeof marker - 1;
        if (n <= tail || strcmp(tensor + n - tail, marker) != 0) continue;
        char *name = xstrndup(tensor, n - tail);
        status = visit(context, weights, name, e);
        free(name);
    }
    weights_close(weights);
    return status;
}
