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
    stored->n_dims = 2;
    stored->shape[0] = whole->shape[1];
    stored->shape[1] = whole->shape[2];
    stored->elements = whole->elements / n;
    stored->bytes = whole->bytes / n;
    stored->data = (const char *)whole->data + (size_t)i * stored->bytes;
}

enum status weights_add_experts(struct weights *weights, const struct stored_tensor *whole,
                                const char *name, struct error *e) {
    const char *number = strchr(name, '#');
    int64_t n = whole->shape[0];
    if (whole->n_dims != 3 || whole->elements == 0 || n > ENTRY_LIMIT - weights->count)
        return error_set(e, STATUS_CORRUPT,
                         "tensor \"%.*s\": expected [experts, out, in], and at most %d tensors",
                         NAME_SHOWN, whole->name, ENTRY_LIMIT);
    struct buffer one = {0};
    for (int64_t i = 0; i < n; i++) {
        buffer_clear(&one);
        buffer_printf(&one, "%.*s%lld%s", (int)(number - name), name, (long long)i, number + 1);
        add_expert(weights, whole, one.data, i);
    }
    buffer_free(&one);
    return STATUS_OK;
}

/* "layers.0.mlp.experts.down_proj" of transformers 5. */
static bool is_stacked(const struct stored_tensor *stored) {
    static const char *const endings[] = {".experts.gate_up_proj", ".experts.down_proj"};
    size_t size = strlen(stored->name);
    for (size_t i = 0;
         i < ARRAY_COUNT(endings) && stored->n_dims == 3 && !strchr(stored->name, '#'); i++) {
        size_t tail = strlen(endings[i]);
        if (size > tail && strcmp(stored->name + size - tail, endings[i]) == 0) return true;
    }
    return false;
}

/* "layers.0.mlp.experts.#.down_proj.weight", as transformers 4 names what is not stacked. The first
 * expert owns the copy, where there is one. */
static enum status unstack_entry(struct weights *weights, int i, struct error *e) {
    const struct stored_tensor whole = weights->entries[i].tensor;
    const char *last = strrchr(whole.name, '.');
    struct buffer name = {0};
    int first = weights->count;
    buffer_printf(&name, "%.*s.#%s.weight", (int)(last - whole.name), whole.name, last);
    enum status status = weights_add_experts(weights, &whole, name.data, e);
    buffer_free(&name);
    if (status) return status;
    weights->entries[first].copy = weights->entries[i].copy;
    weights->entries[i].copy = NULL;
    return STATUS_OK;
}

enum status weights_unstack_experts(struct weights *weights, struct error *e) {
    int count = weights->count, kept = 0;
    for (int i = 0; i < count; i++)
        if (is_stacked(&weights->entries[i].tensor) && unstack_entry(weights, i, e))
            return e->status;
    if (weights->count == count) return STATUS_OK;
    for (int i = 0; i < weights->count; i++) {
        struct entry *entry = &weights->entries[i];
        if (is_stacked(&entry->tensor)) {
            free((void *)(uintptr_t)entry->tensor.name);
            continue;
        }
        weights->entries[kept] = *entry;
        kept++;
    }
    weights->count = kept;
    return weights_sort(weights, "the folder", e);
}
