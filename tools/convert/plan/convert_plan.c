/* tools/convert/plan/convert_plan.c: what becomes of each tensor of a model. See convert.h. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/buffer.h"
#include "retro/model/packed.h"
#include "retro/weights/fp8_blocks.h"
#include "retro/weights/gguf_blocks.h"
#include "tools/convert/plan/convert.h"

/* Calls back while the model is opened: the names it uses, in the order of loading. */
struct collector {
    struct loaded_tensor *tensors;
    int n, capacity;
};

static void collect(void *context, const struct loaded_tensor *tensor) {
    struct collector *collector = context;
    collector->tensors =
        xgrow(collector->tensors, collector->n, &collector->capacity, sizeof *collector->tensors);
    collector->tensors[collector->n] = *tensor;
    collector->tensors[collector->n].name = xstrdup(tensor->name);
    collector->n++;
}

static void collector_free(struct collector *collector) {
    for (int i = 0; i < collector->n; i++) free((void *)(uintptr_t)collector->tensors[i].name);
    free(collector->tensors);
}

/* Bytes with scales that are bytes. */
static bool is_mxfp4(const struct weights *weights, const struct stored_tensor *stored) {
    struct buffer name = {0};
    buffer_printf(&name, "%s%s", stored->name, plane_suffixes[1]);
    const struct stored_tensor *scales = weights_find(weights, name.data);
    buffer_free(&name);
    return stored->dtype == STORED_U8 && scales && scales->dtype == STORED_U8;
}

static const struct stored_tensor *scales_of(const struct weights *weights,
                                             const struct stored_tensor *stored) {
    struct buffer name = {0};
    buffer_printf(&name, "%s" FP8_SCALES, stored->name);
    const struct stored_tensor *scales = weights_find(weights, name.data);
    buffer_free(&name);
    CHECK(scales != NULL); /* or the model would not have opened */
    return scales;
}

static enum dtype dtype_of(const struct weights *weights, const struct stored_tensor *stored) {
    if (is_mxfp4(weights, stored)) return DTYPE_MXFP4;
    switch (stored->dtype) {
        case STORED_F16: return DTYPE_F16;
        case STORED_BF16: return DTYPE_BF16;
        case STORED_I8: return DTYPE_INT8;
        case STORED_U8: return DTYPE_INT4;
        case STORED_BLOCKS: return stored->form->dtype;
        case STORED_F8_E4M3: return DTYPE_BF16;
        default: return DTYPE_F32; /* the model was opened, so it is one of these */
    }
}

static bool matches(const char *const *patterns, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (fnmatch(patterns[i], name, 0) == 0) return true;
    return false;
}

bool conversion_keeps(const struct convert_options *options, const char *name) {
    return matches(options->keep, options->n_keep, name);
}

/* The word table is most often the output matrix too, whose errors go straight into the logits:
 * both stay at 8 bits. docs/quantisation.md has what each choice costs. */
enum dtype conversion_choose(enum tensor_role role, enum dtype to) {
    return to == DTYPE_INT4 && role != TENSOR_LINEAR ? DTYPE_INT8 : to;
}

/* A matrix that lies as [in, out] in the source (`columns`) may have to be [out, in] where it goes,
 * or the other way round. */
static void plan_turns(struct change *change, bool columns, bool transposed) {
    bool to_columns = transposed && !dtype_quantised(change->to);
    change->by_column = columns && !to_columns;
    change->turned_back = to_columns && !columns;
    if (!change->by_column) return;
    int64_t rows = change->rows;
    change->rows = change->cols;
    change->cols = rows;
}

/* A tensor as a matrix: a convolution over patches [d, 3, P, P] has d rows, a table [1, positions,
 * d] has positions, and one of [2, positions, d] as many as the model reads. */
static void take_shape(struct change *change, const struct stored_tensor *stored, int table_rows) {
    int first = 0;
    while (first < stored->n_dims - 2 && stored->shape[first] == 1) first++;
    change->rows = stored->n_dims > 0 ? stored->shape[first] : 1;
    change->cols = stored->dtype == STORED_U8 ? 2 : 1;
    for (; change->rows < table_rows && first < stored->n_dims - 2; first++)
        change->rows *= stored->shape[first + 1];
    for (int i = first + 1; i < stored->n_dims; i++) change->cols *= stored->shape[i];
}

/* Norms, biases and tables of positions stay as they are: they are small, and computed with as f32.
 */
static void add_change(struct conversion *conversion, const struct loaded_tensor *tensor,
                       const struct convert_options *options) {
    struct change *change = &conversion->changes[conversion->n];
    conversion->n++;
    const struct stored_tensor *stored = weights_find(conversion->weights, tensor->name);
    *change = (struct change){.stored = stored,
                              .role = tensor->role,
                              .weight = tensor->weight,
                              .from = dtype_of(conversion->weights, stored)};
    if (stored->dtype == STORED_F8_E4M3) change->scales = scales_of(conversion->weights, stored);
    take_shape(change, stored, tensor->table_rows);
    bool columns =
        tensor->transposed && !stored->turned && !change->scales && !dtype_quantised(change->from);
    int64_t n_in = columns ? change->rows : change->cols;
    bool stays = tensor->role == TENSOR_OTHER || conversion_keeps(options, tensor->name) ||
                 (dtype_quantised(options->dtype) && n_in % QUANTISE_BLOCK != 0);
    /* MXFP4 is as small as anything that it could become. */
    stays = stays || (change->from == DTYPE_MXFP4 && dtype_quantised(options->dtype));
    change->to = stays ? change->from : conversion_choose(tensor->role, options->dtype);
    /* Blocks that are smaller than what is asked for gain nothing. */
    if (stored->form && change->from == DTYPE_INT4 && change->to == DTYPE_INT8)
        change->to = DTYPE_INT4;
    plan_turns(change, columns, tensor->transposed);
}

static enum status check_keep(const struct conversion *conversion,
                              const struct convert_options *options, struct error *e) {
    for (int k = 0; k < options->n_keep; k++) {
        bool found = false;
        for (int i = 0; i < conversion->n && !found; i++)
            found = matches(&options->keep[k], 1, conversion->changes[i].stored->name);
        if (!found)
            return error_set(e, STATUS_INVALID, "--keep %s: no tensor has such a name",
                             options->keep[k]);
    }
    return STATUS_OK;
}

/* A conversion cannot mend the errors of an earlier one. */
static enum status check_sense(const struct conversion *conversion,
                               const struct convert_options *options, struct error *e) {
    int changed = 0;
    for (int i = 0; i < conversion->n; i++) {
        const struct change *change = &conversion->changes[i];
        if (change->to == change->from && !change->scales) continue;
        changed++;
        if (dtype_quantised(change->from) && dtype_quantised(change->to))
            return error_set(e, STATUS_INVALID,
                             "%s holds %s already (%s): quantise the model it was made from, which "
                             "still has what "
                             "rounding lost",
                             options->from, dtype_name(change->from), change->stored->name);
    }
    if (changed == 0 && !options->from_gguf)
        return error_set(e, STATUS_INVALID,
                         "%s: every matrix is %s already or has to stay as it is", options->from,
                         dtype_name(options->dtype));
    return STATUS_OK;
}

/* A packed model is made from a folder, and that can be converted. */
static enum status check_unpacked(const struct convert_options *options, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/" PACKED_FILE, options->from);
    bool packed = access(path.data, F_OK) == 0;
    buffer_free(&path);
    if (!packed) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s is packed already: convert the folder it was made from",
                     options->from);
}

static enum status open_model(struct conversion *conversion,
                              const struct convert_options *convert_options,
                              struct collector *collector, struct error *e) {
    struct model_options options = {
        .check_only = convert_options->calibrate == NULL,
        .storable = !(convert_options->format && convert_options->format->packs),
        .loaded = collect,
        .context = collector};
    if (check_unpacked(convert_options, e) ||
        backend_open(&conversion->backend, "cpu", &(struct backend_options){0}, e) ||
        comm_open_single(&conversion->comm, e) ||
        model_open(&conversion->model, convert_options->from, conversion->backend, conversion->comm,
                   &options, e))
        return e->status;
    bool embeds = strcmp(model_info(conversion->model)->family, "bert") == 0;
    if (embeds && convert_options->format && convert_options->format->packs)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "%s is an embedder, which collections know by its safetensors: it cannot be packed",
            convert_options->from);
    if (embeds && convert_options->calibrate)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s is an embedder: --calibrate needs a model that writes text",
                         convert_options->from);
    return STATUS_OK;
}

enum status conversion_open(struct conversion *conversion, const struct convert_options *options,
                            struct error *e) {
    struct collector collector = {0};
    *conversion = (struct conversion){0};
    enum status status = open_model(conversion, options, &collector, e);
    bool packs = options->format && options->format->packs;
    if (status == STATUS_OK && !packs)
        status = weights_open(&conversion->weights, options->from, e);
    if (status == STATUS_OK && options->format == NULL) {
        conversion->changes = xcalloc((size_t)collector.n + 1, sizeof *conversion->changes);
        for (int i = 0; i < collector.n && status == STATUS_OK; i++)
            add_change(conversion, &collector.tensors[i], options);
        if (status == STATUS_OK) status = check_keep(conversion, options, e);
        if (status == STATUS_OK) status = check_sense(conversion, options, e);
    }
    collector_free(&collector);
    return status;
}

void conversion_close(struct conversion *conversion) {
    free(conversion->changes);
    weights_close(conversion->weights);
    model_close(conversion->model);
    comm_close(conversion->comm);
    backend_close(conversion->backend);
}

static size_t bytes_of(const struct change *change, enum dtype dtype) {
    return matrix_bytes(dtype, (size_t)change->rows * (size_t)change->cols);
}

/* Whether it is written as it is stored. */
static bool is_kept(const struct change *change) {
    return change->to == change->from && !change->scales;
}

static size_t bytes_before(const struct change *change) {
    if (!change->scales) return bytes_of(change, change->from);
    return change->stored->bytes + change->scales->bytes;
}

void conversion_print(const struct conversion *conversion) {
    if (conversion->n == 0 && conversion->weights) {
        printf("%.2f MB of weights in their own types\n",
               1e-6 * (double)model_info(conversion->model)->weight_bytes);
        return;
    }
    if (conversion->n == 0) { /* packing changes no tensor */
        printf("%.2f MB of weights in the layout %s\n",
               1e-6 * (double)model_info(conversion->model)->weight_bytes,
               conversion->backend->ops->packed_layout);
        return;
    }
    size_t before = 0, after = 0;
    struct deviation all = {0};
    printf("%-64s %16s %-13s %10s %10s %10s %8s\n", "tensor", "shape", "type", "KB before",
           "KB after", "rel. error", "largest");
    for (int i = 0; i < conversion->n; i++) {
        const struct change *change = &conversion->changes[i];
        char shape[40], type[20];
        before += bytes_before(change);
        after += bytes_of(change, change->to);
        if (is_kept(change)) continue;
        snprintf(shape, sizeof shape, "[%lld, %lld]", (long long)change->rows,
                 (long long)change->cols);
        snprintf(type, sizeof type, "%s > %s", change->scales ? "fp8" : dtype_name(change->from),
                 dtype_name(change->to));
        printf("%-64s %16s %-13s %10.1f %10.1f %9.3f%% %8.2g\n", change->stored->name, shape, type,
               1e-3 * (double)bytes_before(change), 1e-3 * (double)bytes_of(change, change->to),
               100 * deviation_relative(&change->deviation), change->deviation.largest);
        all.squared += change->deviation.squared;
        all.total += change->deviation.total;
    }
    int kept = 0;
    for (int i = 0; i < conversion->n; i++) kept += is_kept(&conversion->changes[i]);
    printf(
        "%d tensors converted, relative error %.3f %%; %d kept as they are; %.2f MB before, %.2f "
        "MB after\n",
        conversion->n - kept, 100 * deviation_relative(&all), kept, 1e-6 * (double)before,
        1e-6 * (double)after);
}
