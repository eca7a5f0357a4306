/* retro/weights/gguf.c: the GGUF reader. See gguf.h. */
#include "retro/weights/gguf.h"

#include "config/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_SHOWN = 80,
    SHARD_LIMIT = 1000,
    COUNT_LIMIT = 1 << 20,
    KEY_BYTES = 4 + 8 + 1,
    TENSOR_BYTES = 8 + 4 + 8 + 4
};

struct gguf {
    char *name;
    struct gguf_value *values; /* in order of key; of the first file */
    int n_values;
    struct gguf_tensor *tensors; /* in order of name once all are read */
    int n_tensors;
    struct file_map *maps;
    int n_maps;
    struct gguf *tower; /* owned; NULL: none is joined */
    int left_towers;
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

static size_t left_of(const struct cursor *cursor) { return (size_t)(cursor->end - cursor->at); }

static enum status fail_short(const struct cursor *cursor, const char *what) {
    return error_set(cursor->e, STATUS_CORRUPT,
                     "%s: ends within %s, at byte %zu: damaged or cut off", cursor->path, what,
                     (size_t)(cursor->at - cursor->start));
}

static enum status take_number(struct cursor *cursor, size_t size, const char *what,
                               uint64_t *out) {
    *out = 0;
    if (left_of(cursor) < size) return fail_short(cursor, what);
    *out = read_bytes(cursor->at, size);
    cursor->at += size;
    return STATUS_OK;
}

static enum status take_text(struct cursor *cursor, const char *what, struct text_span *out) {
    uint64_t size;
    if (take_number(cursor, 8, what, &size)) return cursor->e->status;
    if (size > left_of(cursor))
        return error_set(cursor->e, STATUS_CORRUPT,
                         "%s: %s at byte %zu is a string of %llu bytes, the file has %zu more",
                         cursor->path, what, (size_t)(cursor->at - cursor->start) - 8,
                         (unsigned long long)size, left_of(cursor));
    *out = (struct text_span){(const char *)cursor->at, (size_t)size};
    cursor->at += size;
    return STATUS_OK;
}

static enum status fail_value(const struct cursor *cursor, const struct gguf_value *value,
                              const char *what) {
    return error_set(cursor->e, STATUS_CORRUPT, "%s: key \"%.*s\": %s", cursor->path,
                     (int)(value->key.size < KEY_SHOWN ? value->key.size : KEY_SHOWN),
                     value->key.text, what);
}

/* Passes over n items of a type. */
static enum status skip_items(struct cursor *cursor, const struct gguf_value *value,
                              enum gguf_type type, uint64_t n) {
    size_t bytes;
    struct text_span text;
    for (uint64_t i = 0; type == GGUF_TEXT && i < n; i++)
        if (take_text(cursor, "a text of the metadata", &text)) return cursor->e->status;
    if (type == GGUF_TEXT) return STATUS_OK;
    if (mul_overflows((size_t)n, type_sizes[type], &bytes) || bytes > left_of(cursor))
        return fail_value(cursor, value, "is longer than the file");
    for (size_t i = 0; type == GGUF_BOOL && i < bytes; i++)
        if (cursor->at[i] > 1) return fail_value(cursor, value, "a truth value is neither 0 nor 1");
    cursor->at += bytes;
    return STATUS_OK;
}

static enum status take_value(struct cursor *cursor, struct gguf_value *value) {
    uint64_t type, item, count = 1;
    if (take_text(cursor, "a key", &value->key) || take_number(cursor, 4, "a key's type", &type))
        return cursor->e->status;
    if (value->key.size == 0 || memchr(value->key.text, '\0', value->key.size))
        return fail_value(cursor, value, "is no name");
    if (type >= GGUF_TYPES) return fail_value(cursor, value, "has an unknown type");
    item = type;
    if (type == GGUF_LIST) {
        if (take_number(cursor, 4, "a list's type", &item) ||
            take_number(cursor, 8, "a list's length", &count))
            return cursor->e->status;
        if (item >= GGUF_TYPES || item == GGUF_LIST)
            return fail_value(cursor, value, "is a list of an unknown type or of lists");
    }
    value->type = (enum gguf_type)type;
    value->item = (enum gguf_type)item;
    value->count = count;
    value->data = cursor->at;
    return skip_items(cursor, value, value->item, count);
}

static int compare_keys(const void *a, const void *b) {
    return span_compare(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

/* The keys of one file, sorted. */
static enum status take_values(struct cursor *cursor, uint64_t n, struct gguf_value **out) {
    struct gguf_value *values = xcalloc((size_t)n + 1, sizeof *values);
    *out = values;
    for (uint64_t i = 0; i < n; i++)
        if (take_value(cursor, &values[i])) return cursor->e->status;
    qsort(values, (size_t)n, sizeof *values, compare_keys);
    for (uint64_t i = 1; i < n; i++)
        if (compare_keys(&values[i - 1], &values[i]) == 0)
            return fail_value(cursor, &values[i], "is there twice");
    return STATUS_OK;
}

static const struct gguf_value *find_value(const struct gguf_value *values, size_t n,
                                           const char *key) {
    struct gguf_value wanted = {.key = {key, strlen(key)}};
    return n == 0 ? NULL : bsearch(&wanted, values, n, sizeof *values, compare_keys);
}

static enum status fail_tensor(const struct cursor *cursor, const struct gguf_tensor *tensor,
                               const char *what) {
    return error_set(cursor->e, STATUS_CORRUPT, "%s: tensor \"%s\": %s", cursor->path, tensor->name,
                     what);
}

static enum status take_shape(struct cursor *cursor, struct gguf_tensor *tensor) {
    uint64_t n_dims, dim;
    if (take_number(cursor, 4, "a tensor's dimensions", &n_dims)) return cursor->e->status;
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return error_set(cursor->e, STATUS_CORRUPT,
                         "%s: tensor \"%s\" has %llu dimensions, allowed is 1 .. %d", cursor->path,
                         tensor->name, (unsigned long long)n_dims, GGUF_MAX_DIMS);
    tensor->n_dims = (int)n_dims;
    tensor->elements = 1;
    for (int i = tensor->n_dims - 1; i >= 0; i--) {
        if (take_number(cursor, 8, "a tensor's shape", &dim)) return cursor->e->status;
        if (dim > INT32_MAX)
            return fail_tensor(cursor, tensor, "a dimension is larger than 2147483647");
        tensor->shape[i] = (int64_t)dim;
        if (mul_overflows(tensor->elements, (size_t)dim, &tensor->elements))
            return fail_tensor(cursor, tensor, "the product of its dimensions overflows");
    }
    return STATUS_OK;
}

static enum status take_form(struct cursor *cursor, struct gguf_tensor *tensor) {
    uint64_t type;
    if (take_number(cursor, 4, "a tensor's type", &type)) return cursor->e->status;
    tensor->form = block_form_find((uint32_t)type);
    if (tensor->form == NULL) {
        struct buffer known = {0};
        block_form_names(&known);
        error_set(cursor->e, STATUS_UNSUPPORTED, "%s: tensor \"%s\" is of type %u; known are %s",
                  cursor->path, tensor->name, (unsigned)type, known.data);
        buffer_free(&known);
        return cursor->e->status;
    }
    int64_t cols = tensor->shape[tensor->n_dims - 1];
    if (cols % tensor->form->elements != 0)
        return error_set(cursor->e, STATUS_CORRUPT,
                         "%s: tensor \"%s\" has rows of %lld, which are no whole blocks of %s",
                         cursor->path, tensor->name, (long long)cols, tensor->form->name);
    if (mul_overflows(tensor->elements / (size_t)tensor->form->elements,
                      (size_t)tensor->form->bytes, &tensor->bytes))
        return fail_tensor(cursor, tensor, "its size in bytes overflows");
    return STATUS_OK;
}

/* Leaves the tensor's offset in *offset. */
static enum status take_tensor(struct cursor *cursor, struct gguf_tensor *tensor,
                               uint64_t *offset) {
    struct text_span name;
    if (take_text(cursor, "a tensor's name", &name)) return cursor->e->status;
    if (name.size == 0 || name.size > GGUF_NAME || memchr(name.text, '\0', name.size))
        return error_set(cursor->e, STATUS_CORRUPT,
                         "%s: a tensor's name of %zu bytes, or with a NUL; allowed is 1 .. %d",
                         cursor->path, name.size, GGUF_NAME);
    memcpy(tensor->name, name.text, name.size);
    if (take_shape(cursor, tensor) || take_form(cursor, tensor)) return cursor->e->status;
    return take_number(cursor, 8, "a tensor's offset", offset);
}

/* The data and each tensor begin at a multiple of *out bytes. Numbers are read in place, so it is
 * at least 8, the alignment of the widest number. */
static enum status read_alignment(const struct cursor *cursor, const struct gguf_value *values,
                                  size_t n, size_t *out) {
    const struct gguf_value *value = find_value(values, n, "general.alignment");
    int64_t alignment = 32;
    if (value && (!gguf_int(value, &alignment) || alignment < 8 || alignment > 1 << 20 ||
                  (alignment & (alignment - 1)) != 0))
        return error_set(cursor->e, STATUS_CORRUPT,
                         "%s: general.alignment is not a power of two from 8 to 1048576",
                         cursor->path);
    *out = (size_t)alignment;
    return STATUS_OK;
}

/* Tensors lie one after another, each padded to the alignment: no overlaps, no holes. */
static enum status place_tensors(const struct cursor *cursor, struct gguf_tensor *tensors,
                                 const uint64_t *offsets, int n, size_t alignment) {
    size_t header = (size_t)(cursor->at - cursor->start),
           data = (header + alignment - 1) / alignment * alignment, at = 0;
    size_t room = data <= (size_t)(cursor->end - cursor->start)
                      ? (size_t)(cursor->end - cursor->start) - data
                      : 0;
    for (int i = 0; i < n; i++) {
        struct gguf_tensor *tensor = &tensors[i];
        if (offsets[i] != at)
            return error_set(cursor->e, STATUS_CORRUPT,
                             "%s: tensor \"%s\" starts at byte %llu of the data, expected %zu",
                             cursor->path, tensor->name, (unsigned long long)offsets[i], at);
        if (at > room || tensor->bytes > room - at)
            return error_set(cursor->e, STATUS_CORRUPT,
                             "%s: tensor \"%s\" takes %zu bytes from byte %zu on, the data holds "
                             "%zu: damaged or cut off",
                             cursor->path, tensor->name, tensor->bytes, at, room);
        tensor->data = cursor->start + data + at;
        at += (tensor->bytes + alignment - 1) / alignment * alignment;
    }
    return STATUS_OK;
}

static enum status take_tensors(struct cursor *cursor, uint64_t n, size_t alignment) {
    struct gguf *gguf = cursor->g;
    uint64_t *offsets = xcalloc((size_t)n + 1, sizeof *offsets);
    gguf->tensors =
        xrealloc(gguf->tensors, ((size_t)gguf->n_tensors + (size_t)n + 1) * sizeof *gguf->tensors);
    struct gguf_tensor *first = gguf->tensors + gguf->n_tensors;
    memset(first, 0, (size_t)n * sizeof *first);
    enum status status = STATUS_OK;
    for (uint64_t i = 0; i < n && status == STATUS_OK; i++)
        status = take_tensor(cursor, &first[i], &offsets[i]);
    if (status == STATUS_OK) status = place_tensors(cursor, first, offsets, (int)n, alignment);
    if (status == STATUS_OK) gguf->n_tensors += (int)n;
    free(offsets);
    return status;
}

static enum status check_start(struct cursor *cursor) {
    uint64_t version;
    if (left_of(cursor) < 8 || memcmp(cursor->at, "GGUF", 4) != 0)
        return error_set(cursor->e, STATUS_CORRUPT,
                         "%s: does not begin with \"GGUF\": no GGUF file", cursor->path);
    cursor->at += 4;
    if (take_number(cursor, 4, "the version", &version)) return cursor->e->status;
    if (version == 2 || version == 3) return STATUS_OK;
    return error_set(cursor->e, STATUS_UNSUPPORTED, "%s: version %llu of GGUF%s; known are 2 and 3",
                     cursor->path, (unsigned long long)version,
                     (version & 0xffff) == 0 ? ", or a file for big-endian machines" : "");
}

/* All of one file's bytes. The values of the first file become the model's. */
static enum status read_file(struct gguf *gguf, const uint8_t *data, size_t size, const char *path,
                             struct error *e) {
    if (size == 0) return error_set(e, STATUS_CORRUPT, "%s: an empty file is no GGUF file", path);
    struct cursor cursor = {
        .g = gguf, .path = path, .start = data, .at = data, .end = data + size, .e = e};
    uint64_t n_tensors, n_values;
    size_t alignment = 1;
    if (check_start(&cursor) || take_number(&cursor, 8, "the number of tensors", &n_tensors) ||
        take_number(&cursor, 8, "the number of keys", &n_values))
        return e->status;
    if (n_tensors > left_of(&cursor) / TENSOR_BYTES || n_values > left_of(&cursor) / KEY_BYTES ||
        n_tensors > COUNT_LIMIT || n_values > COUNT_LIMIT)
        return error_set(
            e, STATUS_CORRUPT,
            "%s: %llu tensors and %llu keys in a file of %zu bytes; at most %d of each", path,
            (unsigned long long)n_tensors, (unsigned long long)n_values, size, COUNT_LIMIT);

    struct gguf_value *values = NULL;
    enum status status = take_values(&cursor, n_values, &values);
    if (status == STATUS_OK) status = read_alignment(&cursor, values, (size_t)n_values, &alignment);
    if (status == STATUS_OK) status = take_tensors(&cursor, n_tensors, alignment);
    if (status == STATUS_OK && gguf->values == NULL) {
        gguf->values = values;
        gguf->n_values = (int)n_values;
    } else {
        free(values);
    }
    return status;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static enum status sort_tensors(struct gguf *gguf, struct error *e) {
    if (gguf->n_tensors > 0)
        qsort(gguf->tensors, (size_t)gguf->n_tensors, sizeof *gguf->tensors, compare_names);
    for (int i = 1; i < gguf->n_tensors; i++)
        if (compare_names(&gguf->tensors[i - 1], &gguf->tensors[i]) == 0)
            return error_set(e, STATUS_CORRUPT, "%s: tensor \"%s\" is there twice", gguf->name,
                             gguf->tensors[i].name);
    return STATUS_OK;
}

static enum status add_file(struct gguf *gguf, const char *path, struct error *e) {
    struct file_map map;
    if (file_map_open(&map, path, e)) return e->status;
    gguf->maps = xrealloc(gguf->maps, ((size_t)gguf->n_maps + 1) * sizeof *gguf->maps);
    gguf->maps[gguf->n_maps] = map;
    gguf->n_maps++;
    return read_file(gguf, map.data, map.size, path, e);
}

/* The other files of a split model, whose names differ from the first's in one number. */
static enum status add_shards(struct gguf *gguf, const char *path, int64_t count, struct error *e) {
    char first[40];
    struct buffer shard = {0};
    enum status status = STATUS_OK;
    snprintf(first, sizeof first, "-00001-of-%05d.gguf", (int)count);
    size_t size = strlen(path), tail = strlen(first);
    if (size < tail || strcmp(path + size - tail, first) != 0)
        return error_set(e, STATUS_INVALID, "%s: the first of %d files; its name must end in %s",
                         path, (int)count, first);
    for (int i = 2; i <= count && status == STATUS_OK; i++) {
        buffer_clear(&shard);
        buffer_printf(&shard, "%.*s-%05d-of-%05d.gguf", (int)(size - tail), path, i, (int)count);
        status = add_file(gguf, shard.data, e);
    }
    buffer_free(&shard);
    return status;
}

static enum status add_files(struct gguf *gguf, const char *path, struct error *e) {
    int64_t number = 0, count = 1, tensors;
    if (add_file(gguf, path, e)) return e->status;
    const struct gguf_value *value = gguf_value_find(gguf, "split.count");
    if (value && (!gguf_int(value, &count) || count < 0 || count > SHARD_LIMIT))
        return error_set(e, STATUS_CORRUPT, "%s: split.count is not a number from 0 to %d", path,
                         SHARD_LIMIT);
    if (count <= 1) return STATUS_OK;
    gguf_int(gguf_value_find(gguf, "split.no"), &number);
    if (number != 0)
        return error_set(e, STATUS_INVALID,
                         "%s: file %lld of %lld of a model; name the first, -00001-of-%05d.gguf",
                         path, (long long)number + 1, (long long)count, (int)count);
    if (add_shards(gguf, path, count, e)) return e->status;
    if (gguf_int(gguf_value_find(gguf, "split.tensors.count"), &tensors) &&
        tensors != gguf->n_tensors)
        return error_set(e, STATUS_CORRUPT,
                         "%s: split.tensors.count is %lld, the files have %d tensors", path,
                         (long long)tensors, gguf->n_tensors);
    return STATUS_OK;
}

static enum status open_finish(struct gguf **out, struct gguf *gguf, enum status status,
                               struct error *e) {
    if (status == STATUS_OK) status = sort_tensors(gguf, e);
    *out = status ? NULL : gguf;
    if (status) gguf_close(gguf);
    return status;
}

enum status gguf_open(struct gguf **out, const char *path, struct error *e) {
    struct gguf *gguf = xcalloc(1, sizeof *gguf);
    gguf->name = xstrdup(path);
    return open_finish(out, gguf, add_files(gguf, path, e), e);
}

enum status gguf_open_memory(struct gguf **out, const void *data, size_t size, const char *name,
                             struct error *e) {
    struct gguf *gguf = xcalloc(1, sizeof *gguf);
    gguf->name = xstrdup(name);
    return open_finish(out, gguf, read_file(gguf, data, size, name, e), e);
}

void gguf_join(struct gguf *model, struct gguf *tower) {
    CHECK(model->tower == NULL);
    model->tower = tower;
}

const struct gguf *gguf_joined(const struct gguf *model) { return model->tower; }

void gguf_leave_towers(struct gguf *model, int n) { model->left_towers = n; }

int gguf_left_towers(const struct gguf *model) { return model->left_towers; }

void gguf_close(struct gguf *gguf) {
    if (gguf == NULL) return;
    gguf_close(gguf->tower);
    for (int i = 0; i < gguf->n_maps; i++) file_map_close(&gguf->maps[i]);
    free(gguf->maps);
    free(gguf->values);
    free(gguf->tensors);
    free(gguf->name);
    free(gguf);
}

const char *gguf_name(const struct gguf *gguf) { return gguf->name; }

int gguf_count(const struct gguf *gguf) { return gguf->n_tensors; }

const struct gguf_tensor *gguf_at(const struct gguf *gguf, int i) {
    CHECK(i >= 0 && i < gguf->n_tensors);
    return &gguf->tensors[i];
}

const struct gguf_tensor *gguf_find(const struct gguf *gguf, const char *name) {
    struct gguf_tensor wanted;
    if (gguf->n_tensors == 0 || strlen(name) > GGUF_NAME) return NULL;
    strcpy(wanted.name, name);
    return bsearch(&wanted, gguf->tensors, (size_t)gguf->n_tensors, sizeof *gguf->tensors,
                   compare_names);
}

int gguf_value_count(const struct gguf *gguf) { return gguf->n_values; }

const struct gguf_value *gguf_value_at(const struct gguf *gguf, int i) {
    CHECK(i >= 0 && i < gguf->n_values);
    return &gguf->values[i];
}

const struct gguf_value *gguf_value_find(const struct gguf *gguf, const char *key) {
    return find_value(gguf->values, (size_t)gguf->n_values, key);
}

static bool is_signed(enum gguf_type type) {
    return type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
}

bool gguf_int(const struct gguf_value *value, int64_t *out) {
    if (value == NULL || value->type >= GGUF_TYPES || type_sizes[value->type] == 0 ||
        value->type == GGUF_F32 || value->type == GGUF_F64)
        return false;
    size_t size = type_sizes[value->type];
    uint64_t bits = read_bytes(value->data, size);
    bool negative = is_signed(value->type) && bits >> (8 * size - 1) != 0;
    if (!is_signed(value->type) && bits > INT64_MAX) return false;
    if (negative && size < 8) bits |= UINT64_MAX << 8 * size;
    *out = (int64_t)bits;
    return true;
}

bool gguf_number(const struct gguf_value *value, double *out) {
    int64_t whole;
    if (value == NULL) return false;
    if (gguf_int(value, &whole)) {
        *out = (double)whole;
        return true;
    }
    float single;
    if (value->type == GGUF_F32) {
        memcpy(&single, value->data, sizeof single);
        *out = (double)single;
    }
    if (value->type == GGUF_F64) memcpy(out, value->data, sizeof *out);
    return value->type == GGUF_F32 || value->type == GGUF_F64;
}

bool gguf_text(const struct gguf_value *value, struct text_span *out) {
    if (value == NULL || value->type != GGUF_TEXT) return false;
    *out = (struct text_span){(const char *)value->data + 8, (size_t)read_bytes(value->data, 8)};
    return true;
}

struct gguf_items gguf_items_of(const struct gguf_value *value) {
    if (value == NULL || value->type != GGUF_LIST) return (struct gguf_items){0};
    return (struct gguf_items){.at = value->data, .left = value->count, .item = value->item};
}

bool gguf_next(struct gguf_items *it, struct gguf_value *item) {
    if (it->left == 0) return false;
    *item = (struct gguf_value){.type = it->item, .item = it->item, .count = 1, .data = it->at};
    it->at += it->item == GGUF_TEXT ? 8 + (size_t)read_bytes(it->at, 8) : type_sizes[it->item];
    it->left--;
    return true;
}
