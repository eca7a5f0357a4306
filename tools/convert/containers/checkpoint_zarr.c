/* tools/convert/containers/checkpoint_zarr.c: Megatron's distributed checkpoints in zarr's format
 * (version 2): a folder for each tensor, with .zarray, which says how it is cut, and a file of raw
 * bytes for each chunk: "0.1". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/containers/checkpoint.h"

enum { PIECES_LIMIT = 1 << 12, NAME_LIMIT = 400, ZARRAY_LIMIT = 1 << 16 };

static const char description[] = "/.zarray";

struct zarr_dtype {
    const char *name;
    enum stored_dtype dtype;
};
static const struct zarr_dtype dtypes[] = {
    {"<f4", STORED_F32}, {"<f2", STORED_F16}, {"bfloat16", STORED_BF16}};

static enum status fail(const struct checkpoint *checkpoint, const char *name, struct error *e,
                        const char *why) {
    return error_set(e, STATUS_CORRUPT, "%s: the array %s %s", checkpoint->folder, name, why);
}

/* A list of sizes; false: it is none. */
static bool read_sizes(const struct json *list, int64_t out[STORED_MAX_DIMS], int *n) {
    if (!json_is_list(list) || json_count(list) > STORED_MAX_DIMS || json_count(list) == 0)
        return false;
    *n = (int)json_count(list);
    for (int i = 0; i < *n; i++) {
        const struct json *size = json_item(list, (size_t)i);
        if (!json_is_int(size) || json_int(size) < 1 || json_int(size) > INT32_MAX) return false;
        out[i] = json_int(size);
    }
    return true;
}

/* Chunk `index` of a grid, counted along the last axis first: its place, and its file's name. */
static void place_chunk(struct checkpoint_piece *piece, struct buffer *file,
                        const struct checkpoint_tensor *tensor,
                        const int64_t chunk[STORED_MAX_DIMS], int64_t index) {
    int64_t at[STORED_MAX_DIMS];
    for (int k = tensor->n_dims - 1; k >= 0; k--) {
        int64_t along = (tensor->shape[k] + chunk[k] - 1) / chunk[k];
        at[k] = index % along;
        index /= along;
        piece->origin[k] = at[k] * chunk[k];
        int64_t left = tensor->shape[k] - piece->origin[k];
        piece->extent[k] = left < chunk[k] ? left : chunk[k];
    }
    for (int k = 0; k < tensor->n_dims; k++)
        buffer_printf(file, "%s%lld", k ? "." : "/", (long long)at[k]);
}

/* A chunk is stored whole, beyond the end of its array, too; rows that count lie first. */
static enum status read_chunk(struct checkpoint *checkpoint, struct checkpoint_tensor *tensor,
                              const int64_t chunk[STORED_MAX_DIMS], int64_t index,
                              struct error *e) {
    struct checkpoint_piece *piece = &tensor->pieces[tensor->n_pieces];
    struct buffer file = {0};
    struct text_span bytes;
    size_t size = torch_dtype_bytes(tensor->dtype);
    buffer_append_string(&file, tensor->name);
    place_chunk(piece, &file, tensor, chunk, index);
    enum status status = checkpoint_read(checkpoint, file.data, &bytes, e);
    buffer_free(&file);
    if (status) return status;
    for (int k = 0; k < tensor->n_dims; k++)
        if (mul_overflows(size, (size_t)chunk[k], &size))
            return fail(checkpoint, tensor->name, e, "has chunks larger than any memory");
    for (int k = 1; k < tensor->n_dims; k++)
        if (piece->extent[k] != chunk[k])
            return fail(checkpoint, tensor->name, e, "is cut into columns that do not fit");
    if (bytes.size != size)
        return fail(checkpoint, tensor->name, e, "has a chunk of another size than it says");
    piece->data = (const uint8_t *)bytes.text;
    tensor->n_pieces++;
    return STATUS_OK;
}

static enum status read_chunks(struct checkpoint *checkpoint, struct checkpoint_tensor *tensor,
                               const int64_t chunk[STORED_MAX_DIMS], struct error *e) {
    int64_t n = 1;
    for (int k = 0; k < tensor->n_dims; k++) {
        n *= (tensor->shape[k] + chunk[k] - 1) / chunk[k];
        if (n > PIECES_LIMIT) return fail(checkpoint, tensor->name, e, "has thousands of chunks");
    }
    tensor->pieces = xcalloc((size_t)n, sizeof *tensor->pieces);
    for (int64_t i = 0; i < n; i++)
        if (read_chunk(checkpoint, tensor, chunk, i, e)) return e->status;
    return checkpoint_check_pieces(checkpoint, tensor, e);
}

static enum status read_description(struct checkpoint *checkpoint, struct checkpoint_tensor *tensor,
                                    const struct json *array, struct error *e) {
    int64_t chunk[STORED_MAX_DIMS];
    int n;
    const char *dtype = json_word(json_member(array, "dtype")),
               *order = json_word(json_member(array, "order"));
    if (!read_sizes(json_member(array, "shape"), tensor->shape, &tensor->n_dims) ||
        !read_sizes(json_member(array, "chunks"), chunk, &n) || n != tensor->n_dims)
        return fail(checkpoint, tensor->name, e, "has no shape and chunks");
    if (!json_is_absent(json_member(array, "compressor")) ||
        !json_is_absent(json_member(array, "filters")) || (order && strcmp(order, "C") != 0))
        return fail(checkpoint, tensor->name, e,
                    "is compressed, filtered or in another order than C, which is not read");
    for (size_t i = 0; dtype && i < ARRAY_COUNT(dtypes); i++) {
        if (strcmp(dtypes[i].name, dtype) != 0) continue;
        tensor->dtype = dtypes[i].dtype;
        return read_chunks(checkpoint, tensor, chunk, e);
    }
    struct buffer problem = {0};
    buffer_printf(&problem, "%s: the array %s has the type %s; <f4, <f2 and bfloat16 are read",
                  checkpoint->folder, tensor->name, dtype ? dtype : "?");
    tensor->problem = problem.data;
    return STATUS_OK;
}

static enum status read_array(struct checkpoint *checkpoint, const char *name, struct error *e) {
    struct buffer file = {0};
    struct text_span text;
    struct json *array;
    buffer_printf(&file, "%s%s", name, description);
    enum status status = checkpoint_read(checkpoint, file.data, &text, e);
    if (status == STATUS_OK && text.size > ZARRAY_LIMIT)
        status = fail(checkpoint, name, e, "is described by too many bytes");
    if (status == STATUS_OK) status = json_parse(&array, text, file.data, e);
    buffer_free(&file);
    if (status) return status;
    struct checkpoint_tensor *tensor = checkpoint_add(checkpoint, name);
    tensor->file = checkpoint->folder;
    status = read_description(checkpoint, tensor, array, e);
    json_close(array);
    return status;
}

enum status checkpoint_open_zarr(struct checkpoint *checkpoint, struct error *e) {
    size_t end = strlen(description);
    checkpoint->container = "zarr: a folder for each tensor";
    if (checkpoint_read_common(checkpoint, e)) return e->status;
    for (int i = 0; i < checkpoint->n_entries; i++) {
        const char *entry = checkpoint->entries[i].name;
        size_t n = strlen(entry);
        if (n <= end || n >= NAME_LIMIT || strcmp(entry + n - end, description) != 0) continue;
        char *name = xstrndup(entry, n - end);
        bool dropped = checkpoint_drops(name);
        checkpoint->dropped += dropped;
        enum status status = dropped ? STATUS_OK : read_array(checkpoint, name, e);
        free(name);
        if (status) return status;
    }
    if (checkpoint_unstack(checkpoint, e)) return e->status;
    checkpoint_sort(checkpoint);
    return STATUS_OK;
}
