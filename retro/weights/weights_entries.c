/* retro/weights/weights_entries.c: the list of tensors: added, sorted, and experts that a file
 * stacks taken apart. See weights_private.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/weights/weights_private.h"

enum { ENTRY_LIMIT = 1 << 20 };

struct entry *weights_add_entry(struct weights *weights, const char *name) {
    weights->entries =
        xgrow(weights->entries, weights->count, &weights->capacity, sizeof *weights->entries);
    struct entry *entry = &weights->entries[weights->count];
    weights->count++;
    *entry = (struct entry){.shard = weights->n_maps};
    entry->tensor.name = xstrdup(name);
    return entry;
}

int entry_compare(const void *a, const void *b) {
    const struct entry *entry = a, *the_entry = b;
    return strcmp(entry->tensor.name, the_entry->tensor.name);
}

enum status weights_sort(struct weights *weights, const char *path, struct error *e) {
    if (weights->count > 0)
        qsort(weights->entries, (size_t)weights->count, sizeof *weights->entries, entry_compare);
    for (int i = 1; i < weights->count; i++)
        if (entry_compare(&weights->entries[i - 1], &weights->entries[i]) == 0)
            return error_set(e, STATUS_CORRUPT, "%s: tensor \"%.*s\" is in two shards", path,
                             NAME_SHOWN, weights->entries[i].tensor.name);
    return STATUS_OK;
}

static void add_expert(struct weights *weights, const struct stored_tensor *whole, const char *name,
                       int64_t i) {
    struct stored_tensor *stored = &weights_add_entry(weights, name)->tensor;
    size_t n = (size_t)whole->shape[0];
    const char *own = stored->name;
    *stored = *whole;
    stored->name = own;
    stored->n_dims = whole->n_dims - 1;
    for (int dim = 0; dim < stored->n_dims; dim++) stored->shape[dim] = whole->shape[dim + 1];
    stored->elements = whole->elements / n;
    stored->bytes = whole->bytes / n;
    stored->data = (const char *)whole->data + (size_t)i * stored->bytes;
}

enum status weights_add_experts(struct weights *weights, const struct stored_tensor *whole,
                                int n_dims, const char *name, struct error *e) {
    const char *number = strchr(name, '#');
    int64_t n = whole->shape[0];
    if (whole->n_dims != n_dims || whole->elements == 0 || n > ENTRY_LIMIT - weights->count)
        return error_set(
            e, STATUS_CORRUPT,
            "tensor \"%.*s\": expected %d dimensions, experts first, and at most %d tensors",
            NAME_SHOWN, whole->name, n_dims, ENTRY_LIMIT);
    struct buffer one = {0};
    for (int64_t i = 0; i < n; i++) {
        buffer_clear(&one);
        buffer_printf(&one, "%.*s%lld%s", (int)(number - name), name, (long long)i, number + 1);
        add_expert(weights, whole, one.data, i);
    }
    buffer_free(&one);
    return STATUS_OK;
}

/* The endings of names of stacked tensors, and those of the experts' own: weights as transformers 4
 * names what is not stacked. */
static const struct stacked_name {
    const char *ending, *own;
    int n_dims;
} stacked_names[] = {
    {".experts.gate_up_proj", ".experts.#.gate_up_proj.weight", 3},
    {".experts.up_proj", ".experts.#.up_proj.weight", 3},
    {".experts.down_proj", ".experts.#.down_proj.weight", 3},
    {".block_sparse_moe.input_linear.weight", ".block_sparse_moe.experts.#.gate_up_proj.weight", 3},
    {".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.#.down_proj.weight", 3},
    {".experts.gate_up_proj_bias", ".experts.#.gate_up_proj.bias", 2},
    {".experts.down_proj_bias", ".experts.#.down_proj.bias", 2},
    {".experts.gate_up_proj_scale_inv", ".experts.#.gate_up_proj.weight_scale_inv", 3},
    {".experts.down_proj_scale_inv", ".experts.#.down_proj.weight_scale_inv", 3},
    {".experts.gate_up_proj_scale_inv", ".experts.#.gate_up_proj.weight_scale_inv", 1},
    {".experts.down_proj_scale_inv", ".experts.#.down_proj.weight_scale_inv", 1},
    {".experts.gate_up_proj_blocks", ".experts.#.gate_up_proj.weight", 4},
    {".experts.gate_up_proj_scales", ".experts.#.gate_up_proj.weight.scale", 3},
    {".experts.down_proj_blocks", ".experts.#.down_proj.weight", 4},
    {".experts.down_proj_scales", ".experts.#.down_proj.weight.scale", 3},
};

/* That of "layers.0.mlp.experts.down_proj"; NULL for other tensors. */
static const struct stacked_name *find_stacked(const struct stored_tensor *stored) {
    size_t size = strlen(stored->name);
    if (strchr(stored->name, '#')) return NULL;
    for (size_t i = 0; i < ARRAY_COUNT(stacked_names); i++) {
        size_t tail = strlen(stacked_names[i].ending);
        if (stored->n_dims == stacked_names[i].n_dims && size > tail &&
            strcmp(stored->name + size - tail, stacked_names[i].ending) == 0)
            return &stacked_names[i];
    }
    return NULL;
}

/* The first expert owns the copy, where there is one. */
static enum status unstack_entry(struct weights *weights, int i, struct error *e) {
    const struct stored_tensor whole = weights->entries[i].tensor;
    const struct stacked_name *stacked = find_stacked(&whole);
    size_t root = strlen(whole.name) - strlen(stacked->ending);
    struct buffer name = {0};
    int first = weights->count;
    buffer_printf(&name, "%.*s%s", (int)root, whole.name, stacked->own);
    enum status status = weights_add_experts(weights, &whole, stacked->n_dims, name.data, e);
    buffer_free(&name);
    if (status) return status;
    weights->entries[first].copy = weights->entries[i].copy;
    weights->entries[i].copy = NULL;
    return STATUS_OK;
}

enum status weights_unstack_experts(struct weights *weights, struct error *e) {
    int count = weights->count, kept = 0;
    for (int i = 0; i < count; i++)
        if (find_stacked(&weights->entries[i].tensor) && unstack_entry(weights, i, e))
            return e->status;
    if (weights->count == count) return STATUS_OK;
    for (int i = 0; i < weights->count; i++) {
        struct entry *entry = &weights->entries[i];
        if (find_stacked(&entry->tensor)) {
            free((void *)(uintptr_t)entry->tensor.name);
            continue;
        }
        weights->entries[kept] = *entry;
        kept++;
    }
    weights->count = kept;
    return weights_sort(weights, "the folder", e);
}
