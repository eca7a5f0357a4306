/* kernels/device/backend.c: opening a device by name, and the checked wrappers around its ops. See
 * backend.h.
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
    enum status (*open)(struct backend *backend, const struct backend_options *options, int ordinal,
                        struct error *e);
};

static enum status open_cpu(struct backend *backend, const struct backend_options *options,
                            int ordinal, struct error *e) {
    (void)ordinal;
    return cpu_open(backend, options, e);
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
static bool device_matches(const struct device *device, const char *name, int *ordinal) {
    size_t n = strlen(device->name);
    *ordinal = 0;
    if (strncmp(name, device->name, n) != 0) return false;
    if (name[n] == '\0') return true;
    char *end;
    long number = name[n] == ':' && device->numbered && isdigit((unsigned char)name[n + 1])
                      ? strtol(name + n + 1, &end, 10)
                      : -1;
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

enum status backend_open(struct backend **out, const char *device,
                         const struct backend_options *options, struct error *e) {
    *out = NULL;
    device = backend_choose(device);
    for (size_t i = 0; i < ARRAY_COUNT(devices); i++) {
        int ordinal;
        if (!device_matches(&devices[i], device, &ordinal)) continue;
        struct backend *backend = xcalloc(1, sizeof *backend);
        enum status status = devices[i].open(backend, options, ordinal, e);
        if (status)
            free(backend);
        else
            *out = backend;
        return status;
    }
    const char *why = !HAVE_CUDA && strncmp(device, "cuda", 4) == 0 ? "this build has no CUDA"
                                                                    : "there is no such device";
    return error_set(e, STATUS_UNSUPPORTED, "device \"%.60s\": %s; use \"cpu\"", device, why);
}

void backend_close(struct backend *backend) {
    if (backend == NULL) return;
    backend->ops->close(backend);
    free(backend);
}

const char *backend_describe(const struct backend *backend) {
    return backend->ops->describe(backend);
}

enum status backend_alloc(struct backend *backend, void **out, size_t bytes, const char *what,
                          struct error *e) {
    *out = backend->ops->alloc(backend, bytes);
    if (*out != NULL) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "%s: no room for %s: %.1f MB", backend->ops->name, what,
                     1e-6 * (double)bytes);
}

void backend_wipe(struct backend *backend, void *device, size_t bytes) {
    static const char zeros[1 << 16];
    for (size_t done = 0; done < bytes; done += sizeof zeros) {
        size_t left = bytes - done;
        backend_upload(backend, (char *)device + done, zeros,
                       left < sizeof zeros ? left : sizeof zeros);
    }
}

enum status backend_pack(struct backend *backend, struct weight *weight,
                         const struct host_matrix *host, struct error *e) {
    CHECK(weight->n_out > 0 && weight->n_in > 0 && host->values != NULL);
    bool quantised = dtype_quantised(weight->dtype);
    if (weight->dtype != host->dtype && (quantised || dtype_quantised(host->dtype)))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: a [%d, %d] %s matrix was to become a weight of %s; convert it first",
                         backend->ops->name, weight->n_out, weight->n_in, dtype_name(host->dtype),
                         dtype_name(weight->dtype));
    CHECK(!quantised || weight->n_in % dtype_block(weight->dtype) == 0);
    bool halves = weight->dtype == DTYPE_INT8 || weight->dtype == DTYPE_INT4;
    CHECK(!quantised || (host->scales != NULL) == halves);
    CHECK(!quantised || (host->exponents != NULL) == (weight->dtype == DTYPE_MXFP4));
    CHECK(!quantised || (host->minimums != NULL) == (weight->dtype == DTYPE_INT4));
    return backend->ops->pack(backend, weight, host, e);
}

static bool tensor_valid(const struct tensor *t) {
    return t->rows >= 0 && t->cols >= 0 && (t->rows <= 1 || t->stride >= t->cols) &&
           (t->data != NULL || t->rows == 0 || t->cols == 0);
}

static bool tensor_is_f32(const struct tensor *t, int rows, int cols) {
    return tensor_valid(t) && t->dtype == DTYPE_F32 && t->rows == rows && t->cols == cols;
}

void backend_linear(struct backend *backend, const struct linear_args *args) {
    CHECK(args->weight != NULL && args->weight->data != NULL);
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->weight->n_in));
    CHECK(tensor_is_f32(&args->y, args->x.rows, args->weight->n_out));
    if (!backend->error.status) backend->ops->linear(backend, args);
}

void backend_linear_heads(struct backend *backend, const struct linear_heads_args *args) {
    const struct weight *first = &args->weights[0];
    CHECK(args->heads > 0 && args->kept >= 0 && args->x.cols % args->heads == 0 &&
          args->x.cols / args->heads >= first->n_in + args->kept);
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->x.cols));
    CHECK(tensor_is_f32(&args->y, args->x.rows, args->heads * (first->n_out + args->kept)));
    for (int i = 0; i < args->heads; i++) {
        const struct weight *weight = &args->weights[i];
        CHECK(weight->data != NULL && weight->n_in == first->n_in &&
              weight->n_out == first->n_out && weight->dtype == first->dtype);
    }
    if (!backend->error.status) backend->ops->linear_heads(backend, args);
}

/* Every key of a span lies in k and v. */
static void keys_check(const struct attention_args *args, const struct attention_span *span) {
    CHECK(span->k_start >= 0 && span->k_count >= 0);
    if (args->blocks == NULL) {
        CHECK(span->k_count <= args->k.rows - span->k_start);
        return;
    }
    CHECK(span->k_start <= args->n_blocks &&
          span->k_count <= (int64_t)(args->n_blocks - span->k_start) * ATTENTION_BLOCK);
    for (int at = 0; at < span->k_count; at += ATTENTION_BLOCK) {
        int64_t block = args->blocks[span->k_start + at / ATTENTION_BLOCK];
        CHECK(block >= 0 &&
              block * ATTENTION_BLOCK + min_int(ATTENTION_BLOCK, span->k_count - at) <=
                  args->k.rows);
    }
}

static void spans_check(const struct attention_args *args) {
    for (int s = 0; s < args->n_spans; s++) {
        const struct attention_span *span = &args->spans[s];
        CHECK(span->q_start >= 0 && span->q_count >= 0 &&
              span->q_count <= args->q.rows - span->q_start);
        bool stands = args->mask == MASK_CAUSAL || args->window > 0;
        CHECK(!stands || span->k_count == 0 || span->k_count >= span->q_count);
        CHECK(!span->mutual || (args->mask == MASK_CAUSAL && args->chunk == 0));
        keys_check(args, span);
    }
}

/* Rows of int8, and they alone, have a scale for each of `groups` groups. */
static bool scales_fit(const struct tensor *t, const struct tensor *scales, int groups) {
    if (t->dtype != DTYPE_INT8) return scales->data == NULL;
    return tensor_valid(scales) && scales->dtype == DTYPE_BF16 && scales->rows == t->rows &&
           scales->cols == groups;
}

static void distances_check(const struct attention_args *args) {
    const struct distance_scores *distances = &args->distances;
    if (distances->by_query.data == NULL) return;
    int columns = distances->by_query.cols;
    CHECK(columns % args->heads == 0 && distances->columns != NULL && distances->reach >= 0);
    CHECK(tensor_is_f32(&distances->by_query, args->q.rows, columns) &&
          tensor_is_f32(&distances->by_key, args->k.rows, columns));
    CHECK(args->kv_heads == args->heads && args->blocks == NULL && args->bias.data == NULL &&
          args->softcap == 0);
}

/* All but out and v. */
static void attention_check(const struct attention_args *args) {
    CHECK(args->heads > 0 && args->kv_heads > 0 && args->heads % args->kv_heads == 0 &&
          args->n_spans >= 0 && args->n_blocks >= 0);
    CHECK(args->head_dim > 0 && args->head_dim <= ATTENTION_MAX_HEAD);
    CHECK(tensor_is_f32(&args->q, args->q.rows, args->heads * args->head_dim));
    CHECK(tensor_valid(&args->k) && args->k.cols == args->kv_heads * args->head_dim);
    CHECK(scales_fit(&args->k, &args->k_scales, args->kv_heads));
    CHECK(args->bias.data == NULL ||
          (tensor_is_f32(&args->bias, args->heads, args->bias.cols) && args->bias.cols % 2 == 1));
    CHECK(args->window >= 0);
    CHECK(args->softcap >= 0);
    distances_check(args);
    spans_check(args);
}

void backend_attention(struct backend *backend, const struct attention_args *args) {
    attention_check(args);
    CHECK(tensor_is_f32(&args->out, args->q.rows, args->q.cols));
    CHECK(tensor_valid(&args->v) && args->v.cols == args->k.cols && args->v.rows == args->k.rows);
    CHECK(scales_fit(&args->v, &args->v_scales, args->kv_heads));
    if (!backend->error.status) backend->ops->attention(backend, args);
}

void backend_attention_shares(struct backend *backend, const struct attention_shares_args *args) {
    attention_check(&args->of);
    CHECK(tensor_is_f32(&args->y, args->of.q.rows, args->y.cols));
    for (int s = 0; s < args->of.n_spans; s++) {
        struct key_group list = args->span_groups[s];
        CHECK(list.first >= 0 && list.n >= 0 && list.n <= args->y.cols &&
              list.n <= args->n_groups - list.first);
        for (int g = list.first; g < list.first + list.n; g++) {
            struct key_group keys = args->groups[g];
            CHECK(keys.first >= 0 && keys.n >= 0 && keys.n <= INT32_MAX - keys.first);
        }
    }
    if (!backend->error.status) backend->ops->attention_shares(backend, args);
}

void backend_norm(struct backend *backend, const struct norm_args *args) {
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->x.cols) &&
          tensor_is_f32(&args->y, args->x.rows, args->x.cols));
    CHECK((args->gamma != NULL && args->kind == NORM_LAYER) || args->beta == NULL);
    CHECK(args->heads >= 0 && (args->heads <= 1 || args->x.cols % args->heads == 0));
    CHECK(args->squares.data == NULL ||
          (args->kind == NORM_RMS && args->heads <= 1 && args->whole >= args->x.cols));
    CHECK(args->squares.data == NULL || tensor_is_f32(&args->squares, args->x.rows, 1));
    if (!backend->error.status) backend->ops->norm(backend, args);
}

void backend_square_rows(struct backend *backend, const struct square_rows_args *args) {
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->x.cols) &&
          tensor_is_f32(&args->y, args->x.rows, 1));
    if (!backend->error.status) backend->ops->square_rows(backend, args);
}

void backend_add(struct backend *backend, const struct add_args *args) {
    CHECK(tensor_is_f32(&args->a, args->a.rows, args->a.cols));
    CHECK(tensor_is_f32(&args->b, args->a.rows, args->a.cols) &&
          tensor_is_f32(&args->y, args->a.rows, args->a.cols));
    CHECK(args->scale >= 0);
    if (!backend->error.status) backend->ops->add(backend, args);
}

void backend_glu(struct backend *backend, const struct glu_args *args) {
    int halves = gating_halves(&args->gating);
    CHECK(args->x.cols % halves == 0 && tensor_is_f32(&args->x, args->x.rows, args->x.cols));
    CHECK(tensor_is_f32(&args->y, args->x.rows, args->x.cols / halves) && args->gating.limit >= 0);
    if (!backend->error.status) backend->ops->glu(backend, args);
}

void backend_gate(struct backend *backend, const struct gate_args *args) {
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->x.cols) && args->x.cols > 0);
    CHECK(tensor_is_f32(&args->y, args->x.rows, args->y.cols) &&
          tensor_is_f32(&args->by, args->x.rows, args->y.cols));
    CHECK(args->y.cols % args->x.cols == 0);
    CHECK(args->y.cols == args->x.cols || args->y.data != args->x.data);
    if (!backend->error.status) backend->ops->gate(backend, args);
}

static void state_spans_check(const struct state_span *spans, int n, int rows, int states) {
    for (int i = 0; i < n; i++) {
        CHECK(spans[i].first >= 0 && spans[i].n >= 0 && spans[i].n <= rows - spans[i].first);
        CHECK(spans[i].from >= -1 && spans[i].from < states);
        CHECK(spans[i].to >= -1 && spans[i].to < states);
    }
}

void backend_convolve(struct backend *backend, const struct convolve_args *args) {
    int channels = args->x.cols, kernel = args->filter.cols;
    CHECK(kernel > 0 && kernel <= DELTA_MAX_KERNEL && channels > 0);
    CHECK(tensor_is_f32(&args->filter, channels, kernel) && args->filter.stride == kernel);
    CHECK(tensor_is_f32(&args->x, args->x.rows, channels) &&
          tensor_is_f32(&args->y, args->x.rows, channels));
    CHECK(args->states.data == NULL ||
          (tensor_is_f32(&args->states, args->states.rows, args->states.cols) &&
           (int64_t)args->states.cols >= (int64_t)(kernel - 1) * channels));
    state_spans_check(args->spans, args->n_spans, args->x.rows, args->states.rows);
    if (!backend->error.status) backend->ops->convolve(backend, args);
}

void backend_delta(struct backend *backend, const struct delta_args *args) {
    int values = args->value_heads * args->value_dim,
        channels = 2 * args->key_heads * args->key_dim + values;
    bool adds = args->rule == DELTA_ADDS;
    CHECK(args->key_heads > 0 && args->value_heads % args->key_heads == 0 && args->key_dim > 0 &&
          args->key_dim <= DELTA_MAX_HEAD && args->value_dim > 0 &&
          args->value_dim <= DELTA_MAX_HEAD);
    CHECK(tensor_is_f32(&args->x, args->x.rows, channels));
    CHECK(tensor_is_f32(&args->gates, args->x.rows, (adds ? 1 : 2) * args->value_heads));
    CHECK(tensor_is_f32(&args->y, args->x.rows, values));
    CHECK(!adds || (args->skip != NULL && args->least <= args->most));
    CHECK(args->states.data == NULL ||
          (tensor_is_f32(&args->states, args->states.rows, args->states.cols) &&
           (int64_t)args->states.cols >= (int64_t)values * args->key_dim));
    state_spans_check(args->spans, args->n_spans, args->x.rows, args->states.rows);
    if (!backend->error.status) backend->ops->delta(backend, args);
}

void backend_route(struct backend *backend, const struct route_args *args) {
    CHECK(args->y.cols > 0 && args->y.cols % 2 == 0 && args->y.cols / 2 <= args->logits.cols &&
          args->logits.cols <= ROUTE_EXPERTS);
    CHECK(args->groups <= 1 ||
          (args->logits.cols % args->groups == 0 && args->groups_used <= args->groups &&
           args->y.cols / 2 <= args->logits.cols / args->groups * args->groups_used));
    CHECK(args->group_best >= 0 && args->group_best <= 2);
    CHECK(tensor_is_f32(&args->logits, args->logits.rows, args->logits.cols));
    CHECK(tensor_is_f32(&args->y, args->logits.rows, args->y.cols));
    if (!backend->error.status) backend->ops->route(backend, args);
}

static void experts_check(const struct experts_args *args) {
    int rows = args->x.rows, d = args->x.cols, ffn = args->fc2[0].n_in,
        wide = gating_halves(&args->gating) * ffn;
    for (int i = 0; i < args->n_experts; i++) {
        CHECK(args->fc1[i].data != NULL && args->fc1[i].n_in == d && args->fc1[i].n_out == wide);
        CHECK(args->fc2[i].data != NULL && args->fc2[i].n_in == ffn && args->fc2[i].n_out == d);
    }
    for (int i = 0; i < args->n_experts; i++) {
        CHECK(args->bias1 == NULL || args->bias1[i] != NULL);
        CHECK(args->bias2 == NULL || args->bias2[i] != NULL);
    }
    CHECK(tensor_is_f32(&args->wide, rows, wide) && tensor_is_f32(&args->gated, rows, ffn));
}

void backend_experts(struct backend *backend, const struct experts_args *args) {
    int rows = args->x.rows, d = args->x.cols, k = args->routes.cols / 2;
    CHECK(args->n_experts > 0 && k > 0 && k <= args->n_experts);
    CHECK(tensor_is_f32(&args->x, rows, d) && tensor_is_f32(&args->y, rows, d));
    CHECK(tensor_is_f32(&args->routes, rows, 2 * k));
    CHECK(tensor_is_f32(&args->few, rows, d) && tensor_is_f32(&args->parts, rows, k * d));
    CHECK(args->shared.data == NULL || tensor_is_f32(&args->shared, rows, d));
    CHECK(args->gate.data == NULL || tensor_is_f32(&args->gate, rows, 1));
    experts_check(args);
    if (!backend->error.status) backend->ops->experts(backend, args);
}

void backend_scale(struct backend *backend, const struct scale_args *args) {
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->x.cols));
    if (!backend->error.status) backend->ops->scale(backend, args);
}

void backend_xielu(struct backend *backend, const struct xielu_args *args) {
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->x.cols) &&
          tensor_is_f32(&args->y, args->x.rows, args->x.cols));
    CHECK(args->positive && args->negative && args->slope && args->least);
    if (!backend->error.status) backend->ops->xielu(backend, args);
}

void backend_clamp(struct backend *backend, const struct clamp_args *args) {
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->x.cols) && args->least && args->most);
    CHECK(tensor_is_f32(&args->y, args->x.rows, args->x.cols));
    if (!backend->error.status) backend->ops->clamp(backend, args);
}

void backend_softcap(struct backend *backend, const struct softcap_args *args) {
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->x.cols) && args->cap > 0);
    if (!backend->error.status) backend->ops->softcap(backend, args);
}

void backend_embed(struct backend *backend, const struct embed_args *args) {
    CHECK(args->word != NULL && args->word->data != NULL &&
          tensor_is_f32(&args->y, args->y.rows, args->word->n_in));
    CHECK(args->position == NULL ||
          tensor_is_f32(args->position, args->position->rows, args->y.cols));
    CHECK(args->type == NULL ||
          (tensor_is_f32(args->type, args->type->rows, args->y.cols) && args->type->rows > 0));
    CHECK(args->scale >= 0);
    for (int i = 0; i < args->y.rows; i++) {
        CHECK(args->ids[i] < args->word->n_out);
        CHECK(args->position == NULL ||
              (args->positions[i] >= 0 && args->positions[i] < args->position->rows));
    }
    if (!backend->error.status) backend->ops->embed(backend, args);
}

void backend_rope(struct backend *backend, const struct rope_args *args) {
    CHECK(args->heads > 0 && args->head_dim > 0 &&
          tensor_is_f32(&args->x, args->x.rows, args->heads * args->head_dim));
    CHECK(args->rotated >= 0 && args->first >= 0 && args->rotated <= args->head_dim - args->first &&
          args->rotated % 2 == 0);
    CHECK(args->head_dim <= ATTENTION_MAX_HEAD && args->scale >= 0 && args->sections >= 0);
    CHECK(args->grows_after >= 0);
    for (int p = 0; args->section_of && p < args->rotated / 2; p++)
        CHECK(args->section_of[p] < args->sections);
    if (!backend->error.status) backend->ops->rope(backend, args);
}

void backend_gather_rows(struct backend *backend, const struct gather_rows_args *args) {
    CHECK(tensor_valid(&args->x) && tensor_valid(&args->y) && args->x.cols == args->y.cols);
    for (int i = 0; i < args->y.rows; i++) CHECK(args->rows[i] < args->x.rows);
    if (!backend->error.status) backend->ops->gather_rows(backend, args);
}

void backend_scatter_rows(struct backend *backend, const struct scatter_rows_args *args) {
    CHECK(tensor_valid(&args->x) && tensor_valid(&args->y) && args->x.cols == args->y.cols);
    for (int i = 0; i < args->x.rows; i++) CHECK(args->rows[i] < args->y.rows);
    int groups = args->scales.cols;
    CHECK(scales_fit(&args->y, &args->scales, groups));
    CHECK(args->y.dtype != DTYPE_INT8 ||
          (args->x.dtype == DTYPE_F32 && groups > 0 && args->y.cols % groups == 0));
    if (!backend->error.status) backend->ops->scatter_rows(backend, args);
}

void backend_mean_rows(struct backend *backend, const struct mean_rows_args *args) {
    CHECK(tensor_is_f32(&args->x, args->x.rows, args->x.cols) &&
          tensor_is_f32(&args->y, args->y.rows, args->x.cols));
    for (int s = 0; s < args->y.rows; s++)
        CHECK(args->starts[s] >= 0 && args->starts[s] <= args->starts[s + 1] &&
              args->starts[s + 1] <= args->x.rows);
    if (!backend->error.status) backend->ops->mean_rows(backend, args);
}

void backend_sample(struct backend *backend, const struct sample_args *args) {
    CHECK(tensor_is_f32(&args->logits, args->logits.rows, args->logits.cols));
    CHECK(args->n_vocab > 0 && args->n_vocab <= args->logits.cols && args->n_vocab <= 1 << 24);
    for (int i = 0; i < args->logits.rows; i++)
        for (int64_t j = 0; j < args->params[i].n_edits; j++)
            CHECK(args->params[i].edits[j].id >= 0 && args->params[i].edits[j].id < args->n_vocab);
    if (!backend->error.status) backend->ops->sample(backend, args);
}

/* A candidate of logprobs_top sinks to its place among the best so far; ids come in rising order,
 * so a later equal stays behind. NaN ranks last: it compares greater than nothing. */
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
        if (!isnan(logits[id]))
            sum += isinf(largest) ? logits[id] == largest : exp((double)logits[id] - largest);
    float log_sum = (float)(largest + log(sum));
    for (int i = 0; i < n; i++)
        logprobs[i] = (float)(logprobs[i] == largest ? -log(sum) : (double)logprobs[i] - log_sum);
    return log_sum;
}
