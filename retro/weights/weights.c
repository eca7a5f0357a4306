/* retro/weights/weights.c: the safetensors reader. See weights.h.
 *
 * A file is: u64 little-endian N, N bytes of JSON, then the data. The JSON maps a tensor's name to its dtype, shape and
 * [begin, end) in the data. As the reference library does, we ask that the tensors cover the data exactly, without
 * holes or overlaps. It does not promise alignment: a tensor that does not lie on a multiple of its element
 * size is copied to memory of our own, so that every `data` can be read through a pointer of its type. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/hash.h"
#include "config/json/json_value.h"
#include "retro/weights/gguf_folder.h"
#include "retro/weights/weights_private.h"

/* The reference library allows 100 MB of header. The parser may need 80 bytes of heap per byte of hostile JSON, so we
 * stop at 8 MiB: some 60,000 tensors in one file. The same holds for the index of a folder with shards. */
enum { JSON_LIMIT = 8 << 20, SHARD_LIMIT = 4096 };

/* One file being read. */
struct reader {
    struct weights *w;
    const char *path;    /* for messages */
    const uint8_t *data; /* behind the header */
    size_t size;
    struct error *e;
};

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [STORED_F32] = {"F32", 4}, [STORED_F16] = {"F16", 2},   [STORED_BF16] = {"BF16", 2},     [STORED_F64] = {"F64", 8},
    [STORED_I64] = {"I64", 8}, [STORED_I32] = {"I32", 4},   [STORED_I16] = {"I16", 2},       [STORED_I8] = {"I8", 1},
    [STORED_U8] = {"U8", 1},   [STORED_BOOL] = {"BOOL", 1}, [STORED_BLOCKS] = {"blocks", 1},
};

const char *stored_dtype_name(enum stored_dtype t) {
    return (size_t)t < ARRAY_COUNT(dtypes) ? dtypes[t].name : "unknown";
}

const char *stored_shape_text(const struct stored_tensor *t, char *text, size_t size) {
    if (size == 0) return text;
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < t->n_dims && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    if (used < size) snprintf(text + used, size - used, "]");
    return text;
}

static enum status tensor_fail(const struct reader *r, const char *tensor, const char *what) {
    return error_set(r->e, STATUS_CORRUPT, "%s: tensor \"%.*s\": %s", r->path, NAME_SHOWN, tensor, what);
}

static enum status read_dtype(const struct reader *r, const struct json *value, struct stored_tensor *t) {
    const char *text = json_text(value).text;
    if (text == NULL) return tensor_fail(r, t->name, "\"dtype\" is not a string");
    for (size_t i = 0; i < ARRAY_COUNT(dtypes); i++) {
        if (i == STORED_BLOCKS || strcmp(dtypes[i].name, text) != 0) continue;
        t->dtype = (enum stored_dtype)i;
        return STATUS_OK;
    }
    return error_set(
        r->e, STATUS_UNSUPPORTED,
        "%s: tensor \"%.*s\" has dtype \"%.20s\"; known are F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL", r->path,
        NAME_SHOWN, t->name, text);
}

static enum status read_shape(const struct reader *r, const struct json *value, struct stored_tensor *t) {
    if (!json_is_list(value)) return tensor_fail(r, t->name, "\"shape\" is not a list");
    if (json_count(value) > STORED_MAX_DIMS)
        return error_set(r->e, STATUS_UNSUPPORTED, "%s: tensor \"%.*s\" has %zu dimensions, at most %d are supported",
                         r->path, NAME_SHOWN, t->name, json_count(value), STORED_MAX_DIMS);
    t->n_dims = (int)json_count(value);
    t->elements = 1;
    for (int i = 0; i < t->n_dims; i++) {
        const struct json *dim = json_item(value, (size_t)i);
        t->shape[i] = json_int(dim);
        if (!json_is_int(dim) || t->shape[i] < 0) return tensor_fail(r, t->name, "a dimension is not a whole number");
        if (mul_overflows(t->elements, (size_t)t->shape[i], &t->elements))
            return tensor_fail(r, t->name, "the product of its dimensions overflows");
    }
    if (mul_overflows(t->elements, dtypes[t->dtype].size, &t->bytes))
        return tensor_fail(r, t->name, "its size in bytes overflows");
    return STATUS_OK;
}

static enum status read_offsets(const struct reader *r, const struct json *value, struct entry *n) {
    const char *name = n->tensor.name;
    const struct json *begin = json_item(value, 0), *end = json_item(value, 1);
    if (json_count(value) != 2 || !json_is_int(begin) || !json_is_int(end))
        return tensor_fail(r, name, "\"data_offsets\" is not a list of two integers");
    int64_t from = json_int(begin), to = json_int(end);
    if (from < 0 || from > to || (uint64_t)to > r->size)
        return error_set(r->e, STATUS_CORRUPT, "%s: tensor \"%.*s\": bytes %lld to %lld, the file holds 0 to %zu",
                         r->path, NAME_SHOWN, name, (long long)from, (long long)to, r->size);
    n->begin = (size_t)from;
    n->end = (size_t)to;
    if (n->end - n->begin == n->tensor.bytes) return STATUS_OK;
    char shape[200];
    return error_set(r->e, STATUS_CORRUPT, "%s: tensor \"%.*s\": %s of %s takes %zu bytes, \"data_offsets\" give %zu",
                     r->path, NAME_SHOWN, name, stored_dtype_name(n->tensor.dtype),
                     stored_shape_text(&n->tensor, shape, sizeof shape), n->tensor.bytes, n->end - n->begin);
}

static enum status read_tensor(struct reader *r, const char *name, const struct json *value) {
    struct entry *n = weights_add_entry(r->w, name);
    struct stored_tensor *t = &n->tensor;
    if (json_kind(value) != JSON_KIND_OBJECT) return tensor_fail(r, name, "is not described by an object");
    enum status status = read_dtype(r, json_member(value, "dtype"), t);
    if (status == STATUS_OK) status = read_shape(r, json_member(value, "shape"), t);
    if (status == STATUS_OK) status = read_offsets(r, json_member(value, "data_offsets"), n);
    if (status) return status;
    t->data = r->data + n->begin;
    if (t->bytes == 0 || (uintptr_t)t->data % dtypes[t->dtype].size == 0) return STATUS_OK;
    n->copy = malloc(t->bytes);
    if (n->copy == NULL) return error_errno(r->e, "%s: %zu bytes for a misaligned tensor", r->path, t->bytes);
    memcpy(n->copy, t->data, t->bytes);
    t->data = n->copy;
    return STATUS_OK;
}

static enum status check_metadata(const struct reader *r, const struct json *object) {
    if (json_kind(object) != JSON_KIND_OBJECT)
        return error_set(r->e, STATUS_CORRUPT, "%s: __metadata__ is not an object", r->path);
    for (struct json_entry it = {0}; json_next(object, &it);) {
        if (!json_is_text(it.value))
            return error_set(r->e, STATUS_CORRUPT, "%s: __metadata__ \"%.*s\" is not a string", r->path, NAME_SHOWN,
                             it.name.text);
    }
    return STATUS_OK;
}

static int compare_places(const void *a, const void *b) {
    const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The tensors from `first` on cover the data exactly. */
static enum status check_cover(const struct reader *r, int first) {
    int count = r->w->count - first;
    struct entry **sorted = xmalloc((size_t)max_int(count, 1) * sizeof(struct entry *));
    for (int i = 0; i < count; i++) sorted[i] = &r->w->entries[first + i];
    qsort(sorted, (size_t)count, sizeof(struct entry *), compare_places);
    size_t at = 0;
    enum status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        if (sorted[i]->begin != at)
            status = error_set(r->e, STATUS_CORRUPT, "%s: tensor \"%.*s\" starts at byte %zu, %s the one before at %zu",
                               r->path, NAME_SHOWN, sorted[i]->tensor.name, sorted[i]->begin,
                               sorted[i]->begin < at ? "overlapping" : "with a hole behind", at);
        at = sorted[i]->end;
    }
    if (status == STATUS_OK && at != r->size)
        status =
            error_set(r->e, STATUS_CORRUPT, "%s: the tensors take %zu bytes, the file holds %zu: damaged or cut off",
                      r->path, at, r->size);
    free(sorted);
    return status;
}

static enum status read_header(struct reader *r, const char *json, size_t size) {
    struct json *root = NULL;
    enum status status = json_parse(&root, (struct text_span){json, size}, r->path, r->e);
    if (status) return status;
    int first = r->w->count;
    if (json_kind(root) != JSON_KIND_OBJECT)
        status = error_set(r->e, STATUS_CORRUPT, "%s: the header is not an object", r->path);
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(root, &it);) {
        bool metadata = strcmp(it.name.text, "__metadata__") == 0;
        status = metadata ? check_metadata(r, it.value) : read_tensor(r, it.name.text, it.value);
    }
    json_close(root);
    return status ? status : check_cover(r, first);
}

/* All tensors of one file's bytes. */
static enum status read_file(struct weights *w, const uint8_t *data, size_t size, const char *path, struct error *e) {
    uint64_t header = 0;
    if (size < 8) return error_set(e, STATUS_CORRUPT, "%s: %zu bytes are too few for a safetensors file", path, size);
    for (int i = 7; i >= 0; i--) header = header << 8 | data[i];
    if (header > size - 8)
        return error_set(e, STATUS_CORRUPT, "%s: a header of %llu bytes in a file of %zu: damaged or no safetensors",
                         path, (unsigned long long)header, size);
    if (header > JSON_LIMIT)
        return error_set(e, STATUS_TOO_LARGE, "%s: a header of %llu bytes, the limit is %d: split the file into shards",
                         path, (unsigned long long)header, JSON_LIMIT);
    if (header == 0 || data[8] != '{')
        return error_set(e, STATUS_CORRUPT, "%s: the header does not start with \"{\": no safetensors file", path);
    struct reader r = {.w = w, .path = path, .e = e};
    r.data = data + 8 + header;
    r.size = size - 8 - (size_t)header;
    return read_header(&r, (const char *)data + 8, (size_t)header);
}

static enum status add_file(struct weights *w, const char *path, struct error *e) {
    struct file_map map;
    enum status status = file_map_open(&map, path, e);
    if (status) return status;
    status = read_file(w, map.data, map.size, path, e);
    w->maps = xrealloc(w->maps, ((size_t)w->n_maps + 1) * sizeof *w->maps);
    w->maps[w->n_maps] = map;
    w->n_maps++;
    return status;
}

static const struct entry *find_entry(const struct weights *w, const char *name) {
    struct entry key = {.tensor.name = name};
    if (w->count == 0) return NULL;
    return bsearch(&key, w->entries, (size_t)w->count, sizeof *w->entries, entry_compare);
}

/* A file named by the index must lie in the folder itself. */
static bool name_is_plain(const struct json *value) {
    const char *text = json_word(value);
    return text && text[0] && !strchr(text, '/') && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

/* The shards an index names, in the order of their first tensor. */
struct shard_list {
    const char *names[SHARD_LIMIT]; /* borrowed from the JSON */
    int count;
};

static int shard_find(const struct shard_list *list, const char *name) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->names[i], name) == 0) return i;
    return -1;
}

static enum status list_shards(const struct json *map, const char *path, struct shard_list *list, struct error *e) {
    if (json_kind(map) != JSON_KIND_OBJECT)
        return error_set(e, STATUS_CORRUPT, "%s: \"weight_map\" is not an object", path);
    for (struct json_entry it = {0}; json_next(map, &it);) {
        const char *file = json_word(it.value);
        if (!name_is_plain(it.value))
            return error_set(e, STATUS_CORRUPT, "%s: the file of \"%.*s\" is not a plain name in the same folder", path,
                             NAME_SHOWN, it.name.text);
        if (shard_find(list, file) >= 0) continue;
        if (list->count == SHARD_LIMIT)
            return error_set(e, STATUS_TOO_LARGE, "%s: more than %d shards", path, SHARD_LIMIT);
        list->names[list->count] = file;
        list->count++;
    }
    return STATUS_OK;
}

/* Every tensor is where the index says it is. */
static enum status check_index(const struct weights *w, const struct json *map, const char *path,
                               const struct shard_list *list, struct error *e) {
    for (struct json_entry it = {0}; json_next(map, &it);) {
        const struct entry *n = find_entry(w, it.name.text);
        const char *file = json_word(it.value);
        if (n == NULL || n->shard != shard_find(list, file))
            return error_set(e, STATUS_CORRUPT, "%s: tensor \"%.*s\" is not in %.100s", path, NAME_SHOWN, it.name.text,
                             file);
    }
    return STATUS_OK;
}

static bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static enum status read_shards(struct weights *w, const struct json *map, const char *folder, const char *index,
                               struct error *e) {
    struct shard_list *list = xcalloc(1, sizeof *list);
    enum status status = list_shards(map, index, list, e);
    for (int i = 0; i < list->count && status == STATUS_OK; i++) {
        struct buffer path = {0};
        buffer_printf(&path, "%s/%s", folder, list->names[i]);
        if (file_exists(path.data))
            status = add_file(w, path.data, e);
        else
            status = error_set(e, STATUS_IO, "%s: no such file, and %s names it", path.data, index);
        buffer_free(&path);
    }
    if (status == STATUS_OK) status = weights_sort(w, index, e);
    if (status == STATUS_OK) status = check_index(w, map, index, list, e);
    free(list);
    return status;
}

static enum status read_index(struct weights *w, const char *folder, const char *path, struct error *e) {
    struct buffer text = {0};
    struct json *root = NULL;
    enum status status = file_read(path, JSON_LIMIT, &text, e);
    if (status == STATUS_OK) status = json_parse(&root, (struct text_span){text.data, text.size}, path, e);
    if (status == STATUS_OK) status = read_shards(w, json_member(root, "weight_map"), folder, path, e);
    json_close(root);
    buffer_free(&text);
    return status;
}

static enum stored_dtype stored_dtype_of(const struct block_form *f) {
    if (!block_form_plain(f)) return STORED_BLOCKS;
    return f->dtype == DTYPE_F32 ? STORED_F32 : f->dtype == DTYPE_F16 ? STORED_F16 : STORED_BF16;
}

/* How all experts of a tensor lie in the file. */
static void describe_gguf(struct stored_tensor *t, const struct gguf_tensor *from, const struct gguf_view *view) {
    t->dtype = stored_dtype_of(from->form);
    t->form = t->dtype == STORED_BLOCKS ? from->form : NULL;
    t->n_dims = from->n_dims;
    for (int i = 0; i < from->n_dims; i++) t->shape[i] = from->shape[i];
    t->elements = from->elements;
    t->bytes = from->bytes;
    t->data = from->data;
    if (view->row) {
        t->n_dims = 2;
        t->shape[1] = t->shape[0];
        t->shape[0] = 1;
    }
    t->turned = view->turned;
    t->paired = view->paired;
    t->apart = view->apart;
}

static enum status add_gguf_tensor(struct weights *w, const struct gguf_tensor *from, struct error *e) {
    struct gguf_view view;
    struct stored_tensor whole = {.name = from->name};
    if (gguf_view_tensor(&view, w->gguf, from, e)) return e->status;
    if (view.name[0] == '\0') return STATUS_OK;
    describe_gguf(&whole, from, &view);
    if (view.stacked) return weights_add_experts(w, &whole, view.name, e);
    struct stored_tensor *t = &weights_add_entry(w, view.name)->tensor;
    whole.name = t->name;
    *t = whole;
    return STATUS_OK;
}

static enum status read_gguf(struct weights *w, const char *path, struct error *e) {
    if (gguf_open(&w->gguf, path, e)) return e->status;
    for (int i = 0; i < gguf_count(w->gguf); i++)
        if (add_gguf_tensor(w, gguf_at(w->gguf, i), e)) return e->status;
    return weights_sort(w, path, e);
}

static bool folder_has(const char *folder, const char *name) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", folder, name);
    bool there = file_exists(path.data);
    buffer_free(&path);
    return there;
}

/* Pickled files run code when they are read, so they are not. */
static enum status folder_fail(const char *folder, struct error *e) {
    bool pickled = folder_has(folder, "pytorch_model.bin") || folder_has(folder, "pytorch_model.bin.index.json");
    return error_set(e, STATUS_NOT_FOUND, "%s: holds neither model.safetensors nor model.safetensors.index.json%s",
                     folder,
                     pickled ? "; pytorch_model.bin is not read: save the model again with transformers "
                               "(from_pretrained, then save_pretrained), which writes safetensors"
                             : "");
}

static enum status read_folder(struct weights *w, const char *folder, struct error *e) {
    struct buffer single = {0}, index = {0};
    buffer_printf(&single, "%s/model.safetensors", folder);
    buffer_printf(&index, "%s/model.safetensors.index.json", folder);
    enum status status;
    if (file_exists(single.data)) {
        status = add_file(w, single.data, e);
        if (status == STATUS_OK) status = weights_sort(w, single.data, e);
    } else if (file_exists(index.data)) {
        status = read_index(w, folder, index.data, e);
    } else {
        status = folder_fail(folder, e);
    }
    buffer_free(&single);
    buffer_free(&index);
    return status;
}

static enum status open_finish(struct weights **out, struct weights *w, enum status status, struct error *e) {
    if (status == STATUS_OK && w->gguf == NULL) status = weights_unstack_experts(w, e);
    if (status)
        weights_close(w);
    else
        *out = w;
    return status;
}

enum status weights_open(struct weights **out, const char *path, struct error *e) {
    struct stat st;
    *out = NULL;
    if (stat(path, &st) != 0)
        return errno == ENOENT ? error_set(e, STATUS_NOT_FOUND, "%s: no such file or folder", path)
                               : error_errno(e, "%s", path);
    struct weights *w = xcalloc(1, sizeof *w);
    struct buffer gguf = {0};
    if (gguf_find_file(path, &gguf)) {
        enum status read = open_finish(out, w, read_gguf(w, gguf.data, e), e);
        buffer_free(&gguf);
        return read;
    }
    if (S_ISDIR(st.st_mode)) return open_finish(out, w, read_folder(w, path, e), e);
    enum status status = add_file(w, path, e);
    return open_finish(out, w, status ? status : weights_sort(w, path, e), e);
}

enum status weights_open_memory(struct weights **out, const void *data, size_t size, const char *name,
                                struct error *e) {
    *out = NULL;
    struct weights *w = xcalloc(1, sizeof *w);
    enum status status = read_file(w, data, size, name, e);
    return open_finish(out, w, status ? status : weights_sort(w, name, e), e);
}

void weights_close(struct weights *w) {
    if (w == NULL) return;
    for (int i = 0; i < w->count; i++) {
        free((void *)(uintptr_t)w->entries[i].tensor.name);
        free(w->entries[i].copy);
    }
    for (int i = 0; i < w->n_maps; i++) file_map_close(&w->maps[i]);
    gguf_close(w->gguf);
    free(w->entries);
    free(w->maps);
    free(w);
}

int weights_count(const struct weights *w) { return w->count; }

const struct stored_tensor *weights_at(const struct weights *w, int i) {
    CHECK(i >= 0 && i < w->count);
    return &w->entries[i].tensor;
}

const struct stored_tensor *weights_find(const struct weights *w, const char *name) {
    const struct entry *n = find_entry(w, name);
    return n ? &n->tensor : NULL;
}

int weights_index(const struct weights *w, const struct stored_tensor *t) {
    ptrdiff_t i = (const struct entry *)(const void *)t - w->entries; /* the tensor is its entry's first member */
    CHECK(i >= 0 && i < w->count);
    return (int)i;
}

enum status weights_hash(const char *path, uint64_t *hash, struct error *e) {
    struct weights *w;
    if (weights_open(&w, path, e)) return e->status;
    for (int i = 0; i < weights_count(w); i++) {
        const struct stored_tensor *t = weights_at(w, i);
        *hash = hash_bytes(t->name, strlen(t->name), *hash);
        *hash = hash_bytes(t->data, t->bytes, *hash);
    }
    weights_close(w);
    return STATUS_OK;
}
