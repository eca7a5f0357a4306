/* retro/weights/weights_entries.c: the list of tensors: added, sorted, and experts that a file stacks taken apart. See
 * weights_private.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/weights/weights_private.h"

enum { ENTRY_LIMIT = 1 << 20 };

struct entry *weights_add_entry(struct weights *w, const char *name) {
    w->entries = xgrow(w->entries, w->count, &w->capacity, sizeof *w->entries);
    struct entry *n = &w->entries[w->count];
    w->count++;
    *n = (struct entry){.shard = w->n_maps};
    n->tensor.name = xstrdup(name);
    return n;
}

int entry_compare(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return strcmp(x->tensor.name, y->tensor.name);
}

enum status weights_sort(struct weights *w, const char *path, struct error *e) {
    if (w->count > 0) qsort(w->entries, (size_t)w->count, sizeof *w->entries, entry_compare);
    for (int i = 1; i < w->count; i++)
        if (entry_compare(&w->entries[i - 1], &w->entries[i]) == 0)
            return error_set(e, STATUS_CORRUPT, "%s: tensor \"%.*s\" is in two shards", path, NAME_SHOWN,
                             w->entries[i].tensor.name);
    return STATUS_OK;
}

static void add_expert(struct weights *w, const struct stored_tensor *whole, const char *name, int64_t i) {
    struct stored_tensor *t = &weights_add_entry(w, name)->tensor;
    size_t n = (size_t)whole->shape[0];
    const char *own = t->name;
    *t = *whole;
    t->name = own;
    t->n_dims = 2;
    t->shape[0] = whole->shape[1];
    t->shape[1] = whole->shape[2];
    t->elements = whole->elements / n;
    t->bytes = whole->bytes / n;
    t->data = (const char *)whole->data + (size_t)i * t->bytes;
}

enum status weights_add_experts(struct weights *w, const struct stored_tensor *whole, const char *name,
                                struct error *e) {
    const char *number = strchr(name, '#');
    int64_t n = whole->shape[0];
    if (whole->n_dims != 3 || whole->elements == 0 || n > ENTRY_LIMIT - w->count)
        return error_set(e, STATUS_CORRUPT, "tensor \"%.*s\": expected [experts, out, in], and at most %d tensors",
                         NAME_SHOWN, whole->name, ENTRY_LIMIT);
    struct buffer one = {0};
    for (int64_t i = 0; i < n; i++) {
        buffer_clear(&one);
        buffer_printf(&one, "%.*s%lld%s", (int)(number - name), name, (long long)i, number + 1);
        add_expert(w, whole, one.data, i);
    }
    buffer_free(&one);
    return STATUS_OK;
}

/* "layers.0.mlp.experts.down_proj" of transformers 5. */
static bool is_stacked(const struct stored_tensor *t) {
    static const char *const endings[] = {".experts.gate_up_proj", ".experts.down_proj"};
    size_t size = strlen(t->name);
    for (size_t i = 0; i < ARRAY_COUNT(endings) && t->n_dims == 3 && !strchr(t->name, '#'); i++) {
        size_t tail = strlen(endings[i]);
        if (size > tail && strcmp(t->name + size - tail, endings[i]) == 0) return true;
    }
    return false;
}

/* "layers.0.mlp.experts.#.down_proj.weight", as transformers 4 names what is not stacked. The first expert owns the
 * copy, where there is one. */
static enum status unstack_entry(struct weights *w, int i, struct error *e) {
    const struct stored_tensor whole = w->entries[i].tensor;
    const char *last = strrchr(whole.name, '.');
    struct buffer name = {0};
    int first = w->count;
    buffer_printf(&name, "%.*s.#%s.weight", (int)(last - whole.name), whole.name, last);
    enum status status = weights_add_experts(w, &whole, name.data, e);
    buffer_free(&name);
    if (status) return status;
    w->entries[first].copy = w->entries[i].copy;
    w->entries[i].copy = NULL;
    return STATUS_OK;
}

enum status weights_unstack_experts(struct weights *w, struct error *e) {
    int count = w->count, kept = 0;
    for (int i = 0; i < count; i++)
        if (is_stacked(&w->entries[i].tensor) && unstack_entry(w, i, e)) return e->status;
    if (w->count == count) return STATUS_OK;
    for (int i = 0; i < w->count; i++) {
        struct entry *n = &w->entries[i];
        if (is_stacked(&n->tensor)) {
            free((void *)(uintptr_t)n->tensor.name);
            continue;
        }
        w->entries[kept] = *n;
        kept++;
    }
    w->count = kept;
    return weights_sort(w, "the folder", e);
}
