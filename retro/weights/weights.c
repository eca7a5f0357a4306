/* retro/weights/weights.c: the safetensors reader. See weights.h.
 *
 * A file is: u64 little-endian N, N bytes of JSON, then the data. The JSON maps a tensor's name to
 * its dtype, shape and [begin, end) in the data. As the reference library does, we ask that the
 * tensors cover the data exactly, without holes or overlaps. It does not promise alignment: a
 * tensor that does not lie on a multiple of its element size is copied to memory of our own, so
 * that every `data` can be read through a pointer of its type. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "config/base/hash.h"
#include "config/json/json_value.h"
#include "retro/weights/gguf_folder.h"
#include "retro/weights/weights_private.h"

/* The reference library allows 100 MB of header. The parser may need 80 bytes of heap per byte of
 * hostile JSON, so we stop at 8 MiB: some 60,000 tensors in one file. The same holds for the index
 * of a folder with shards. */
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
    [STORED_F32] = {"F32", 4},   [STORED_F16] = {"F16", 2},         [STORED_BF16] = {"BF16", 2},
    [STORED_F64] = {"F64", 8},   [STORED_I64] = {"I64", 8},         [STORED_I32] = {"I32", 4},
    [STORED_I16] = {"I16", 2},   [STORED_I8] = {"I8", 1},           [STORED_U8] = {"U8", 1},
    [STORED_BOOL] = {"BOOL", 1}, [STORED_F8_E4M3] = {"F8_E4M3", 1}, [STORED_BLOCKS] = {"blocks", 1},
};

const char *stored_dtype_name(enum stored_dtype dtype) {
    return (size_t)dtype < ARRAY_COUNT(dtypes) ? dtypes[dtype].name : "unknown";
}

const char *stored_shape_text(const struct stored_tensor *stored, char *text, size_t size) {
    if (size == 0) return text;
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < stored->n_dims && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? ", " : "",
                                 (long long)stored->shape[i]);
    if (used < size) snprintf(text + used, size - used, "]");
    return text;
}

static enum status tensor_fail(const struct reader *reader, const char *tensor, const char *what) {
    return error_set(reader->e, STATUS_CORRUPT, "%s: tensor \"%.*s\": %s", reader->path, NAME_SHOWN,
                     tensor, what);
}

static enum status read_dtype(const struct reader *reader, const struct json *value,
                              struct stored_tensor *stored) {
    const char *text = json_text(value).text;
    if (text == NULL) return tensor_fail(reader, stored->name, "\"dtype\" is not a string");
    for (size_t i = 0; i < ARRAY_COUNT(dtypes); i++) {
        if (i == STORED_BLOCKS || strcmp(dtypes[i].name, text) != 0) continue;
        stored->dtype = (enum stored_dtype)i;
        return STATUS_OK;
    }
    return error_set(reader->e, STATUS_UNSUPPORTED,
                     "%s: tensor \"%.*s\" has dtype \"%.20s\"; known are F64, F32, F16, BF16, I64, "
                     "I32, I16, I8, U8, BOOL, F8_E4M3",
                     reader->path, NAME_SHOWN, stored->name, text);
}

static enum status read_shape(const struct reader *reader, const struct json *value,
                              struct stored_tensor *stored) {
    if (!json_is_list(value)) return tensor_fail(reader, stored->name, "\"shape\" is not a list");
    if (json_count(value) > STORED_MAX_DIMS)
        return error_set(reader->e, STATUS_UNSUPPORTED,
                         "%s: tensor \"%.*s\" has %zu dimensions, at most %d are supported",
                         reader->path, NAME_SHOWN, stored->name, json_count(value),
                         STORED_MAX_DIMS);
    stored->n_dims = (int)json_count(value);
    stored->elements = 1;
    for (int i = 0; i < stored->n_dims; i++) {
        const struct json *dim = json_item(value, (size_t)i);
        stored->shape[i] = json_int(dim);
        if (!json_is_int(dim) || stored->shape[i] < 0)
            return tensor_fail(reader, stored->name, "a dimension is not a whole number");
        if (mul_overflows(stored->elements, (size_t)stored->shape[i], &stored->elements))
            return tensor_fail(reader, stored->name, "the product of its dimensions overflows");
    }
    if (mul_overflows(stored->elements, dtypes[stored->dtype].size, &stored->bytes))
        return tensor_fail(reader, stored->name, "its size in bytes overflows");
    return STATUS_OK;
}

static enum status read_offsets(const struct reader *reader, const struct json *value,
                                struct entry *entry) {
    const char *name = entry->tensor.name;
    const struct json *begin = json_item(value, 0), *end = json_item(value, 1);
    if (json_count(value) != 2 || !json_is_int(begin) || !json_is_int(end))
        return tensor_fail(reader, name, "\"data_offsets\" is not a list of two integers");
    int64_t from = json_int(begin), to = json_int(end);
    if (from < 0 || from > to || (uint64_t)to > reader->size)
        return error_set(reader->e, STATUS_CORRUPT,
                         "%s: tensor \"%.*s\": bytes %lld to %lld, the file holds 0 to %zu",
                         reader->path, NAME_SHOWN, name, (long long)from, (long long)to,
                         reader->size);
    entry->begin = (size_t)from;
    entry->end = (size_t)to;
    if (entry->end - entry->begin == entry->tensor.bytes) return STATUS_OK;
    char shape[200];
    return error_set(reader->e, STATUS_CORRUPT,
                     "%s: tensor \"%.*s\": %s of %s takes %zu bytes, \"data_offsets\" give %zu",
                     reader->path, NAME_SHOWN, name, stored_dtype_name(entry->tensor.dtype),
                     stored_shape_text(&entry->tensor, shape, sizeof shape), entry->tensor.bytes,
                     entry->end - entry->begin);
}

static enum status read_tensor(struct reader *reader, const char *name, const struct json *value) {
    struct entry *entry = weights_add_entry(reader->w, name);
    struct stored_tensor *stored = &entry->tensor;
    if (json_kind(value) != JSON_KIND_OBJECT)
        return tensor_fail(reader, name, "is not described by an object");
    enum status status = read_dtype(reader, json_member(value, "dtype"), stored);
    if (status == STATUS_OK) status = read_shape(reader, json_member(value, "shape"), stored);
    if (status == STATUS_OK)
        status = read_offsets(reader, json_member(value, "data_offsets"), entry);
    if (status) return status;
    stored->data = reader->data + entry->begin;
    if (stored->bytes == 0 || (uintptr_t)stored->data % dtypes[stored->dtype].size == 0)
        return STATUS_OK;
    entry->copy = malloc(stored->bytes);
    if (entry->copy == NULL)
        return error_errno(reader->e, "%s: %zu bytes for a misaligned tensor", reader->path,
                           stored->bytes);
    memcpy(entry->copy, stored->data, stored->bytes);
    stored->data = entry->copy;
    return STATUS_OK;
}

static enum status check_metadata(const struct reader *reader, const struct json *object) {
    if (json_kind(object) != JSON_KIND_OBJECT)
        return error_set(reader->e, STATUS_CORRUPT, "%s: __metadata__ is not an object",
                         reader->path);
    for (struct json_entry it = {0}; json_next(object, &it);) {
        if (!json_is_text(it.value))
            return error_set(reader->e, STATUS_CORRUPT, "%s: __metadata__ \"%.*s\" is not a string",
                             reader->path, NAME_SHOWN, it.name.text);
    }
    return STATUS_OK;
}

static int compare_places(const void *a, const void *b) {
    const struct entry *entry = *(struct entry *const *)a, *the_entry = *(struct entry *const *)b;
    if (entry->begin != the_entry->begin) return entry->begin < the_entry->begin ? -1 : 1;
    return (entry->end > the_entry->end) - (entry->end < the_entry->end);
}

/* The tensors from `first` on cover the data exactly. */
static enum status check_cover(const struct reader *reader, int first) {
    int count = reader->w->count - first;
    struct entry **sorted = xmalloc((size_t)max_int(count, 1) * sizeof(struct entry *));
    for (int i = 0; i < count; i++) sorted[i] = &reader->w->entries[first + i];
    qsort(sorted, (size_t)count, sizeof(struct entry *), compare_places);
    size_t at = 0;
    enum status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        if (sorted[i]->begin != at)
            status = error_set(reader->e, STATUS_CORRUPT,
                               "%s: tensor \"%.*s\" starts at byte %zu, %s the one before at %zu",
                               reader->path, NAME_SHOWN, sorted[i]->tensor.name, sorted[i]->begin,
                               sorted[i]->begin < at ? "overlapping" : "with a hole behind", at);
        at = sorted[i]->end;
    }
    if (status == STATUS_OK && at != reader->size)
        status = error_set(reader->e, STATUS_CORRUPT,
                           "%s: the tensors take %zu bytes, the file holds %zu: damaged or cut off",
                           reader->path, at, reader->size);
    free(sorted);
    return status;
}

static enum status read_header(struct reader *reader, const char *json, size_t size) {
    struct json *root = NULL;
    enum status status = json_parse(&root, (struct text_span){json, size}, reader->path, reader->e);
    if (status) return status;
    int first = reader->w->count;
    if (json_kind(root) != JSON_KIND_OBJECT)
        status =
            error_set(reader->e, STATUS_CORRUPT, "%s: the header is not an object", reader->path);
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(root, &it);) {
        bool metadata = strcmp(it.name.text, "__metadata__") == 0;
        status = metadata ? check_metadata(reader, it.value)
                          : read_tensor(reader, it.name.text, it.value);
    }
    json_close(root);
    return status ? status : check_cover(reader, first);
}

/* All tensors of one file's bytes. */
static enum status read_file(struct weights *weights, const uint8_t *data, size_t size,
                             const char *path, struct error *e) {
    uint64_t header = 0;
    if (size < 8)
        return error_set(e, STATUS_CORRUPT, "%s: %zu bytes are too few for a safetensors file",
                         path, size);
    for (int i = 7; i >= 0; i--) header = header << 8 | data[i];
    if (header > size - 8)
        return error_set(e, STATUS_CORRUPT,
                         "%s: a header of %llu bytes in a file of %zu: damaged or no safetensors",
                         path, (unsigned long long)header, size);
    if (header > JSON_LIMIT)
        return error_set(e, STATUS_TOO_LARGE,
                         "%s: a header of %llu bytes, the limit is %d: split the file into shards",
                         path, (unsigned long long)header, JSON_LIMIT);
    if (header == 0 || data[8] != '{')
        return error_set(e, STATUS_CORRUPT,
                         "%s: the header does not start with \"{\": no safetensors file", path);
    struct reader reader = {.w = weights, .path = path, .e = e};
    reader.data = data + 8 + header;
    reader.size = size - 8 - (size_t)header;
    return read_header(&reader, (const char *)data + 8, (size_t)header);
}

static enum status add_file(struct weights *weights, const char *path, struct error *e) {
    struct file_map map;
    enum status status = file_map_open(&map, path, e);
    if (status) return status;
    status = read_file(weights, map.data, map.size, path, e);
    weights->maps = xrealloc(weights->maps, ((size_t)weights->n_maps + 1) * sizeof *weights->maps);
    weights->maps[weights->n_maps] = map;
    weights->n_maps++;
    return status;
}

static const struct entry *find_entry(const struct weights *weights, const char *name) {
    struct entry key = {.tensor.name = name};
    if (weights->count == 0) return NULL;
    return bsearch(&key, weights->entries, (size_t)weights->count, sizeof *weights->entries,
                   entry_compare);
}

/* A file named by the index must lie in the folder itself. */
static bool name_is_plain(const struct json *value) {
    const char *text = json_word(value);
    return text && text[0] && !strchr(text, '/') && strcmp(text, ".") != 0 &&
           strcmp(text, "..") != 0;
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

static enum status list_shards(const struct json *map, const char *path, struct shard_list *list,
                               struct error *e) {
    if (json_kind(map) != JSON_KIND_OBJECT)
        return error_set(e, STATUS_CORRUPT, "%s: \"weight_map\" is not an object", path);
    for (struct json_entry it = {0}; json_next(map, &it);) {
        const char *file = json_word(it.value);
        if (!name_is_plain(it.value))
            return error_set(e, STATUS_CORRUPT,
                             "%s: the file of \"%.*s\" is not a plain name in the same folder",
                             path, NAME_SHOWN, it.name.text);
        if (shard_find(list, file) >= 0) continue;
        if (list->count == SHARD_LIMIT)
            return error_set(e, STATUS_TOO_LARGE, "%s: more than %d shards", path, SHARD_LIMIT);
        list->names[list->count] = file;
        list->count++;
    }
    return STATUS_OK;
}

/* Every tensor is where the index says it is. */
static enum status check_index(const struct weights *weights, const struct json *map,
                               const char *path, const struct shard_list *list, struct error *e) {
    for (struct json_entry it = {0}; json_next(map, &it);) {
        const struct entry *entry = find_entry(weights, it.name.text);
        const char *file = json_word(it.value);
        if (entry == NULL || entry->shard != shard_find(list, file))
            return error_set(e, STATUS_CORRUPT, "%s: tensor \"%.*s\" is not in %.100s", path,
                             NAME_SHOWN, it.name.text, file);
    }
    return STATUS_OK;
}

static bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static enum status read_shards(struct weights *weights, const struct json *map, const char *folder,
                               const char *index, struct error *e) {
    struct shard_list *list = xcalloc(1, sizeof *list);
    enum status status = list_shards(map, index, list, e);
    for (int i = 0; i < list->count && status == STATUS_OK; i++) {
        struct buffer path = {0};
        buffer_printf(&path, "%s/%s", folder, list->names[i]);
        if (file_exists(path.data))
            status = add_file(weights, path.data, e);
        else
            status = error_set(e, STATUS_IO, "%s: no such file, and %s names it", path.data, index);
        buffer_free(&path);
    }
    if (status == STATUS_OK) status = weights_sort(weights, index, e);
    if (status == STATUS_OK) status = check_index(weights, map, index, list, e);
    free(list);
    return status;
}

static enum status read_index(struct weights *weights, const char *folder, const char *path,
                              struct error *e) {
    struct buffer text = {0};
    struct json *root = NULL;
    enum status status = file_read(path, JSON_LIMIT, &text, e);
    if (status == STATUS_OK)
        status = json_parse(&root, (struct text_span){text.data, text.size}, path, e);
    if (status == STATUS_OK)
        status = read_shards(weights, json_member(root, "weight_map"), folder, path, e);
    json_close(root);
    buffer_free(&text);
    return status;
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
    bool pickled = folder_has(folder, "pytorch_model.bin") ||
                   folder_has(folder, "pytorch_model.bin.index.json");
    const char *advice =
        pickled ? "; pytorch_model.bin is not read: save the model again with transformers "
                  "(from_pretrained, then save_pretrained), which writes safetensors"
        : folder_has(folder, "consolidated.safetensors")
            ? "; consolidated.safetensors has the names of Mistral's own programs and is not read: "
              "put the Hugging Face files of the same model here"
            : "";
    return error_set(e, STATUS_NOT_FOUND,
                     "%s: holds neither model.safetensors nor model.safetensors.index.json%s",
                     folder, advice);
}

static enum status read_folder(struct weights *weights, const char *folder, struct error *e) {
    struct buffer single = {0}, index = {0};
    buffer_printf(&single, "%s/model.safetensors", folder);
    buffer_printf(&index, "%s/model.safetensors.index.json", folder);
    enum status status;
    if (file_exists(single.data)) {
        status = add_file(weights, single.data, e);
        if (status == STATUS_OK) status = weights_sort(weights, single.data, e);
    } else if (file_exists(index.data)) {
        status = read_index(weights, folder, index.data, e);
    } else {
        status = folder_fail(folder, e);
    }
    buffer_free(&single);
    buffer_free(&index);
    return status;
}

static enum status open_finish(struct weights **out, struct weights *weights, enum status status,
                               struct error *e) {
    if (status == STATUS_OK && weights->gguf == NULL) status = weights_unstack_experts(weights, e);
    if (status)
        weights_close(weights);
    else
        *out = weights;
    return status;
}

enum status weights_open(struct weights **out, const char *path, struct error *e) {
    struct stat st;
    *out = NULL;
    if (stat(path, &st) != 0)
        return errno == ENOENT ? error_set(e, STATUS_NOT_FOUND, "%s: no such file or folder", path)
                               : error_errno(e, "%s", path);
    struct weights *weights = xcalloc(1, sizeof *weights);
    struct buffer gguf = {0};
    if (gguf_find_file(path, &gguf)) {
        enum status read = open_finish(out, weights, weights_read_gguf(weights, gguf.data, e), e);
        buffer_free(&gguf);
        return read;
    }
    if (S_ISDIR(st.st_mode)) return open_finish(out, weights, read_folder(weights, path, e), e);
    enum status status = add_file(weights, path, e);
    return open_finish(out, weights, status ? status : weights_sort(weights, path, e), e);
}

enum status weights_open_memory(struct weights **out, const void *data, size_t size,
                                const char *name, struct error *e) {
    *out = NULL;
    struct weights *weights = xcalloc(1, sizeof *weights);
    enum status status = read_file(weights, data, size, name, e);
    return open_finish(out, weights, status ? status : weights_sort(weights, name, e), e);
}

void weights_close(struct weights *weights) {
    if (weights == NULL) return;
    for (int i = 0; i < weights->count; i++) {
        free((void *)(uintptr_t)weights->entries[i].tensor.name);
        free(weights->entries[i].copy);
    }
    for (int i = 0; i < weights->n_maps; i++) file_map_close(&weights->maps[i]);
    gguf_close(weights->gguf);
    free(weights->entries);
    free(weights->maps);
    free(weights);
}

void weights_read_apart(const struct weights *weights) {
    for (int i = 0; i < weights->n_maps; i++)
        madvise((void *)(uintptr_t)weights->maps[i].data, weights->maps[i].size, MADV_RANDOM);
}

int weights_count(const struct weights *weights) { return weights->count; }

const struct stored_tensor *weights_at(const struct weights *weights, int i) {
    CHECK(i >= 0 && i < weights->count);
    return &weights->entries[i].tensor;
}

const struct stored_tensor *weights_find(const struct weights *weights, const char *name) {
    const struct entry *entry = find_entry(weights, name);
    return entry ? &entry->tensor : NULL;
}

int weights_index(const struct weights *weights, const struct stored_tensor *stored) {
    ptrdiff_t i = (const struct entry *)(const void *)stored -
                  weights->entries; /* the tensor is its entry's first member */
    CHECK(i >= 0 && i < weights->count);
    return (int)i;
}

enum status weights_hash(const char *path, uint64_t *hash, struct error *e) {
    struct weights *weights;
    if (weights_open(&weights, path, e)) return e->status;
    for (int i = 0; i < weights_count(weights); i++) {
        const struct stored_tensor *stored = weights_at(weights, i);
        *hash = hash_bytes(stored->name, strlen(stored->name), *hash);
        *hash = hash_bytes(stored->data, stored->bytes, *hash);
    }
    weights_close(weights);
    return STATUS_OK;
}
