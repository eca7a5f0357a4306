/* kernels/device/backend.c: opening a device by name, and the checked wrappers around its ops. See backend.h.
 *
 * The wrappers hold every shape rule in one place, so a device's op may rely on them. */
#include "kernels/backend.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#if HAVE_CUDA || HAVE_CUDA_HOST
#include "kernels/cuda/open.h"
#endif

/* A device's name and how it is opened: "cpu", or "cuda:1" for the second of several. */
struct device {
    const char *name;
    bool numbered;
    enum status (*open)(struct backend *b, const struct backend_options *o, int ordinal, struct error *e);
};

static enum status open_cpu(struct backend *b, const struct backend_options *o, int ordinal, struct error *e) {
    (void)ordinal;
    return cpu_open(b, o, e);
}

static const struct device devices[] = {
    {"cpu", false, open_cpu},
#if HAVE_CUDA
    {"cuda", true, cuda_open},
#endif
#if HAVE_CUDA_HOST
    {"cuda-host", false, cuda_open}, /* the CUDA kernels on the CPU, for tests */
#endif
};

/* Whether `name` is this device; *ordinal is what follows its colon, 0 without. */
static bool device_matches(const struct device *d, const char *name, int *ordinal) {
    size_t n = strlen(d->name);
    *ordinal = 0;
    if (strncmp(name, d->name, n) != 0) return false;
    if (name[n] == '\0') return true;
    char *end;
    long number =
        name[n] == ':' && d->numbered && isdigit((unsigned char)name[n + 1]) ? strtol(name + n + 1, &end, 10) : -1;
    *ordinal = (int)number;
    return number >= 0 && number < INT_MAX && *end == '\0';
}

const char *backend_choose(const char *device) {
    if (strcmp(device, "auto") != 0) return device;
#if HAVE_CUDA
    if (cuda_present()) return "cuda";
#endif
    return "cpu";
}

enum status backend_open(struct backend **out, const char *device, const struct backend_options *o, struct error *e) {
    *out = NULL;
    device = backend_choose(device);
    for (size_t i = 0; i < ARRAY_COUNT(devices); i++) {
        int ordinal;
        if (!device_matches(&devices[i], device, &ordinal)) continue;
        struct backend *b = xcalloc(1, sizeof *b);
        enum status s = devices[i].open(b, o, ordinal, e);
        if (s)
            free(b);
        else
            *out = b;
        return s;
    }
    const char *why =
        !HAVE_CUDA && strncmp(device, "cuda", 4) == 0 ? "this build has no CUDA" : "there is no such device";
    return error_set(e, STATUS_UNSUPPORTED, "device \"%.60s\": %s; use \"cpu\"", device, why);
}

void backend_close(struct backend *b) {
    if (b == NULL) return;
    b->ops->close(b);
    free(b);
}

const char *backend_describe(const struct backend *b) { return b->ops->describe(b); }

enum status backend_alloc(struct backend *b, void **out, size_t bytes, const char *what, struct error *e) {
    *out = b->ops->alloc(b, bytes);
    if (*out != NULL) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "%s: no room for %s: %.1f MB", b->ops->name, what, 1e-6 * (double)bytes);
}

enum status backend_pack(struct backend *b, struct weight *w, const struct host_matrix *host, struct error *e) {
    CHECK(w->n_out > 0 && w->n_in > 0 && host->values != NULL);
    bool quantised = dtype_quantised(w->dtype);
    if (w->dtype != host->dtype && (quantised || dtype_quantised(host->dtype)))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: a [%d, %d] %s matrix was to become a weight of %s; convert it first", b->ops->name,
                         w->n_out, w->n_in, dtype_name(host->dtype), dtype_name(w->dtype));
    CHECK(!quantised || w->n_in % dtype_block(w->dtype) == 0);
    CHECK(!quantised || (host->scales != NULL) != dtype_kquant(w->dtype));
    CHECK(!quantised || (host->minimums != NULL) == (w->dtype == DTYPE_INT4));
    return b->ops->pack(b, w, host, e);
}

static bool tensor_valid(const struct tensor *t) {
    return t->rows >= 0 && t->cols >= 0 && (t->rows <= 1 || t->stride >= t->cols) &&
           (t->data != NULL || t->rows == 0 || t->cols == 0);
}

static bool tensor_is_f32(const struct tensor *t, int rows, int cols) {
    return tensor_valid(t) && t->dtype == DTYPE_F32 && t->rows == rows && t->cols == cols;
}

void backend_linear(struct backend *b, const struct linear_args *a) {
    CHECK(a->weight != NULL && a->weight->data != NULL);
    CHECK(tensor_is_f32(&a->x, a->x.rows, a->weight->n_in));
    CHECK(tensor_is_f32(&a->y, a->x.rows, a->weight->n_out));
    if (!b->error.status) b->ops->linear(b, a);
}

/* Every key of a span lies in k and v. */
static void keys_check(const struct attention_args *a, const struct attention_span *span) {
    CHECK(span->k_start >= 0 && span->k_count >= 0);
    if (a->blocks == NULL) {
        CHECK(span->k_count <= a->k.rows - span->k_start);
        return;
    }
    CHECK(span->k_start <= a->n_blocks && span->k_count <= (int64_t)(a->n_blocks - span->k_start) * ATTENTION_BLOCK);
    for (int at = 0; at < span->k_count; at += ATTENTION_BLOCK) {
        int64_t block = a->blocks[span->k_start + at / ATTENTION_BLOCK];
        CHECK(block >= 0 && block * ATTENTION_BLOCK + min_int(ATTENTION_BLOCK, span->k_count - at) <= a->k.rows);
    }
}

static void spans_check(const struct attention_args *a) {
    for (int s = 0; s < a->n_spans; s++) {
        const struct attention_span *span = &a->spans[s];
        CHECK(span->q_start >= 0 && span->q_count >= 0 && span->q_count <= a->q.rows - span->q_start);
        CHECK(a->mask == MASK_NONE || span->k_count == 0 || span->k_count >= span->q_count);
        keys_check(a, span);
    }
}

/* All but out and v. */
static void attention_check(const struct attention_args *a) {
    CHECK(a->heads > 0 && a->kv_heads > 0 && a->heads % a->kv_heads == 0 && a->n_spans >= 0 && a->n_blocks >= 0);
    CHECK(a->head_dim > 0 && a->head_dim <= ATTENTION_MAX_HEAD);
    CHECK(tensor_is_f32(&a->q, a->q.rows, a->heads * a->head_dim));
    CHECK(tensor_valid(&a->k) && a->k.cols == a->kv_heads * a->head_dim);
    CHECK(a->bias.data == NULL || (tensor_is_f32(&a->bias, a->heads, a->bias.cols) && a->bias.cols % 2 == 1));
    CHECK(a->window >= 0 && (a->window == 0 || a->mask == MASK_CAUSAL));
    CHECK(a->softcap >= 0);
    spans_check(a);
}

void backend_attention(struct backend *b, const struct attention_args *a) {
    attention_check(a);
    CHECK(tensor_is_f32(&a->out, a->q.rows, a->q.cols));
    CHECK(tensor_valid(&a->v) && a->v.cols == a->k.cols && a->v.rows == a->k.rows);
    if (!b->error.status) b->ops->attention(b, a);
}

void backend_attention_shares(struct backend *b, const struct attention_shares_args *a) {
    attention_check(&a->of);
    CHECK(tensor_is_f32(&a->y, a->of.q.rows, a->y.cols));
    for (int s = 0; s < a->of.n_spans; s++) {
        struct key_group list = a->span_groups[s];
        CHECK(list.first >= 0 && list.n >= 0 && list.n <= a->y.cols && list.n <= a->n_groups - list.first);
        for (int g = list.first; g < list.first + list.n; g++) {
            struct key_group keys = a->groups[g];
            CHECK(keys.first >= 0 && keys.n >= 0 && keys.n <= a->of.spans[s].k_count - keys.first);
        }
    }
    if (!b->error.status) b->ops->attention_shares(b, a);
}

void backend_norm(struct backend *b, const struct norm_args *a) {
    CHECK(tensor_is_f32(&a->x, a->x.rows, a->x.cols) && tensor_is_f32(&a->y, a->x.rows, a->x.cols));
    CHECK(a->gamma != NULL && (a->kind == NORM_LAYER || a->beta == NULL));
    CHECK(a->heads >= 0 && (a->heads <= 1 || a->x.cols % a->heads == 0));
    CHECK(a->squares.data == NULL || (a->kind == NORM_RMS && a->heads <= 1 && a->whole >= a->x.cols));
    CHECK(a->squares.data == NULL || tensor_is_f32(&a->squares, a->x.rows, 1));
    if (!b->error.status) b->ops->norm(b, a);
}

void backend_square_rows(struct backend *b, const struct square_rows_args *a) {
    CHECK(tensor_is_f32(&a->x, a->x.rows, a->x.cols) && tensor_is_f32(&a->y, a->x.rows, 1));
    if (!b->error.status) b->ops->square_rows(b, a);
}

void backend_add(struct backend *b, const struct add_args *a) {
    CHECK(tensor_is_f32(&a->a, a->a.rows, a->a.cols));
    CHECK(tensor_is_f32(&a->b, a->a.rows, a->a.cols) && tensor_is_f32(&a->y, a->a.rows, a->a.cols));
    CHECK(a->scale >= 0);
    if (!b->error.status) b->ops->add(b, a);
}

void backend_glu(struct backend *b, const struct glu_args *a) {
    CHECK(a->x.cols % 2 == 0 && tensor_is_f32(&a->x, a->x.rows, a->x.cols));
    CHECK(tensor_is_f32(&a->y, a->x.rows, a->x.cols / 2));
    if (!b->error.status) b->ops->glu(b, a);
}

void backend_route(struct backend *b, const struct route_args *a) {
    CHECK(a->y.cols > 0 && a->y.cols % 2 == 0 && a->y.cols / 2 <= a->logits.cols && a->logits.cols < 1 << 24);
    CHECK(tensor_is_f32(&a->logits, a->logits.rows, a->logits.cols));
    CHECK(tensor_is_f32(&a->y, a->logits.rows, a->y.cols));
    if (!b->error.status) b->ops->route(b, a);
}

static void experts_check(const struct experts_args *a) {
    int rows = a->x.rows, d = a->x.cols, ffn = a->fc2[0].n_in;
    for (int i = 0; i < a->n_experts; i++) {
        CHECK(a->fc1[i].data != NULL && a->fc1[i].n_in == d && a->fc1[i].n_out == 2 * ffn);
        CHECK(a->fc2[i].data != NULL && a->fc2[i].n_in == ffn && a->fc2[i].n_out == d);
    }
    CHECK(tensor_is_f32(&a->wide, rows, 2 * ffn) && tensor_is_f32(&a->gated, rows, ffn));
}

void backend_experts(struct backend *b, const struct experts_args *a) {
    int rows = a->x.rows, d = a->x.cols, k = a->routes.cols / 2;
    CHECK(a->n_experts > 0 && k > 0 && k <= a->n_experts);
    CHECK(tensor_is_f32(&a->x, rows, d) && tensor_is_f32(&a->y, rows, d));
    CHECK(tensor_is_f32(&a->routes, rows, 2 * k));
    CHECK(tensor_is_f32(&a->few, rows, d) && tensor_is_f32(&a->parts, rows, k * d));
    CHECK(a->shared.data == NULL || (tensor_is_f32(&a->shared, rows, d) && tensor_is_f32(&a->gate, rows, 1)));
    experts_check(a);
    if (!b->error.status) b->ops->experts(b, a);
}

void backend_softcap(struct backend *b, const struct softcap_args *a) {
    CHECK(tensor_is_f32(&a->x, a->x.rows, a->x.cols) && a->cap > 0);
    if (!b->error.status) b->ops->softcap(b, a);
}

void backend_embed(struct backend *b, const struct embed_args *a) {
    CHECK(a->word != NULL && a->word->data != NULL && tensor_is_f32(&a->y, a->y.rows, a->word->n_in));
    CHECK(a->position == NULL || tensor_is_f32(a->position, a->position->rows, a->y.cols));
    CHECK(a->type == NULL || (tensor_is_f32(a->type, a->type->rows, a->y.cols) && a->type->rows > 0));
    CHECK(a->scale >= 0);
    for (int i = 0; i < a->y.rows; i++) {
        CHECK(a->ids[i] < a->word->n_out);
        CHECK(a->position == NULL || (a->positions[i] >= 0 && a->positions[i] < a->position->rows));
    }
    if (!b->error.status) b->ops->embed(b, a);
}

void backend_rope(struct backend *b, const struct rope_args *a) {
    CHECK(a->heads > 0 && a->head_dim > 0 && tensor_is_f32(&a->x, a->x.rows, a->heads * a->head_dim));
    CHECK(a->rotated >= 0 && a->rotated <= a->head_dim && a->rotated % 2 == 0);
    CHECK(a->head_dim <= ATTENTION_MAX_HEAD && a->scale >= 0 && a->sections >= 0);
    for (int p = 0; a->section_of && p < a->rotated / 2; p++) CHECK(a->section_of[p] < a->sections);
    if (!b->error.status) b->ops->rope(b, a);
}

void backend_gather_rows(struct backend *b, const struct gather_rows_args *a) {
    CHECK(tensor_valid(&a->x) && tensor_valid(&a->y) && a->x.cols == a->y.cols);
    for (int i = 0; i < a->y.rows; i++) CHECK(a->rows[i] < a->x.rows);
    if (!b->error.status) b->ops->gather_rows(b, a);
}

void backend_scatter_rows(struct backend *b, const struct scatter_rows_args *a) {
    CHECK(tensor_valid(&a->x) && tensor_valid(&a->y) && a->x.cols == a->y.cols);
    for (int i = 0; i < a->x.rows; i++) CHECK(a->rows[i] < a->y.rows);
    if (!b->error.status) b->ops->scatter_rows(b, a);
}

void backend_mean_rows(struct backend *b, const struct mean_rows_args *a) {
    CHECK(tensor_is_f32(&a->x, a->x.rows, a->x.cols) && tensor_is_f32(&a->y, a->y.rows, a->x.cols));
    for (int s = 0; s < a->y.rows; s++)
        CHECK(a->starts[s] >= 0 && a->starts[s] <= a->starts[s + 1] && a->starts[s + 1] <= a->x.rows);
    if (!b->error.status) b->ops->mean_rows(b, a);
}

void backend_sample(struct backend *b, const struct sample_args *a) {
    CHECK(tensor_is_f32(&a->logits, a->logits.rows, a->logits.cols));
    CHECK(a->n_vocab > 0 && a->n_vocab <= a->logits.cols && a->n_vocab <= 1 << 24);
    for (int i = 0; i < a->logits.rows; i++)
        for (int64_t j = 0; j < a->params[i].n_edits; j++)
            CHECK(a->params[i].edits[j].id >= 0 && a->params[i].edits[j].id < a->n_vocab);
    if (!b->error.status) b->ops->sample(b, a);
}

/* A candidate of logprobs_top sinks to its place among the best so far; ids come in rising order, so a later equal
 * stays behind. NaN ranks last: it compares greater than nothing. */
float logprobs_top(const float *logits, int n_vocab, int n, int32_t *ids, float *logprobs) {
    CHECK(n_vocab > 0 && n >= 0 && n <= n_vocab);
    int kept = 0;
    float largest = -INFINITY;
    for (int32_t id = 0; id < n_vocab; id++) {
        float x = isnan(logits[id]) ? -INFINITY : logits[id];
        largest = fmaxf(largest, x);
        if (kept == n && (n == 0 || x <= logprobs[n - 1])) continue;
        int at = kept < n ? kept++ : n - 1;
        for (; at > 0 && x > logprobs[at - 1]; at--) {
            logprobs[at] = logprobs[at - 1];
            ids[at] = ids[at - 1];
        }
        logprobs[at] = x;
        ids[at] = id;
    }
    double sum = 0;
    for (int id = 0; id < n_vocab; id++)
        if (!isnan(logits[id])) sum += isinf(largest) ? logits[id] == largest : exp((double)logits[id] - largest);
    float log_sum = (float)(largest + log(sum));
    for (int i = 0; i < n; i++)
        logprobs[i] = (float)(logprobs[i] == largest ? -log(sum) : (double)logprobs[i] - log_sum);
    return log_sum;
}
