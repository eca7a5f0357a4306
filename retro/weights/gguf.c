/* retro/weights/gguf.c: the GGUF reader. See gguf.h. */
#include "retro/weights/gguf.h"

#include "config/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_SHOWN = 80, SHARD_LIMIT = 1000, COUNT_LIMIT = 1 << 20, KEY_BYTES = 4 + 8 + 1, TENSOR_BYTES = 8 + 4 + 8 + 4 };

struct gguf {
    char *name;
    struct gguf_value *values; /* in order of key; of the first file */
    int n_values;
    struct gguf_tensor *tensors; /* in order of name once all are read */
    int n_tensors;
    struct file_map *maps;
    int n_maps;
};

/* One file being read. */
struct cursor {
    struct gguf *g;
    const char *path; /* for messages */
    const uint8_t *start, *at, *end;
    struct error *e;
};

static const size_t type_sizes[GGUF_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};

static uint64_t read_bytes(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = n; i > 0; i--) v = v << 8 | p[i - 1];
    return v;
}

static size_t left_of(const struct cursor *c) { return (size_t)(c->end - c->at); }

static enum status fail_short(const struct cursor *c, const char *what) {
    return error_set(c->e, STATUS_CORRUPT, "%s: ends within %s, at byte %zu: damaged or cut off", c->path, what,
                     (size_t)(c->at - c->start));
}

static enum status take_number(struct cursor *c, size_t size, const char *what, uint64_t *out) {
    *out = 0;
    if (left_of(c) < size) return fail_short(c, what);
    *out = read_bytes(c->at, size);
    c->at += size;
    return STATUS_OK;
}

static enum status take_text(struct cursor *c, const char *what, struct text_span *out) {
    uint64_t size;
    if (take_number(c, 8, what, &size)) return c->e->status;
    if (size > left_of(c))
        return error_set(c->e, STATUS_CORRUPT, "%s: %s at byte %zu is a string of %llu bytes, the file has %zu more",
                         c->path, what, (size_t)(c->at - c->start) - 8, (unsigned long long)size, left_of(c));
    *out = (struct text_span){(const char *)c->at, (size_t)size};
    c->at += size;
    return STATUS_OK;
}

static enum status fail_value(const struct cursor *c, const struct gguf_value *v, const char *what) {
    return error_set(c->e, STATUS_CORRUPT, "%s: key \"%.*s\": %s", c->path,
                     (int)(v->key.size < KEY_SHOWN ? v->key.size : KEY_SHOWN), v->key.text, what);
}

/* Passes over n items of a type. */
static enum status skip_items(struct cursor *c, const struct gguf_value *v, enum gguf_type type, uint64_t n) {
    size_t bytes;
    struct text_span text;
    for (uint64_t i = 0; type == GGUF_TEXT && i < n; i++)
        if (take_text(c, "a text of the metadata", &text)) return c->e->status;
    if (type == GGUF_TEXT) return STATUS_OK;
    if (mul_overflows((size_t)n, type_sizes[type], &bytes) || bytes > left_of(c))
        return fail_value(c, v, "is longer than the file");
    for (size_t i = 0; type == GGUF_BOOL && i < bytes; i++)
        if (c->at[i] > 1) return fail_value(c, v, "a truth value is neither 0 nor 1");
    c->at += bytes;
    return STATUS_OK;
}

static enum status take_value(struct cursor *c, struct gguf_value *v) {
    uint64_t type, item, count = 1;
    if (take_text(c, "a key", &v->key) || take_number(c, 4, "a key's type", &type)) return c->e->status;
    if (v->key.size == 0 || memchr(v->key.text, '\0', v->key.size)) return fail_value(c, v, "is no name");
    if (type >= GGUF_TYPES) return fail_value(c, v, "has an unknown type");
    item = type;
    if (type == GGUF_LIST) {
        if (take_number(c, 4, "a list's type", &item) || take_number(c, 8, "a list's length", &count))
            return c->e->status;
        if (item >= GGUF_TYPES || item == GGUF_LIST)
            return fail_value(c, v, "is a list of an unknown type or of lists");
    }
    v->type = (enum gguf_type)type;
    v->item = (enum gguf_type)item;
    v->count = count;
    v->data = c->at;
    return skip_items(c, v, v->item, count);
}

static int compare_keys(const void *a, const void *b) {
    return span_compare(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

/* The keys of one file, sorted. */
static enum status take_values(struct cursor *c, uint64_t n, struct gguf_value **out) {
    struct gguf_value *values = xcalloc((size_t)n + 1, sizeof *values);
    *out = values;
    for (uint64_t i = 0; i < n; i++)
        if (take_value(c, &values[i])) return c->e->status;
    qsort(values, (size_t)n, sizeof *values, compare_keys);
    for (uint64_t i = 1; i < n; i++)
        if (compare_keys(&values[i - 1], &values[i]) == 0) return fail_value(c, &values[i], "is there twice");
    return STATUS_OK;
}

static const struct gguf_value *find_value(const struct gguf_value *values, size_t n, const char *key) {
    struct gguf_value wanted = {.key = {key, strlen(key)}};
    return n == 0 ? NULL : bsearch(&wanted, values, n, sizeof *values, compare_keys);
}

static enum status fail_tensor(const struct cursor *c, const struct gguf_tensor *t, const char *what) {
    return error_set(c->e, STATUS_CORRUPT, "%s: tensor \"%s\": %s", c->path, t->name, what);
}

static enum status take_shape(struct cursor *c, struct gguf_tensor *t) {
    uint64_t n_dims, dim;
    if (take_number(c, 4, "a tensor's dimensions", &n_dims)) return c->e->status;
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return error_set(c->e, STATUS_CORRUPT, "%s: tensor \"%s\" has %llu dimensions, allowed is 1 .. %d", c->path,
                         t->name, (unsigned long long)n_dims, GGUF_MAX_DIMS);
    t->n_dims = (int)n_dims;
    t->elements = 1;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        if (take_number(c, 8, "a tensor's shape", &dim)) return c->e->status;
        if (dim > INT32_MAX) return fail_tensor(c, t, "a dimension is larger than 2147483647");
        t->shape[i] = (int64_t)dim;
        if (mul_overflows(t->elements, (size_t)dim, &t->elements))
            return fail_tensor(c, t, "the product of its dimensions overflows");
    }
    return STATUS_OK;
}

static enum status take_form(struct cursor *c, struct gguf_tensor *t) {
    uint64_t type;
    if (take_number(c, 4, "a tensor's type", &type)) return c->e->status;
    t->form = block_form_find((uint32_t)type);
    if (t->form == NULL) {
        struct buffer known = {0};
        block_form_names(&known);
        error_set(c->e, STATUS_UNSUPPORTED, "%s: tensor \"%s\" is of type %u; known are %s", c->path, t->name,
                  (unsigned)type, known.data);
        buffer_free(&known);
        return c->e->status;
    }
    int64_t cols = t->shape[t->n_dims - 1];
    if (cols % t->form->elements != 0)
        return error_set(c->e, STATUS_CORRUPT, "%s: tensor \"%s\" has rows of %lld, which are no whole blocks of %s",
                         c->path, t->name, (long long)cols, t->form->name);
    if (mul_overflows(t->elements / (size_t)t->form->elements, (size_t)t->form->bytes, &t->bytes))
        return fail_tensor(c, t, "its size in bytes overflows");
    return STATUS_OK;
}

/* Leaves the tensor's offset in *offset. */
static enum status take_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *offset) {
    struct text_span name;
    if (take_text(c, "a tensor's name", &name)) return c->e->status;
    if (name.size == 0 || name.size > GGUF_NAME || memchr(name.text, '\0', name.size))
        return error_set(c->e, STATUS_CORRUPT, "%s: a tensor's name of %zu bytes, or with a NUL; allowed is 1 .. %d",
                         c->path, name.size, GGUF_NAME);
    memcpy(t->name, name.text, name.size);
    if (take_shape(c, t) || take_form(c, t)) return c->e->status;
    return take_number(c, 8, "a tensor's offset", offset);
}

/* The data and each tensor begin at a multiple of *out bytes. Numbers are read in place, so it is at least 8, the
 * alignment of the widest number. */
static enum status read_alignment(const struct cursor *c, const struct gguf_value *values, size_t n, size_t *out) {
    const struct gguf_value *v = find_value(values, n, "general.alignment");
    int64_t alignment = 32;
    if (v && (!gguf_int(v, &alignment) || alignment < 8 || alignment > 1 << 20 || (alignment & (alignment - 1)) != 0))
        return error_set(c->e, STATUS_CORRUPT, "%s: general.alignment is not a power of two from 8 to 1048576",
                         c->path);
    *out = (size_t)alignment;
    return STATUS_OK;
}

/* Tensors lie one after another, each padded to the alignment: no overlaps, no holes. */
static enum status place_tensors(const struct cursor *c, struct gguf_tensor *tensors, const uint64_t *offsets, int n,
                                 size_t alignment) {
    size_t header = (size_t)(c->at - c->start), data = (header + alignment - 1) / alignment * alignment, at = 0;
    size_t room = data <= (size_t)(c->end - c->start) ? (size_t)(c->end - c->start) - data : 0;
    for (int i = 0; i < n; i++) {
        struct gguf_tensor *t = &tensors[i];
        if (offsets[i] != at)
            return error_set(c->e, STATUS_CORRUPT, "%s: tensor \"%s\" starts at byte %llu of the data, expected %zu",
                             c->path, t->name, (unsigned long long)offsets[i], at);
        if (at > room || t->bytes > room - at)
            return error_set(
                c->e, STATUS_CORRUPT,
                "%s: tensor \"%s\" takes %zu bytes from byte %zu on, the data holds %zu: damaged or cut off", c->path,
                t->name, t->bytes, at, room);
        t->data = c->start + data + at;
        at += (t->bytes + alignment - 1) / alignment * alignment;
    }
    return STATUS_OK;
}

static enum status take_tensors(struct cursor *c, uint64_t n, size_t alignment) {
    struct gguf *g = c->g;
    uint64_t *offsets = xcalloc((size_t)n + 1, sizeof *offsets);
    g->tensors = xrealloc(g->tensors, ((size_t)g->n_tensors + (size_t)n + 1) * sizeof *g->tensors);
    struct gguf_tensor *first = g->tensors + g->n_tensors;
    memset(first, 0, (size_t)n * sizeof *first);
    enum status status = STATUS_OK;
    for (uint64_t i = 0; i < n && status == STATUS_OK; i++) status = take_tensor(c, &first[i], &offsets[i]);
    if (status == STATUS_OK) status = place_tensors(c, first, offsets, (int)n, alignment);
    if (status == STATUS_OK) g->n_tensors += (int)n;
    free(offsets);
    return status;
}

static enum status check_start(struct cursor *c) {
    uint64_t version;
    if (left_of(c) < 8 || memcmp(c->at, "GGUF", 4) != 0)
        return error_set(c->e, STATUS_CORRUPT, "%s: does not begin with \"GGUF\": no GGUF file", c->path);
    c->at += 4;
    if (take_number(c, 4, "the version", &version)) return c->e->status;
    if (version == 2 || version == 3) return STATUS_OK;
    return error_set(c->e, STATUS_UNSUPPORTED, "%s: version %llu of GGUF%s; known are 2 and 3", c->path,
                     (unsigned long long)version, (version & 0xffff) == 0 ? ", or a file for big-endian machines" : "");
}

/* All of one file's bytes. The values of the first file become the model's. */
static enum status read_file(struct gguf *g, const uint8_t *data, size_t size, const char *path, struct error *e) {
    struct cursor c = {.g = g, .path = path, .start = data, .at = data, .end = data + size, .e = e};
    uint64_t n_tensors, n_values;
    size_t alignment = 1;
    if (check_start(&c) || take_number(&c, 8, "the number of tensors", &n_tensors) ||
        take_number(&c, 8, "the number of keys", &n_values))
        return e->status;
    if (n_tensors > left_of(&c) / TENSOR_BYTES || n_values > left_of(&c) / KEY_BYTES || n_tensors > COUNT_LIMIT ||
        n_values > COUNT_LIMIT)
        return error_set(e, STATUS_CORRUPT, "%s: %llu tensors and %llu keys in a file of %zu bytes; at most %d of each",
                         path, (unsigned long long)n_tensors, (unsigned long long)n_values, size, COUNT_LIMIT);

    struct gguf_value *values = NULL;
    enum status status = take_values(&c, n_values, &values);
    if (status == STATUS_OK) status = read_alignment(&c, values, (size_t)n_values, &alignment);
    if (status == STATUS_OK) status = take_tensors(&c, n_tensors, alignment);
    if (status == STATUS_OK && g->values == NULL) {
        g->values = values;
        g->n_values = (int)n_values;
    } else {
        free(values);
    }
    return status;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static enum status sort_tensors(struct gguf *g, struct error *e) {
    if (g->n_tensors > 0) qsort(g->tensors, (size_t)g->n_tensors, sizeof *g->tensors, compare_names);
    for (int i = 1; i < g->n_tensors; i++)
        if (compare_names(&g->tensors[i - 1], &g->tensors[i]) == 0)
            return error_set(e, STATUS_CORRUPT, "%s: tensor \"%s\" is there twice", g->name, g->tensors[i].name);
    return STATUS_OK;
}

static enum status add_file(struct gguf *g, const char *path, struct error *e) {
    struct file_map map;
    if (file_map_open(&map, path, e)) return e->status;
    g->maps = xrealloc(g->maps, ((size_t)g->n_maps + 1) * sizeof *g->maps);
    g->maps[g->n_maps] = map;
    g->n_maps++;
    return read_file(g, map.data, map.size, path, e);
}

/* The other files of a split model, whose names differ from the first's in one number. */
static enum status add_shards(struct gguf *g, const char *path, int64_t count, struct error *e) {
    char first[40];
    struct buffer shard = {0};
    enum status status = STATUS_OK;
    snprintf(first, sizeof first, "-00001-of-%05d.gguf", (int)count);
    size_t size = strlen(path), tail = strlen(first);
    if (size < tail || strcmp(path + size - tail, first) != 0)
        return error_set(e, STATUS_INVALID, "%s: the first of %d files; its name must end in %s", path, (int)count,
                         first);
    for (int i = 2; i <= count && status == STATUS_OK; i++) {
        buffer_clear(&shard);
        buffer_printf(&shard, "%.*s-%05d-of-%05d.gguf", (int)(size - tail), path, i, (int)count);
        status = add_file(g, shard.data, e);
    }
    buffer_free(&shard);
    return status;
}

static enum status add_files(struct gguf *g, const char *path, struct error *e) {
    int64_t number = 0, count = 1, tensors;
    if (add_file(g, path, e)) return e->status;
    const struct gguf_value *v = gguf_value_find(g, "split.count");
    if (v && (!gguf_int(v, &count) || count < 0 || count > SHARD_LIMIT))
        return error_set(e, STATUS_CORRUPT, "%s: split.count is not a number from 0 to %d", path, SHARD_LIMIT);
    if (count <= 1) return STATUS_OK;
    gguf_int(gguf_value_find(g, "split.no"), &number);
    if (number != 0)
        return error_set(e, STATUS_INVALID, "%s: file %lld of %lld of a model; name the first, -00001-of-%05d.gguf",
                         path, (long long)number + 1, (long long)count, (int)count);
    if (add_shards(g, path, count, e)) return e->status;
    if (gguf_int(gguf_value_find(g, "split.tensors.count"), &tensors) && tensors != g->n_tensors)
        return error_set(e, STATUS_CORRUPT, "%s: split.tensors.count is %lld, the files have %d tensors", path,
                         (long long)tensors, g->n_tensors);
    return STATUS_OK;
}

static enum status open_finish(struct gguf **out, struct gguf *g, enum status status, struct error *e) {
    if (status == STATUS_OK) status = sort_tensors(g, e);
    *out = status ? NULL : g;
    if (status) gguf_close(g);
    return status;
}

enum status gguf_open(struct gguf **out, const char *path, struct error *e) {
    struct gguf *g = xcalloc(1, sizeof *g);
    g->name = xstrdup(path);
    return open_finish(out, g, add_files(g, path, e), e);
}

enum status gguf_open_memory(struct gguf **out, const void *data, size_t size, const char *name, struct error *e) {
    struct gguf *g = xcalloc(1, sizeof *g);
    g->name = xstrdup(name);
    return open_finish(out, g, read_file(g, data, size, name, e), e);
}

void gguf_close(struct gguf *g) {
    if (g == NULL) return;
    for (int i = 0; i < g->n_maps; i++) file_map_close(&g->maps[i]);
    free(g->maps);
    free(g->values);
    free(g->tensors);
    free(g->name);
    free(g);
}

const char *gguf_name(const struct gguf *g) { return g->name; }

int gguf_count(const struct gguf *g) { return g->n_tensors; }

const struct gguf_tensor *gguf_at(const struct gguf *g, int i) {
    CHECK(i >= 0 && i < g->n_tensors);
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name) {
    struct gguf_tensor wanted;
    if (g->n_tensors == 0 || strlen(name) > GGUF_NAME) return NULL;
    strcpy(wanted.name, name);
    return bsearch(&wanted, g->tensors, (size_t)g->n_tensors, sizeof *g->tensors, compare_names);
}

int gguf_value_count(const struct gguf *g) { return g->n_values; }

const struct gguf_value *gguf_value_at(const struct gguf *g, int i) {
    CHECK(i >= 0 && i < g->n_values);
    return &g->values[i];
}

const struct gguf_value *gguf_value_find(const struct gguf *g, const char *key) {
    return find_value(g->values, (size_t)g->n_values, key);
}

static bool is_signed(enum gguf_type t) { return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64; }

bool gguf_int(const struct gguf_value *v, int64_t *out) {
    if (v == NULL || v->type >= GGUF_TYPES || type_sizes[v->type] == 0 || v->type == GGUF_F32 || v->type == GGUF_F64)
        return false;
    size_t size = type_sizes[v->type];
    uint64_t bits = read_bytes(v->data, size);
    bool negative = is_signed(v->type) && bits >> (8 * size - 1) != 0;
    if (!is_signed(v->type) && bits > INT64_MAX) return false;
    if (negative && size < 8) bits |= UINT64_MAX << 8 * size;
    *out = (int64_t)bits;
    return true;
}

bool gguf_number(const struct gguf_value *v, double *out) {
    int64_t whole;
    if (v == NULL) return false;
    if (gguf_int(v, &whole)) {
        *out = (double)whole;
        return true;
    }
    float single;
    if (v->type == GGUF_F32) {
        memcpy(&single, v->data, sizeof single);
        *out = (double)single;
    }
    if (v->type == GGUF_F64) memcpy(out, v->data, sizeof *out);
    return v->type == GGUF_F32 || v->type == GGUF_F64;
}

bool gguf_text(const struct gguf_value *v, struct text_span *out) {
    if (v == NULL || v->type != GGUF_TEXT) return false;
    *out = (struct text_span){(const char *)v->data + 8, (size_t)read_bytes(v->data, 8)};
    return true;
}

struct gguf_items gguf_items_of(const struct gguf_value *v) {
    if (v == NULL || v->type != GGUF_LIST) return (struct gguf_items){0};
    return (struct gguf_items){.at = v->data, .left = v->count, .item = v->item};
}

bool gguf_next(struct gguf_items *it, struct gguf_value *item) {
    if (it->left == 0) return false;
    *item = (struct gguf_value){.type = it->item, .item = it->item, .count = 1, .data = it->at};
    it->at += it->item == GGUF_TEXT ? 8 + (size_t)read_bytes(it->at, 8) : type_sizes[it->item];
    it->left--;
    return true;
}
