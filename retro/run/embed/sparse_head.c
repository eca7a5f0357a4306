/* retro/run/embed/sparse_head.c: see sparse_head.h. */
#include "retro/run/embed/sparse_head.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/base/log.h"
#include "retro/run/embed/head_weights.h"

struct sparse_head {
    struct backend *backend;
    struct weight weight; /* f32 [1, d] */
    float *bias;          /* device [1] */
    struct tensor logits; /* device [max_rows, 1] */
    float *host;          /* [max_rows] of the same */
    struct buffer found;  /* struct sparse_weight each, of the tokens of a text */
};

enum { PATH_SIZE = 4096 };

static bool has_file(const char *folder, const char *name) {
    char path[PATH_SIZE];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_SIZE &&
           access(path, F_OK) == 0;
}

bool sparse_head_is_there(const char *folder) { return has_file(folder, SPARSE_HEAD_FILE); }

void sparse_head_advise(const char *folder) {
    if (has_file(folder, SPARSE_HEAD_FILE) || !has_file(folder, "sparse_linear.pt")) return;
    log_info(
        "%s: sparse_linear.pt is not read, so texts have no sparse weights; retro-convert "
        "--sparse-head %s makes " SPARSE_HEAD_FILE " of it",
        folder, folder);
}

/* Opening. */

static enum status check_finite(const float *values, int n, const char *name, struct error *e) {
    for (int i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return error_set(e, STATUS_INVALID, "tensor %s: number %d is not finite", name, i);
    return STATUS_OK;
}

static enum status load_weight(struct sparse_head *head, const struct weights *weights, int d,
                               struct error *e) {
    float *values = NULL;
    if (head_read_floats(weights, "weight", 1, d, &values, e)) return e->status;
    struct weight weight = {.dtype = DTYPE_F32, .n_out = 1, .n_in = d};
    struct host_matrix host = {.values = values, .dtype = DTYPE_F32};
    enum status status = check_finite(values, d, "weight", e);
    if (status == STATUS_OK) status = backend_pack(head->backend, &weight, &host, e);
    if (status == STATUS_OK) head->weight = weight;
    free(values);
    return status;
}

static enum status load_bias(struct sparse_head *head, const struct weights *weights,
                             struct error *e) {
    float *bias = NULL;
    void *memory;
    if (head_read_floats(weights, "bias", 1, 0, &bias, e)) return e->status;
    enum status status = check_finite(bias, 1, "bias", e);
    if (status == STATUS_OK)
        status = backend_alloc(head->backend, &memory, sizeof *bias, "bias", e);
    if (status == STATUS_OK) {
        head->bias = memory;
        backend_upload(head->backend, memory, bias, sizeof *bias);
        status = backend_sync(head->backend, e);
    }
    free(bias);
    return status;
}

static enum status load(struct sparse_head *head, const char *folder, int d, struct error *e) {
    struct weights *weights;
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/" SPARSE_HEAD_FILE, folder);
    if (weights_open(&weights, path, e)) return e->status;
    enum status status = load_weight(head, weights, d, e);
    if (status == STATUS_OK) status = load_bias(head, weights, e);
    if (status) error_prefix(e, "%s", path);
    weights_close(weights);
    return status;
}

enum status sparse_head_open(struct sparse_head **out, const char *folder, struct backend *backend,
                             int max_rows, int d, struct error *e) {
    struct sparse_head *head = xcalloc(1, sizeof *head);
    void *memory;
    head->backend = backend;
    head->host = xmalloc((size_t)max_rows * sizeof *head->host);
    enum status status = load(head, folder, d, e);
    if (status == STATUS_OK)
        status =
            backend_alloc(backend, &memory, (size_t)max_rows * sizeof(float), "sparse weights", e);
    if (status) {
        sparse_head_close(head);
        return status;
    }
    head->logits = tensor_make(memory, DTYPE_F32, max_rows, 1);
    *out = head;
    return STATUS_OK;
}

void sparse_head_close(struct sparse_head *head) {
    if (head == NULL) return;
    backend_release(head->backend, head->weight.data);
    backend_release(head->backend, head->bias);
    backend_release(head->backend, head->logits.data);
    buffer_free(&head->found);
    free(head->host);
    free(head);
}

size_t sparse_head_bytes(int max_rows, int d) {
    return ((size_t)max_rows + (size_t)d + 1) * sizeof(float);
}

enum status sparse_head_hash(const char *folder, uint64_t *hash, struct error *e) {
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/" SPARSE_HEAD_FILE, folder);
    return weights_hash(path, hash, e);
}

/* Weights. */

/* Equal ids follow each other, the heaviest first. */
static int compare_weights(const void *left, const void *right) {
    const struct sparse_weight *a = left, *b = right;
    if (a->id != b->id) return a->id > b->id ? 1 : -1;
    return (a->weight < b->weight) - (a->weight > b->weight);
}

/* The weights of the tokens of text i that have any. */
static enum status gather(struct sparse_head *head, const struct pooling_rows *rows, int i,
                          const int32_t *ids, const struct tokenizer *tokenizer, struct error *e) {
    buffer_clear(&head->found);
    for (int32_t row = rows->starts[i]; row < rows->starts[i + 1]; row++) {
        struct sparse_weight weight = {(uint32_t)ids[row], head->host[row]};
        if (tokenizer_is_filler(tokenizer, ids[row])) continue;
        if (!isfinite(weight.weight))
            return error_set(e, STATUS_INVALID,
                             "the embedder's sparse weight of token %d is not finite", ids[row]);
        if (weight.weight > 0) buffer_append(&head->found, &weight, sizeof weight);
    }
    return STATUS_OK;
}

/* The heaviest of each id; returns how many there are. */
static int64_t keep_heaviest(struct sparse_weight *list, size_t n) {
    size_t kept = 0;
    if (n > 0) qsort(list, n, sizeof *list, compare_weights);
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && list[kept - 1].id == list[i].id) continue;
        list[kept] = list[i];
        kept++;
    }
    return (int64_t)kept;
}

enum status sparse_head_run(struct sparse_head *head, const struct pooling_rows *rows,
                            const int32_t *ids, const struct tokenizer *tokenizer,
                            struct sparse_rows *out, struct error *e) {
    int n = rows->x.rows;
    struct tensor logits = tensor_make(head->logits.data, DTYPE_F32, n, 1);
    backend_linear(head->backend,
                   &(struct linear_args){
                       .y = logits, .x = rows->x, .weight = &head->weight, .bias = head->bias});
    backend_download(head->backend, head->host, logits.data, (size_t)n * sizeof *head->host);
    if (backend_sync(head->backend, e)) return e->status;
    for (int i = 0; i < rows->n; i++) {
        if (gather(head, rows, i, ids, tokenizer, e)) return e->status;
        struct sparse_weight *list = (struct sparse_weight *)(void *)head->found.data;
        int64_t kept = keep_heaviest(list, head->found.size / sizeof *list);
        sparse_rows_add(out, (struct sparse_row){list, kept});
    }
    return STATUS_OK;
}
