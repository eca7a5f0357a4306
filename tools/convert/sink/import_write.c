/* tools/convert/sink/import_write.c: the weights of the folder, joined of their parts a few
 * megabytes at a time. Pages of a file's map are given back once they were read, so that memory
 * does not grow with the checkpoint. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/base/line.h"
#include "config/json/json_writer.h"
#include "tools/convert/sink/sink.h"

enum { BLOCK_BYTES = 8 << 20, PROGRESS_MS = 500 };

static const size_t shard_bytes = 4000000000;

/* A written tensor's place. */
struct import_place {
    int shard, specs[MATRIX_PLANES]; /* of the shard's specs */
};

struct import_writer {
    const struct import_plan *p;
    const char *folder;
    struct import_place *places; /* [targets] */
    struct tensor_spec **specs;  /* [shards][...] */
    int *n_specs;                /* [shards] */
    int n_shards;
    char *block; /* [BLOCK_BYTES], or one row */
    struct import_rows rows;
    size_t total, done; /* bytes as they are read */
    size_t found;       /* of the total, what an earlier run has written */
    size_t written;     /* bytes as they will lie in the files */
    double began, shown;
    bool progress;
};

static size_t element_size(const struct import_target *target) {
    return torch_dtype_bytes(target->from->dtype);
}

/* Axes after the first count as one. */
static int64_t columns_of(const struct import_target *target) {
    int64_t n = 1;
    for (int i = 1; i < target->n_dims; i++) n *= target->shape[i];
    return n;
}

/* The same of a piece: its columns, and how many elements of the row are before them. */
static void piece_columns(const struct import_target *target, const struct checkpoint_piece *piece,
                          int64_t *n, int64_t *before) {
    int64_t inner = 1;
    for (int i = 2; i < target->n_dims; i++) inner *= target->shape[i];
    *n = target->n_dims > 1 ? piece->extent[1] * inner : 1;
    *before = target->n_dims > 1 ? piece->origin[1] * inner : 0;
}

static size_t target_bytes(const struct import_target *target) {
    return (size_t)target->shape[0] * (size_t)columns_of(target) * element_size(target);
}

static size_t plane_row_bytes(const struct import_target *target, int plane) {
    return (size_t)plane_cols(columns_of(target), target->to, plane) *
           plane_element_bytes(target->to, plane);
}

static size_t written_bytes(const struct import_target *target) {
    size_t bytes = 0;
    for (int k = 0; k < planes_of(target->to); k++)
        bytes += (size_t)target->shape[0] * plane_row_bytes(target, k);
    return bytes;
}

static int64_t rows_at_once(const struct import_target *target) {
    size_t row_bytes = (size_t)columns_of(target) * element_size(target);
    return row_bytes < BLOCK_BYTES ? (int64_t)(BLOCK_BYTES / row_bytes) : 1;
}

/* Gives back the pages of a map that lie within these bytes. */
static void release_pages(const uint8_t *from, size_t size) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
              start = ((uintptr_t)from + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)from + size) / page * page;
    if (end > start) madvise((void *)start, end - start, MADV_DONTNEED);
}

static void show_progress(struct import_writer *writer, size_t more) {
    double now = time_now();
    writer->done += more;
    if (!writer->progress || (1000 * (now - writer->shown) < PROGRESS_MS &&
                              writer->done + writer->found < writer->total))
        return;
    size_t here = writer->done + writer->found;
    double rate = (double)writer->done / (now - writer->began + 1e-9);
    int left = (int)((double)(writer->total - here) / (rate + 1e-9));
    fprintf(stderr, "\r%7.2f of %.2f GB, %4.0f MB/s, %d:%02d left ", 1e-9 * (double)here,
            1e-9 * (double)writer->total, 1e-6 * rate, left / 60, left % 60);
    if (here == writer->total) fputc('\n', stderr);
    writer->shown = now;
}

/* A file that has not been written holds zeros already. */
static bool all_zero(const char *block, size_t n) {
    return n == 0 || (block[0] == 0 && memcmp(block, block + 1, n - 1) == 0);
}

/* Joining. */

/* Old versions order the rows of query_key_value otherwise: [3, heads, channels], then [heads,
 * channels, 3]; ours is [heads, 3, channels]. */
static int64_t source_row(const struct import_plan *plan, const struct import_target *target,
                          int64_t row, int64_t rows) {
    if (target->parts == 0) return row;
    int64_t h = plan->channels, heads = rows / (target->parts * h);
    int64_t x = row % h, part = row / h % target->parts, head = row / (h * target->parts);
    return plan->checkpoint->version < 1 ? (part * heads + head) * h + x
                                         : (head * h + x) * target->parts + part;
}

/* Finds the rank that has a row, and the row's number there. */
static void find_row(const struct import_plan *plan, const struct import_target *target,
                     int64_t row, int *rank, int64_t *local) {
    int ranks = plan->checkpoint->ranks;
    int64_t rows = target->shape[0] / ranks;
    *rank = 0;
    *local = row;
    if (target->split == SPLIT_ROWS) {
        *rank = (int)(row / rows);
        *local = source_row(plan, target, row % rows, rows);
    }
    if (target->split == SPLIT_HALVES) {
        int64_t half = target->shape[0] / 2, part = half / ranks, within = row % half;
        *rank = (int)(within / part);
        *local = row / half * part + within % part;
    }
}

static void join_ranks(const struct import_plan *plan, const struct import_target *target,
                       int64_t first, int64_t n, char *to) {
    size_t size = element_size(target), row_bytes = (size_t)columns_of(target) * size;
    int ranks = target->split == SPLIT_COLUMNS ? plan->checkpoint->ranks : 1;
    size_t part = row_bytes / (size_t)ranks;
    for (int64_t i = 0; i < n; i++) {
        int rank;
        int64_t local;
        find_row(plan, target, first + i, &rank, &local);
        for (int r = 0; r < ranks; r++)
            memcpy(to + (size_t)i * row_bytes + (size_t)r * part,
                   target->from->pieces[rank + r].data + (size_t)local * part, part);
    }
}

static void join_pieces(const struct import_target *target, int64_t first, int64_t n, char *to) {
    size_t size = element_size(target), row_bytes = (size_t)columns_of(target) * size;
    for (int k = 0; k < target->from->n_pieces; k++) {
        const struct checkpoint_piece *piece = &target->from->pieces[k];
        int64_t from = piece->origin[0] > first ? piece->origin[0] : first;
        int64_t piece_end = piece->origin[0] + piece->extent[0],
                end = piece_end < first + n ? piece_end : first + n;
        int64_t columns, before;
        piece_columns(target, piece, &columns, &before);
        size_t part = (size_t)columns * size, column = (size_t)before * size;
        for (int64_t i = from; i < end; i++)
            memcpy(to + (size_t)(i - first) * row_bytes + column,
                   piece->data + (size_t)(i - piece->origin[0]) * part, part);
    }
}

static void release_tensor(const struct checkpoint_tensor *tensor) {
    for (int k = 0; k < tensor->n_pieces; k++) {
        size_t size = torch_dtype_bytes(tensor->dtype);
        for (int i = 0; i < tensor->n_dims; i++) size *= (size_t)tensor->pieces[k].extent[i];
        release_pages(tensor->pieces[k].data, size);
    }
}

/* Comparing copies. */

static float value_at(const uint8_t *data, enum stored_dtype dtype, size_t i) {
    static const enum dtype types[] = {
        [STORED_F32] = DTYPE_F32, [STORED_F16] = DTYPE_F16, [STORED_BF16] = DTYPE_BF16};
    float value;
    uint8_t aligned[4] __attribute__((aligned(4)));
    size_t size = torch_dtype_bytes(dtype);
    memcpy(aligned, data + i * size, size);
    dtype_convert(&value, DTYPE_F32, aligned, types[dtype], 1);
    return value;
}

/* How far copies may lie apart, as a share of the largest value: some units of the last place,
 * which half-precision sums over ranks leave and training adds up. More is another tensor. */
static double copy_bound(enum stored_dtype dtype) { return dtype == STORED_BF16 ? 0.04 : 0.01; }

/* Apart from this much nobody can tell zeros. */
static const double copy_floor = 1e-6;

/* Ranks compute norms and biases each for itself, and may differ by rounding: the first counts, as
 * in Megatron's own loader. */
static enum status compare_copies(const struct import_target *target, const uint8_t *a,
                                  const uint8_t *b, size_t elements, struct error *e) {
    size_t size = element_size(target), block = BLOCK_BYTES / size;
    double largest = 0, scale = 0;
    for (size_t at = 0; at < elements; at += block) {
        size_t n = elements - at < block ? elements - at : block;
        if (output_check(e)) return e->status;
        bool equal = memcmp(a + at * size, b + at * size, n * size) == 0;
        for (size_t i = at; !equal && i < at + n; i++) {
            double x = value_at(a, target->from->dtype, i), y = value_at(b, target->from->dtype, i);
            if (memcmp(a + i * size, b + i * size, size) != 0)
                largest = fmax(largest, isfinite(x - y) ? fabs(x - y) : INFINITY);
            if (isfinite(x)) scale = fmax(scale, fabs(x));
        }
        release_pages(a + at * size, n * size);
        release_pages(b + at * size, n * size);
    }
    double bound = fmax(copy_floor, copy_bound(target->from->dtype) * scale);
    if (largest == 0) return STATUS_OK;
    if (!(largest <= bound))
        return error_set(e, STATUS_CORRUPT,
                         "%s differs between its copies by up to %g, allowed is %g: these files do "
                         "not belong to one "
                         "model, or it is not what its name says",
                         target->name, largest, bound);
    line_print(stderr,
               "retro-convert: %s differs between its copies by up to %g; the first is taken",
               target->name, largest);
    return STATUS_OK;
}

static size_t piece_elements(const struct checkpoint_tensor *tensor, int k) {
    size_t n = 1;
    for (int i = 0; i < tensor->n_dims; i++) n *= (size_t)tensor->pieces[k].extent[i];
    return n;
}

/* Other ranks' parts of a tensor that all have, and tensors of the same name in later stages. */
static enum status check_copies(const struct import_plan *plan, const struct import_target *target,
                                struct error *e) {
    const struct checkpoint *checkpoint = plan->checkpoint;
    const struct checkpoint_tensor *from = target->from;
    for (int r = 1; checkpoint->ranked && target->split == SPLIT_NONE && r < checkpoint->ranks; r++)
        if (compare_copies(target, from->pieces[0].data, from->pieces[r].data,
                           piece_elements(from, 0), e))
            return e->status;
    const struct checkpoint_tensor *copy = from + 1;
    for (; copy < checkpoint->tensors + checkpoint->n && strcmp(copy->name, from->name) == 0;
         copy++) {
        if (copy->problem) return error_set(e, STATUS_UNSUPPORTED, "%s", copy->problem);
        bool alike = copy->dtype == from->dtype && copy->n_pieces == from->n_pieces;
        for (int k = 0; alike && k < from->n_pieces; k++)
            alike = memcmp(copy->pieces[k].extent, from->pieces[k].extent,
                           sizeof copy->pieces[k].extent) == 0;
        if (!alike)
            return error_set(e, STATUS_CORRUPT, "%s: %s is there twice, in other shapes or types",
                             copy->file, target->name);
        for (int k = 0; k < from->n_pieces; k++)
            if (compare_copies(target, from->pieces[k].data, copy->pieces[k].data,
                               piece_elements(from, k), e))
                return e->status;
    }
    return STATUS_OK;
}

/* Rows that were joined, or converted after it. */
static enum status put_rows(struct import_writer *writer, struct tensor_file *file, int index,
                            int64_t at, int64_t n, struct error *e) {
    const struct import_target *target = &writer->p->targets[index];
    for (int k = 0; k < planes_of(target->to); k++) {
        size_t row_bytes = plane_row_bytes(target, k);
        struct text_span block = {
            target->to == target->type ? writer->block : writer->rows.planes[k],
            (size_t)n * row_bytes};
        if (!all_zero(block.text, block.size) &&
            tensor_file_put_at(file, writer->places[index].specs[k], (size_t)at * row_bytes, block,
                               e))
            return e->status;
    }
    return STATUS_OK;
}

static enum status write_target(struct import_writer *writer, struct tensor_file *file, int index,
                                struct error *e) {
    const struct import_target *target = &writer->p->targets[index];
    size_t row_bytes = (size_t)columns_of(target) * element_size(target);
    int64_t rows = rows_at_once(target);
    if (check_copies(writer->p, target, e)) return e->status;
    for (int64_t at = 0; at < target->shape[0]; at += rows) {
        int64_t n = target->shape[0] - at < rows ? target->shape[0] - at : rows;
        size_t bytes = (size_t)n * row_bytes;
        if (writer->p->checkpoint->ranked)
            join_ranks(writer->p, target, at, n, writer->block);
        else
            join_pieces(target, at, n, writer->block);
        release_tensor(target->from);
        if (target->to != target->type &&
            import_convert_rows(&writer->rows, target, writer->block, at, n, e))
            return e->status;
        if (put_rows(writer, file, index, at, n, e) || output_check(e)) return e->status;
        show_progress(writer, bytes);
    }
    return STATUS_OK;
}

/* Shards. */

static void shard_name(struct buffer *name, const struct import_writer *writer, int shard) {
    if (writer->n_shards == 1)
        buffer_append_string(name, "model.safetensors");
    else
        buffer_printf(name, "model-%05d-of-%05d.safetensors", shard + 1, writer->n_shards);
}

static void add_spec(struct import_writer *writer, int index, int plane) {
    const struct import_target *target = &writer->p->targets[index];
    struct import_place *place = &writer->places[index];
    struct buffer name = {0};
    buffer_printf(&name, "%s%s", target->name, plane_suffixes[plane]);
    struct tensor_spec *spec = &writer->specs[place->shard][writer->n_specs[place->shard]];
    *spec = (struct tensor_spec){
        .name = name.data,
        .dtype = target->to == target->type ? target->from->dtype : plane_dtype(target->to, plane),
        .n_dims = target->n_dims,
        .bytes = (size_t)target->shape[0] * plane_row_bytes(target, plane)};
    memcpy(spec->shape, target->shape, sizeof target->shape);
    if (target->to != target->type)
        spec->shape[1] = plane_cols(target->shape[1], target->to, plane);
    place->specs[plane] = writer->n_specs[place->shard];
    writer->n_specs[place->shard]++;
}

/* Gives each tensor its file; within one, larger elements come first, so that each is aligned for
 * its type. */
static void place_targets(struct import_writer *writer) {
    const struct import_plan *plan = writer->p;
    size_t filled = 0;
    writer->n_shards = 1;
    for (int i = 0; i < plan->n; i++) {
        size_t bytes = written_bytes(&plan->targets[i]);
        if (filled > 0 && bytes > shard_bytes - (filled < shard_bytes ? filled : shard_bytes)) {
            writer->n_shards++;
            filled = 0;
        }
        filled += bytes;
        writer->written += bytes;
        writer->total += target_bytes(&plan->targets[i]);
        writer->places[i].shard = writer->n_shards - 1;
    }
    writer->specs = xcalloc((size_t)writer->n_shards, sizeof *writer->specs);
    writer->n_specs = xcalloc((size_t)writer->n_shards, sizeof *writer->n_specs);
    for (int s = 0; s < writer->n_shards; s++)
        writer->specs[s] = xcalloc((size_t)plan->n * MATRIX_PLANES, sizeof **writer->specs);
    for (size_t size = 4; size >= 1; size /= 2)
        for (int i = 0; i < plan->n; i++)
            for (int k = 0; k < planes_of(plan->targets[i].to); k++)
                if (plane_element_bytes(plan->targets[i].to, k) == size) add_spec(writer, i, k);
}

/* Whether an earlier run has completed a file: only then it has its name. */
static bool is_complete(struct import_writer *writer, int shard, const char *path) {
    if (access(path, F_OK) != 0) return false;
    for (int i = 0; i < writer->p->n; i++)
        if (writer->places[i].shard == shard) writer->found += target_bytes(&writer->p->targets[i]);
    return true;
}

static enum status fill_shard(struct import_writer *writer, int shard, const char *path,
                              struct error *e) {
    struct tensor_file *file;
    struct error closing;
    enum status status =
        tensor_file_open(&file, path, writer->specs[shard], writer->n_specs[shard], e);
    if (status) return status;
    for (int i = 0; i < writer->p->n && status == STATUS_OK; i++)
        if (writer->places[i].shard == shard) status = write_target(writer, file, i, e);
    enum status closed = tensor_file_close(file, &closing);
    return status == STATUS_OK && closed ? error_set(e, closed, "%s", closing.text) : status;
}

/* A file gets its name when all of it is on the disk. */
static enum status write_shard(struct import_writer *writer, int shard, struct error *e) {
    struct buffer path = {0}, part = {0};
    buffer_printf(&path, "%s/", writer->folder);
    shard_name(&path, writer, shard);
    buffer_printf(&part, "%s.part", path.data);
    enum status status = STATUS_OK;
    if (!is_complete(writer, shard, path.data)) {
        status = fill_shard(writer, shard, part.data, e);
        if (status == STATUS_OK && rename(part.data, path.data) != 0)
            status = error_errno(e, "%s", path.data);
    }
    buffer_free(&path);
    buffer_free(&part);
    return status;
}

/* model.safetensors.index.json: the file of each tensor. */
static enum status write_index(const struct import_writer *writer, const struct output *out,
                               struct error *e) {
    struct buffer text = {0};
    struct json_writer json;
    put_begin_indented(&json, &text, 2);
    put_object(&json);
    put_key_object(&json, "metadata");
    put_key_int(&json, "total_size", (int64_t)writer->written);
    put_object_end(&json);
    put_key_object(&json, "weight_map");
    for (int shard = 0; shard < writer->n_shards; shard++) {
        struct buffer name = {0};
        shard_name(&name, writer, shard);
        for (int i = 0; i < writer->n_specs[shard]; i++)
            put_key_string(&json, writer->specs[shard][i].name, name.data);
        buffer_free(&name);
    }
    put_object_end(&json);
    put_object_end(&json);
    enum status status = output_write(out, "model.safetensors.index.json", &text, e);
    buffer_free(&text);
    return status;
}

/* Memory for a block of rows as they are read, and as they are written. */
static enum status take_blocks(struct import_writer *writer, struct error *e) {
    size_t most = BLOCK_BYTES, planes[MATRIX_PLANES] = {0};
    for (int i = 0; i < writer->p->n; i++) {
        const struct import_target *target = &writer->p->targets[i];
        size_t row = (size_t)columns_of(target) * element_size(target);
        if (row > most) most = row;
        for (int k = 0; k < planes_of(target->to) && target->to != target->type; k++) {
            size_t bytes = (size_t)rows_at_once(target) * plane_row_bytes(target, k);
            if (bytes > planes[k]) planes[k] = bytes;
        }
    }
    writer->block = malloc(most);
    bool enough = writer->block != NULL;
    for (int k = 0; k < MATRIX_PLANES; k++) {
        writer->rows.planes[k] = planes[k] ? malloc(planes[k]) : NULL;
        enough = enough && (planes[k] == 0 || writer->rows.planes[k]);
    }
    return enough ? STATUS_OK
                  : error_set(e, STATUS_NO_MEMORY,
                              "no memory for %zu bytes and as they are written", most);
}

/* How far the conversion is from what was read. */
static void report_types(const struct import_writer *writer) {
    int converted = 0;
    for (int i = 0; i < writer->p->n; i++)
        converted += writer->p->targets[i].to != writer->p->targets[i].type;
    if (writer->found > 0)
        line_print(stdout, "%.2f of %.2f GB were there already", 1e-9 * (double)writer->found,
                   1e-9 * (double)writer->total);
    if (converted == 0) return;
    line_print(stdout,
               "%d tensors converted, relative error %.3f %%; %d kept as they are; %.2f MB before, "
               "%.2f MB after",
               converted, 100 * deviation_relative(&writer->rows.deviation),
               writer->p->n - converted, 1e-6 * (double)writer->total,
               1e-6 * (double)writer->written);
}

static void writer_free(struct import_writer *writer) {
    for (int s = 0; s < writer->n_shards; s++) {
        for (int i = 0; i < writer->n_specs[s]; i++)
            free((void *)(uintptr_t)writer->specs[s][i].name);
        free(writer->specs[s]);
    }
    for (int k = 0; k < MATRIX_PLANES; k++) free(writer->rows.planes[k]);
    free(writer->specs);
    free(writer->n_specs);
    free(writer->places);
    free(writer->block);
}

enum status import_write(const struct import_plan *plan, const struct output *out,
                         struct error *e) {
    struct import_writer writer = {
        .p = plan, .folder = out->partial, .began = time_now(), .progress = isatty(STDERR_FILENO)};
    writer.places = xcalloc((size_t)plan->n + 1, sizeof *writer.places);
    place_targets(&writer);
    enum status status = take_blocks(&writer, e);
    for (int s = 0; s < writer.n_shards && status == STATUS_OK; s++)
        status = write_shard(&writer, s, e);
    if (status == STATUS_OK && writer.n_shards > 1) status = write_index(&writer, out, e);
    if (status == STATUS_OK) report_types(&writer);
    writer_free(&writer);
    return status;
}
