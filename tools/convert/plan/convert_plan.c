/* tools/convert/plan/convert_plan.c: what becomes of each tensor of a model. See convert.h. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/buffer.h"
#include "retro/model/packed.h"
#include "retro/weights/gguf_blocks.h"
#include "tools/convert/plan/convert.h"

/* Calls back while the model is opened: the names it uses, in the order of loading. */
struct collector {
    struct loaded_tensor *tensors;
    int n, capacity;
};

static void collect(void *context, const struct loaded_tensor *t) {
    struct collector *c = context;
    c->tensors = xgrow(c->tensors, c->n, &c->capacity, sizeof *c->tensors);
    c->tensors[c->n] = *t;
    c->tensors[c->n].name = xstrdup(t->name);
    c->n++;
}

static void collector_free(struct collector *c) {
    for (int i = 0; i < c->n; i++) free((void *)(uintptr_t)c->tensors[i].name);
    free(c->tensors);
}

static enum dtype dtype_of(const struct stored_tensor *t) {
    switch (t->dtype) {
        case STORED_F16: return DTYPE_F16;
        case STORED_BF16: return DTYPE_BF16;
        case STORED_I8: return DTYPE_INT8;
        case STORED_U8: return DTYPE_INT4;
        case STORED_BLOCKS: return t->form->dtype;
        default: return DTYPE_F32; /* the model was opened, so it is one of these */
    }
}

static bool matches(const char *const *patterns, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (fnmatch(patterns[i], name, 0) == 0) return true;
    return false;
}

bool conversion_keeps(const struct convert_options *o, const char *name) { return matches(o->keep, o->n_keep, name); }

/* The word table is most often the output matrix too, whose errors go straight into the logits: both stay at 8 bits.
 * docs/quantisation.md has what each choice costs. */
enum dtype conversion_choose(enum tensor_role role, enum dtype to) {
    return to == DTYPE_INT4 && role != TENSOR_LINEAR ? DTYPE_INT8 : to;
}

/* A matrix that lies as [in, out] in the source (`columns`) may have to be [out, in] where it goes, or the other way
 * round. */
static void plan_turns(struct change *c, bool columns, bool transposed) {
    bool to_columns = transposed && !dtype_quantised(c->to);
    c->by_column = columns && !to_columns;
    c->turned_back = to_columns && !columns;
    if (!c->by_column) return;
    int64_t rows = c->rows;
    c->rows = c->cols;
    c->cols = rows;
}

/* A tensor as a matrix: a convolution over patches [d, 3, P, P] has d rows, a table [1, positions, d] has positions. */
static void take_shape(struct change *c, const struct stored_tensor *t) {
    int first = 0;
    while (first < t->n_dims - 2 && t->shape[first] == 1) first++;
    c->rows = t->n_dims > 0 ? t->shape[first] : 1;
    c->cols = t->dtype == STORED_U8 ? 2 : 1;
    for (int i = first + 1; i < t->n_dims; i++) c->cols *= t->shape[i];
}

/* Norms, biases and tables of positions stay as they are: they are small, and computed with as f32. */
static void add_change(struct conversion *p, const struct loaded_tensor *t, const struct convert_options *o) {
    struct change *c = &p->changes[p->n];
    p->n++;
    const struct stored_tensor *stored = weights_find(p->weights, t->name);
    *c = (struct change){.stored = stored, .role = t->role, .weight = t->weight, .from = dtype_of(stored)};
    take_shape(c, stored);
    bool columns = t->transposed && !stored->turned && !dtype_quantised(c->from);
    int64_t n_in = columns ? c->rows : c->cols;
    bool stays = t->role == TENSOR_OTHER || conversion_keeps(o, t->name) ||
                 (dtype_quantised(o->dtype) && n_in % QUANTISE_BLOCK != 0);
    c->to = stays ? c->from : conversion_choose(t->role, o->dtype);
    /* Blocks that are smaller than what is asked for gain nothing. */
    if (stored->form && c->from == DTYPE_INT4 && c->to == DTYPE_INT8) c->to = DTYPE_INT4;
    plan_turns(c, columns, t->transposed);
}

static enum status check_keep(const struct conversion *p, const struct convert_options *o, struct error *e) {
    for (int k = 0; k < o->n_keep; k++) {
        bool found = false;
        for (int i = 0; i < p->n && !found; i++) found = matches(&o->keep[k], 1, p->changes[i].stored->name);
        if (!found) return error_set(e, STATUS_INVALID, "--keep %s: no tensor has such a name", o->keep[k]);
    }
    return STATUS_OK;
}

/* A conversion cannot mend the errors of an earlier one. */
static enum status check_sense(const struct conversion *p, const struct convert_options *o, struct error *e) {
    int changed = 0;
    for (int i = 0; i < p->n; i++) {
        const struct change *c = &p->changes[i];
        if (c->to == c->from) continue;
        changed++;
        if (dtype_quantised(c->from) && dtype_quantised(c->to))
            return error_set(e, STATUS_INVALID,
                             "%s holds %s already (%s): quantise the model it was made from, which still has what "
                             "rounding lost",
                             o->from, dtype_name(c->from), c->stored->name);
    }
    if (changed == 0 && !o->from_gguf)
        return error_set(e, STATUS_INVALID, "%s: every matrix is %s already or has to stay as it is", o->from,
                         dtype_name(o->dtype));
    return STATUS_OK;
}

/* A packed model is made from a folder, and that can be converted. */
static enum status check_unpacked(const struct convert_options *o, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/" PACKED_FILE, o->from);
    bool packed = access(path.data, F_OK) == 0;
    buffer_free(&path);
    if (!packed) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s is packed already: convert the folder it was made from", o->from);
}

static enum status open_model(struct conversion *p, const struct convert_options *o, struct collector *c,
                              struct error *e) {
    struct model_options options = {.check_only = !(o->format && o->format->loaded) && o->calibrate == NULL,
                                    .storable = true,
                                    .loaded = collect,
                                    .context = c};
    if (check_unpacked(o, e) || backend_open(&p->backend, "cpu", &(struct backend_options){0}, e) ||
        comm_open_single(&p->comm, e) || model_open(&p->model, o->from, p->backend, p->comm, &options, e))
        return e->status;
    bool embeds = strcmp(model_info(p->model)->family, "bert") == 0;
    if (embeds && o->format && o->format->loaded)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s is an embedder, which collections know by its safetensors: it cannot be packed", o->from);
    if (embeds && o->calibrate)
        return error_set(e, STATUS_UNSUPPORTED, "%s is an embedder: --calibrate needs a model that writes text",
                         o->from);
    return STATUS_OK;
}

enum status conversion_open(struct conversion *p, const struct convert_options *o, struct error *e) {
    struct collector c = {0};
    *p = (struct conversion){0};
    enum status status = open_model(p, o, &c, e);
    bool loaded = o->format && o->format->loaded;
    if (status == STATUS_OK && !loaded) status = weights_open(&p->weights, o->from, e);
    if (status == STATUS_OK && o->format == NULL) {
        p->changes = xcalloc((size_t)c.n + 1, sizeof *p->changes);
        for (int i = 0; i < c.n && status == STATUS_OK; i++) add_change(p, &c.tensors[i], o);
        if (status == STATUS_OK) status = check_keep(p, o, e);
        if (status == STATUS_OK) status = check_sense(p, o, e);
    }
    collector_free(&c);
    return status;
}

void conversion_close(struct conversion *p) {
    free(p->changes);
    weights_close(p->weights);
    model_close(p->model);
    comm_close(p->comm);
    backend_close(p->backend);
}

static size_t bytes_of(const struct change *c, enum dtype t) {
    return matrix_bytes(t, (size_t)c->rows * (size_t)c->cols);
}

void conversion_print(const struct conversion *p) {
    if (p->n == 0 && p->weights) {
        printf("%.2f MB of weights in their own types\n", 1e-6 * (double)model_info(p->model)->weight_bytes);
        return;
    }
    if (p->n == 0) { /* packing changes no tensor */
        printf("%.2f MB of weights in the layout %s\n", 1e-6 * (double)model_info(p->model)->weight_bytes,
               p->backend->ops->packed_layout);
        return;
    }
    size_t before = 0, after = 0;
    struct deviation all = {0};
    printf("%-64s %16s %-13s %10s %10s %10s %8s\n", "tensor", "shape", "type", "KB before", "KB after", "rel. error",
           "largest");
    for (int i = 0; i < p->n; i++) {
        const struct change *c = &p->changes[i];
        char shape[40], type[20];
        before += bytes_of(c, c->from);
        after += bytes_of(c, c->to);
        if (c->to == c->from) continue;
        snprintf(shape, sizeof shape, "[%lld, %lld]", (long long)c->rows, (long long)c->cols);
        snprintf(type, sizeof type, "%s > %s", dtype_name(c->from), dtype_name(c->to));
        printf("%-64s %16s %-13s %10.1f %10.1f %9.3f%% %8.2g\n", c->stored->name, shape, type,
               1e-3 * (double)bytes_of(c, c->from), 1e-3 * (double)bytes_of(c, c->to),
               100 * deviation_relative(&c->deviation), c->deviation.largest);
        all.squared += c->deviation.squared;
        all.total += c->deviation.total;
    }
    int kept = 0;
    for (int i = 0; i < p->n; i++) kept += p->changes[i].to == p->changes[i].from;
    printf("%d tensors converted, relative error %.3f %%; %d kept as they are; %.2f MB before, %.2f MB after\n",
           p->n - kept, 100 * deviation_relative(&all), kept, 1e-6 * (double)before, 1e-6 * (double)after);
}
