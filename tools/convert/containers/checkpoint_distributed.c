/* tools/convert/containers/checkpoint_distributed.c: checkpoints of torch.distributed (Megatron's
 * torch_dist, torch_dcp): a pickle .metadata says which boxes each tensor is made of, and where in
 * which file the box lies, as a file of torch.save of its own. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "tools/convert/containers/checkpoint.h"

enum { PIECES_LIMIT = 1 << 12, NAME_LIMIT = 400 };

/* An item of a file: a box of a tensor, or an object. */
struct stored_item {
    struct text_span name;
    const struct pickle_value *offset; /* of the box; NULL or None: an object, or a whole tensor */
    const struct pickle_value *place;  /* relative_path, offset, length */
};

struct spread_reader {
    struct checkpoint *c;
    const struct pickle_value *metadata;
    struct stored_item *items; /* in order of name */
    int n_items;
    struct error *e;
};

static enum status fail(const struct spread_reader *reader, struct text_span name,
                        const char *why) {
    return error_set(reader->e, STATUS_CORRUPT, "%s/.metadata: %.*s %s", reader->c->folder,
                     (int)(name.size < NAME_LIMIT ? name.size : NAME_LIMIT), name.text, why);
}

static int compare_items(const void *a, const void *b) {
    return span_compare(((const struct stored_item *)a)->name,
                        ((const struct stored_item *)b)->name);
}

/* storage_data: {MetadataIndex(fqn, offset, index): _StorageInfo(relative_path, offset, length)}.
 */
static enum status list_items(struct spread_reader *reader) {
    const struct pickle_value *data = pickle_attribute(reader->metadata, "storage_data");
    size_t n = pickle_pairs(data);
    reader->items = xcalloc(n + 1, sizeof *reader->items);
    for (size_t i = 0; i < n; i++) {
        const struct pickle_value *key = pickle_key(data, i), *name = pickle_attribute(key, "fqn");
        if (!pickle_is(name, PICKLE_TEXT))
            return fail(reader, (struct text_span){"an item", 7}, "has no name");
        reader->items[reader->n_items] = (struct stored_item){
            name->text, pickle_attribute(key, "offset"), pickle_pair_value(data, i)};
        reader->n_items++;
    }
    qsort(reader->items, (size_t)reader->n_items, sizeof *reader->items, compare_items);
    return STATUS_OK;
}

/* The first item of a name; *n is how many follow. */
static const struct stored_item *find_items(const struct spread_reader *reader,
                                            struct text_span name, int *n) {
    int low = 0, high = reader->n_items;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (span_compare(reader->items[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *n = 0;
    while (low + *n < reader->n_items && span_compare(reader->items[low + *n].name, name) == 0)
        ++*n;
    return &reader->items[low];
}

/* The bytes of an item. Its file lies in the folder itself. */
static enum status find_bytes(struct spread_reader *reader, const struct stored_item *item,
                              struct text_span *bytes) {
    const struct pickle_value *path = pickle_attribute(item->place, "relative_path");
    const struct pickle_value *at = pickle_attribute(item->place, "offset");
    const struct pickle_value *length = pickle_attribute(item->place, "length");
    const struct pickle_value *changed = pickle_attribute(item->place, "transform_descriptors");
    struct text_span file;
    if (!pickle_is(path, PICKLE_TEXT) || !pickle_is(at, PICKLE_INT) ||
        !pickle_is(length, PICKLE_INT))
        return fail(reader, item->name, "lies nowhere");
    if (changed && !pickle_is(changed, PICKLE_NONE) && changed->count > 0)
        return fail(reader, item->name,
                    "is stored compressed or otherwise changed, which is not read");
    bool plain = path->text.size > 0 && path->text.size < NAME_LIMIT && path->text.text[0] != '.' &&
                 memchr(path->text.text, '/', path->text.size) == NULL &&
                 memchr(path->text.text, '\0', path->text.size) == NULL;
    if (!plain) return fail(reader, item->name, "lies in a file that is not in the folder");
    char *name = xstrndup(path->text.text, path->text.size);
    enum status status = checkpoint_read(reader->c, name, &file, reader->e);
    free(name);
    if (status) return status;
    if (at->number < 0 || length->number < 0 || (uint64_t)at->number > file.size ||
        (uint64_t)length->number > file.size - (uint64_t)at->number)
        return fail(reader, item->name, "reaches beyond the end of its file");
    *bytes = (struct text_span){file.text + at->number, (size_t)length->number};
    return STATUS_OK;
}

/* torch.Size((2, 3)), or the tuple; false: neither. */
static bool read_size(const struct pickle_value *value, int64_t out[STORED_MAX_DIMS], int *n) {
    if (pickle_is_object(value, "torch.Size")) value = pickle_item(value->arguments, 0);
    if (value == NULL || (value->kind != PICKLE_TUPLE && value->kind != PICKLE_LIST) ||
        value->count > STORED_MAX_DIMS)
        return false;
    *n = (int)value->count;
    for (int i = 0; i < *n; i++) {
        if (value->items[i]->kind != PICKLE_INT || value->items[i]->number < 0) return false;
        out[i] = value->items[i]->number;
    }
    return true;
}

static bool same_numbers(const int64_t *a, const int64_t *b, int n) {
    for (int i = 0; i < n; i++)
        if (a[i] != b[i]) return false;
    return true;
}

/* The box that begins at an offset, of the tensor's list of boxes. */
static enum status find_box(const struct spread_reader *reader, const struct pickle_value *boxes,
                            struct text_span name, const struct checkpoint_tensor *tensor,
                            struct checkpoint_piece *piece) {
    for (size_t i = 0; i < boxes->count; i++) {
        int64_t origin[STORED_MAX_DIMS], extent[STORED_MAX_DIMS];
        int n, m;
        if (!read_size(pickle_attribute(boxes->items[i], "offsets"), origin, &n) ||
            !read_size(pickle_attribute(boxes->items[i], "sizes"), extent, &m) ||
            n != tensor->n_dims || m != n)
            return fail(reader, name, "has a box without place and size");
        if (!same_numbers(origin, piece->origin, n)) continue;
        for (int k = 0; k < n; k++) {
            if (extent[k] < 1 || extent[k] > tensor->shape[k] ||
                origin[k] > tensor->shape[k] - extent[k])
                return fail(reader, name, "has a box that lies outside it");
            piece->extent[k] = extent[k];
        }
        return STATUS_OK;
    }
    return fail(reader, name, "has a stored part that is none of its boxes");
}

/* An item is a file of torch.save of one tensor. */
static enum status read_piece(struct spread_reader *reader, const struct stored_item *item,
                              const struct pickle_value *boxes, struct checkpoint_tensor *tensor) {
    struct checkpoint_piece *piece = &tensor->pieces[tensor->n_pieces];
    struct text_span bytes;
    struct torch_file file;
    struct torch_tensor stored;
    int n = tensor->n_dims;
    bool placed = read_size(item->offset, piece->origin, &n);
    if (!placed && item->offset && item->offset->kind != PICKLE_NONE)
        return fail(reader, item->name, "has a part without a place");
    if (n != tensor->n_dims)
        return fail(reader, item->name, "has a part of another number of axes");
    if (find_box(reader, boxes, item->name, tensor, piece) || find_bytes(reader, item, &bytes))
        return reader->e->status;
    if (torch_file_open(&file, bytes, tensor->name, reader->e))
        return error_prefix(reader->e, "%s", reader->c->folder);
    enum status status =
        torch_tensor_read(&file, torch_file_root(&file), "in it", &stored, reader->e);
    torch_file_close(&file);
    if (status) return status;
    if (stored.dtype != tensor->dtype || stored.n_dims != n ||
        !same_numbers(stored.shape, piece->extent, n))
        return fail(reader, item->name, "has a part of another type or shape than its box");
    piece->data = stored.data;
    tensor->n_pieces++;
    return STATUS_OK;
}

/* Whether Megatron has cut the tensor in a way of its own. */
static bool is_reformed(const struct spread_reader *reader, const char *name) {
    const struct pickle_value *more = pickle_attribute(reader->metadata, "mcore_data");
    return pickle_pairs(pickle_member(more, name)) > 0;
}

static enum status read_tensor(struct spread_reader *reader, const char *name,
                               const struct pickle_value *value) {
    const struct pickle_value *boxes = pickle_attribute(value, "chunks");
    const struct pickle_value *properties = pickle_attribute(value, "properties");
    struct text_span span = {name, strlen(name)};
    int n;
    const struct stored_item *items = find_items(reader, span, &n);
    struct checkpoint_tensor *tensor = checkpoint_add(reader->c, name);
    tensor->file = reader->c->folder;
    if (!read_size(pickle_attribute(value, "size"), tensor->shape, &tensor->n_dims) ||
        !pickle_is(boxes, PICKLE_LIST))
        return fail(reader, span, "has no shape");
    if (n == 0 || n > PIECES_LIMIT || (size_t)n != boxes->count)
        return fail(reader, span, "has not as many stored parts as boxes");
    const struct pickle_value *type =
        pickle_is(properties, PICKLE_OBJECT) ? properties->state : NULL;
    const struct pickle_value *dtype =
        pickle_item(type, 0) ? pickle_item(type, 0) : pickle_member(type, "dtype");
    if (!torch_dtype_parse(dtype, &tensor->dtype) || is_reformed(reader, name)) {
        struct buffer problem = {0};
        buffer_printf(
            &problem,
            "%s: the tensor %s has the type %.*s%s; float32, float16 and bfloat16 are read",
            reader->c->folder, name, pickle_is(dtype, PICKLE_GLOBAL) ? (int)dtype->text.size : 1,
            pickle_is(dtype, PICKLE_GLOBAL) ? dtype->text.text : "?",
            is_reformed(reader, name) ? ", cut as an optimiser's state" : "");
        tensor->problem = problem.data;
        return STATUS_OK;
    }
    tensor->pieces = xcalloc((size_t)n, sizeof *tensor->pieces);
    for (int i = 0; i < n; i++)
        if (read_piece(reader, &items[i], boxes, tensor)) return reader->e->status;
    return checkpoint_check_pieces(reader->c, tensor, reader->e);
}

/* Settings. */

/* An object is stored as torch.save([object]), or as itself. It has the arguments within, or is
 * them. */
static enum status read_object(struct spread_reader *reader, const char *name, bool within) {
    struct text_span bytes, span = {name, strlen(name)};
    struct torch_file file;
    int n;
    const struct stored_item *item = find_items(reader, span, &n);
    if (n != 1) return STATUS_OK;
    if (find_bytes(reader, item, &bytes) || torch_file_open(&file, bytes, name, reader->e))
        return reader->e->status;
    const struct pickle_value *root = torch_file_root(&file);
    if (pickle_is(root, PICKLE_LIST)) root = pickle_item(root, 0);
    enum status status = within ? checkpoint_take_arguments(reader->c, root, reader->e) : STATUS_OK;
    if (!within) settings_put_pickle(&reader->c->settings, root);
    torch_file_close(&file);
    return status;
}

/* common.pt, the object common_state of newer Megatrons, or the object args of torch_dcp. */
static enum status read_settings(struct spread_reader *reader) {
    if (checkpoint_has(reader->c, "common.pt")) return checkpoint_read_common(reader->c, reader->e);
    bool failed =
        read_object(reader, "common_state/shard_0_1", true) || read_object(reader, "args", false);
    return failed ? reader->e->status : STATUS_OK;
}

static enum status read_metadata(struct spread_reader *reader) {
    const struct pickle_value *tensors = pickle_attribute(reader->metadata, "state_dict_metadata");
    if (pickle_pairs(tensors) == 0)
        return fail(reader, (struct text_span){"it", 2}, "names no tensors");
    if (list_items(reader) || read_settings(reader)) return reader->e->status;
    for (size_t i = 0; i < pickle_pairs(tensors); i++) {
        const struct pickle_value *key = pickle_key(tensors, i),
                                  *value = pickle_pair_value(tensors, i);
        if (key->kind != PICKLE_TEXT || key->text.size >= NAME_LIMIT ||
            memchr(key->text.text, '\0', key->text.size))
            return fail(reader, (struct text_span){"a tensor", 8}, "has no name that can be");
        char *name = xstrndup(key->text.text, key->text.size);
        bool tensor = pickle_is_object(value, "TensorStorageMetadata") && !checkpoint_drops(name);
        if (!tensor) reader->c->dropped++;
        enum status status = tensor ? read_tensor(reader, name, value) : STATUS_OK;
        free(name);
        if (status) return status;
    }
    return checkpoint_unstack(reader->c, reader->e);
}

enum status checkpoint_open_distributed(struct checkpoint *checkpoint, struct error *e) {
    struct spread_reader reader = {.c = checkpoint, .e = e};
    struct text_span bytes;
    struct pickle *metadata;
    checkpoint->container = "torch.distributed: files of boxes of tensors";
    if (checkpoint_read(checkpoint, ".metadata", &bytes, e)) return e->status;
    if (pickle_open_known(&metadata, bytes, ".metadata", e))
        return error_prefix(e, "%s", checkpoint->folder);
    reader.metadata = pickle_root(metadata);
    enum status status = read_metadata(&reader);
    free(reader.items);
    pickle_close(metadata);
    if (status == STATUS_OK) checkpoint_sort(checkpoint);
    return status;
}
