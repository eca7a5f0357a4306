/* retrieval/index/faiss_file.c: a bounded reader of FAISS' files. See faiss_file.h. Numbers are
 * little endian and lie without gaps; a vector is its length, u64, and its elements. */
#include "retrieval/index/faiss_file.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 4,            /* a refined, transformed inverted file has its centres in a graph */
    MAX_BEAM = 1 << 16,       /* efSearch: FAISS allocates a heap of so many */
    MAX_LEVELS = 64,          /* of a graph */
    MAX_CODE_BITS = 16,       /* of a product quantiser */
    METRIC_OF_COLLECTIONS = 0 /* METRIC_INNER_PRODUCT */
};

/* The first failure stays in *e; from then on every read gives zeros. */
struct faiss_reader {
    struct faiss_file file;
    size_t at;
    struct error *e;
    enum status status;
};

/* The kind that an index, or a part of one, has to be of. */
struct faiss_shape {
    int64_t count;
    int dim;
};

static void refuse(struct faiss_reader *reader, const char *what) {
    if (reader->status) return;
    reader->status =
        error_set(reader->e, STATUS_CORRUPT, "%s: at byte %zu: %s; build the collection again",
                  reader->file.name, reader->at, what);
}

static bool expect(struct faiss_reader *reader, bool ok, const char *what) {
    if (!ok) refuse(reader, what);
    return reader->status == STATUS_OK;
}

/* The next bytes, or NULL when there are fewer. */
static const uint8_t *take(struct faiss_reader *reader, size_t size) {
    if (!expect(reader, size <= reader->file.size - reader->at, "the file ends too early"))
        return NULL;
    const uint8_t *bytes = reader->file.data + reader->at;
    reader->at += size;
    return bytes;
}

static uint64_t take_number(struct faiss_reader *reader, size_t size) {
    uint64_t number = 0;
    const uint8_t *bytes = take(reader, size);
    if (bytes) memcpy(&number, bytes, size);
    return number;
}

static uint32_t take_u32(struct faiss_reader *reader) {
    return (uint32_t)take_number(reader, sizeof(uint32_t));
}
static int32_t take_i32(struct faiss_reader *reader) { return (int32_t)take_u32(reader); }
static uint64_t take_u64(struct faiss_reader *reader) {
    return take_number(reader, sizeof(uint64_t));
}

static bool take_bool(struct faiss_reader *reader) {
    uint64_t byte = take_number(reader, 1);
    expect(reader, byte <= 1, "a flag is neither 0 nor 1");
    return byte == 1;
}

static float float_at(const uint8_t *bytes, size_t i) {
    float f;
    memcpy(&f, bytes + i * sizeof f, sizeof f);
    return f;
}

static int32_t i32_at(const uint8_t *bytes, size_t i) {
    int32_t n;
    memcpy(&n, bytes + i * sizeof n, sizeof n);
    return n;
}

static uint64_t u64_at(const uint8_t *bytes, size_t i) {
    uint64_t n;
    memcpy(&n, bytes + i * sizeof n, sizeof n);
    return n;
}

/* A vector of elements of `size` bytes: its bytes, and how many elements in *n; NULL after a
 * failure. */
static const uint8_t *take_vector(struct faiss_reader *reader, size_t size, uint64_t *n) {
    *n = take_u64(reader);
    if (!expect(reader, *n <= (reader->file.size - reader->at) / size,
                "a list is longer than the file"))
        *n = 0;
    return take(reader, (size_t)*n * size);
}

/* One that has to have n elements. */
static const uint8_t *take_exactly(struct faiss_reader *reader, size_t size, uint64_t n,
                                   const char *what) {
    uint64_t found;
    const uint8_t *bytes = take_vector(reader, size, &found);
    return expect(reader, found == n, what) ? bytes : NULL;
}

/* Vectors have unit length, and what FAISS derives of them is of about that size. Anything far
 * larger can sum up to infinities and NaN, which have no order; FAISS' heaps and graphs rely on
 * one. */
#define LARGEST_BITS 0x49742400u /* of 1e6f */

static void check_finite(struct faiss_reader *reader, const uint8_t *floats, uint64_t n) {
    uint32_t worst = 0;
    for (uint64_t i = 0; floats && i < n; i++) {
        uint32_t bits = (uint32_t)i32_at(floats, i) & 0x7fffffff;
        worst = bits > worst ? bits : worst;
    }
    expect(reader, worst <= LARGEST_BITS, "a number is far from those of unit vectors");
}

static void check_floats(struct faiss_reader *reader, uint64_t n, const char *what) {
    check_finite(reader, take_exactly(reader, sizeof(float), n, what), n);
}

/* FourCC as FAISS writes it. */
#define KIND(a, b, c, d) \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

static void check_header(struct faiss_reader *reader, struct faiss_shape shape) {
    int32_t dim = take_i32(reader);
    int64_t count = (int64_t)take_u64(reader);
    take_u64(reader); /* two numbers that FAISS skips */
    take_u64(reader);
    bool trained = take_bool(reader);
    uint32_t metric = take_u32(reader);
    if (reader->status == STATUS_OK && (dim != shape.dim || count != shape.count || !trained))
        reader->status =
            error_set(reader->e, STATUS_CORRUPT,
                      "%s: an index of %lld vectors of %d numbers%s, expected %lld of %d; build "
                      "the collection "
                      "again",
                      reader->file.name, (long long)count, dim, trained ? "" : ", not trained",
                      (long long)shape.count, shape.dim);
    expect(reader, metric == METRIC_OF_COLLECTIONS, "the metric is not inner product");
}

/* Bytes of a vector's code; 0 after a failure. */
static uint64_t check_product_quantizer(struct faiss_reader *reader, int dim) {
    uint64_t d = take_u64(reader), parts = take_u64(reader), bits = take_u64(reader);
    if (!expect(reader, d == (uint64_t)dim && parts >= 1 && parts <= d && d % parts == 0,
                "the quantiser's parts") ||
        !expect(reader, bits >= 1 && bits <= MAX_CODE_BITS, "the quantiser's bits"))
        return 0;
    check_floats(reader, d << bits, "the quantiser's centroids");
    return (bits * parts + 7) / 8;
}

static uint64_t check_scalar_quantizer(struct faiss_reader *reader, int dim) {
    enum { BITS_8, BITS_4, BITS_8_UNIFORM, BITS_4_UNIFORM, HALF, BITS_8_DIRECT, BITS_6, TYPES };
    uint64_t d = (uint64_t)dim;
    const uint64_t code_sizes[TYPES] = {d, (d + 1) / 2, d, (d + 1) / 2, 2 * d, d, (6 * d + 7) / 8};
    const uint64_t trained[TYPES] = {2 * d, 2 * d, 2, 2, 0, 0, 2 * d};
    uint32_t type = take_u32(reader);
    take_u32(reader); /* how the range was chosen, and its parameter: of training only */
    take_u32(reader);
    uint64_t of_dim = take_u64(reader), code_size = take_u64(reader);
    if (!expect(reader, type < TYPES, "the scalar quantiser's type") ||
        !expect(reader, of_dim == d && code_size == code_sizes[type],
                "the scalar quantiser's sizes"))
        return 0;
    check_floats(reader, trained[type], "the scalar quantiser's ranges");
    return code_size;
}

static void check_flat(struct faiss_reader *reader, struct faiss_shape shape) {
    check_header(reader, shape);
    if (reader->status) return;
    check_floats(reader, (uint64_t)shape.count * (uint64_t)shape.dim,
                 "the vectors are not one a chunk");
}

static void check_codes(struct faiss_reader *reader, struct faiss_shape shape, uint64_t code_size) {
    if (reader->status) return;
    uint64_t n;
    take_vector(reader, 1, &n);
    expect(reader, n / code_size == (uint64_t)shape.count && n % code_size == 0,
           "the codes are not one a chunk");
}

static void check_scalar(struct faiss_reader *reader, struct faiss_shape shape) {
    check_header(reader, shape);
    check_codes(reader, shape, check_scalar_quantizer(reader, shape.dim));
}

static void check_product(struct faiss_reader *reader, struct faiss_shape shape) {
    check_header(reader, shape);
    check_codes(reader, shape, check_product_quantizer(reader, shape.dim));
    /* How it is searched: 0 is by the codes, the others need more than we make. The last is unused
     * then. */
    expect(reader, take_u32(reader) == 0, "the codes are searched in another way");
    expect(reader, !take_bool(reader), "the codes are searched in another way");
    take_u32(reader);
}

/* A graph: node i has levels[i] levels, and on each a range of links. */
struct faiss_graph {
    const uint8_t *widths;  /* i32 [n_widths]: links of a node up to each level, ascending from 0 */
    const uint8_t *levels;  /* i32 [count] */
    const uint8_t *offsets; /* u64 [count + 1] into links */
    const uint8_t *links;   /* i32, ended by -1 where a range is not full */
    uint64_t n_widths, n_links;
};

static void check_widths(struct faiss_reader *reader, const struct faiss_graph *graph) {
    if (!expect(
            reader,
            graph->n_widths >= 2 && graph->n_widths <= MAX_LEVELS && i32_at(graph->widths, 0) == 0,
            "the graph's levels"))
        return;
    for (uint64_t i = 1; i < graph->n_widths; i++)
        expect(reader, i32_at(graph->widths, i) >= i32_at(graph->widths, i - 1),
               "the graph's levels shrink");
}

/* Links of one level lead to nodes that have this level. */
static void check_links(struct faiss_reader *reader, const struct faiss_graph *graph, int64_t count,
                        uint64_t node) {
    uint64_t first = u64_at(graph->offsets, node);
    for (int32_t level = 0; level < i32_at(graph->levels, node) && reader->status == STATUS_OK;
         level++) {
        uint64_t begin = first + (uint64_t)i32_at(graph->widths, (size_t)level);
        uint64_t end = first + (uint64_t)i32_at(graph->widths, (size_t)level + 1);
        for (uint64_t i = begin; i < end; i++) {
            int32_t to = i32_at(graph->links, i);
            if (to == -1) break;
            if (!expect(reader, to >= 0 && to < count && i32_at(graph->levels, (size_t)to) > level,
                        "a link of the graph leads nowhere"))
                return;
        }
    }
}

static void check_nodes(struct faiss_reader *reader, const struct faiss_graph *graph,
                        int64_t count) {
    uint64_t next = 0;
    for (uint64_t i = 0; i < (uint64_t)count && reader->status == STATUS_OK; i++) {
        int32_t levels = i32_at(graph->levels, i);
        if (!expect(reader, levels >= 1 && (uint64_t)levels < graph->n_widths, "a node's levels") ||
            !expect(reader, u64_at(graph->offsets, i) == next,
                    "a node's links do not follow those before"))
            return;
        next += (uint64_t)i32_at(graph->widths, (size_t)levels);
    }
    expect(reader, u64_at(graph->offsets, (size_t)count) == next && next == graph->n_links,
           "the graph has more links, or fewer");
    for (uint64_t i = 0; i < (uint64_t)count && reader->status == STATUS_OK; i++)
        check_links(reader, graph, count, i);
}

/* Every node has at least one level, so levels and offsets are as long as the file lets count be.
 */
static void check_graph(struct faiss_reader *reader, int64_t count) {
    struct faiss_graph graph;
    uint64_t probabilities;
    take_vector(reader, sizeof(double), &probabilities); /* of building */
    graph.widths = take_vector(reader, sizeof(int32_t), &graph.n_widths);
    graph.levels = take_exactly(reader, sizeof(int32_t), (uint64_t)count,
                                "the graph's nodes are not one a chunk");
    graph.offsets = take_exactly(reader, sizeof(uint64_t), (uint64_t)count + 1,
                                 "the graph's nodes are not one a chunk");
    graph.links = take_vector(reader, sizeof(int32_t), &graph.n_links);
    if (reader->status) return;
    check_widths(reader, &graph);
    if (reader->status == STATUS_OK) check_nodes(reader, &graph, count);

    int32_t entry = take_i32(reader), top = take_i32(reader);
    take_i32(reader); /* efConstruction */
    int32_t beam = take_i32(reader), upper_beam = take_i32(reader);
    if (reader->status) return;
    expect(
        reader,
        entry >= 0 && entry < count && top >= 0 && i32_at(graph.levels, (size_t)entry) == top + 1,
        "the graph's entry");
    expect(reader, beam >= 1 && beam <= MAX_BEAM && upper_beam == 1, "the width of a search");
}

static void check_index(struct faiss_reader *reader, struct faiss_shape shape, int depth);

static uint32_t next_kind(const struct faiss_reader *reader) {
    struct faiss_reader ahead = *reader;
    struct error ignored;
    ahead.e = &ignored;
    return take_u32(&ahead);
}

/* `storage` keeps the vectors of the graph. */
static void check_hnsw(struct faiss_reader *reader, struct faiss_shape shape, uint32_t storage,
                       int depth) {
    check_header(reader, shape);
    if (reader->status) return;
    check_graph(reader, shape.count);
    expect(reader, next_kind(reader) == storage, "the graph's vectors are of another kind");
    check_index(reader, shape, depth - 1);
}

/* Sizes of an inverted file's lists: of all, or as pairs of list and size of those that are not
 * empty. NULL after a failure; the caller frees it. */
static uint64_t *take_list_sizes(struct faiss_reader *reader, uint64_t n_lists, uint64_t count) {
    uint32_t kind = take_u32(reader);
    uint64_t n, *sizes = calloc((size_t)n_lists, sizeof *sizes);
    const uint8_t *numbers = take_vector(reader, sizeof(uint64_t), &n);
    if (sizes == NULL && reader->status == STATUS_OK)
        reader->status = error_set(reader->e, STATUS_NO_MEMORY, "%s: %llu lists", reader->file.name,
                                   (unsigned long long)n_lists);
    if (kind == KIND('f', 'u', 'l', 'l')) {
        expect(reader, n == n_lists, "the sizes are not one a list");
        for (uint64_t i = 0; reader->status == STATUS_OK && i < n; i++)
            sizes[i] = u64_at(numbers, i);
    } else if (expect(reader, kind == KIND('s', 'p', 'r', 's') && n % 2 == 0,
                      "the sizes of the lists")) {
        for (uint64_t i = 0; reader->status == STATUS_OK && i < n; i += 2)
            if (expect(reader, u64_at(numbers, i) < n_lists, "a list that is not there"))
                sizes[u64_at(numbers, i)] = u64_at(numbers, i + 1);
    }
    uint64_t left = count;
    for (uint64_t i = 0; reader->status == STATUS_OK && i < n_lists; i++)
        if (expect(reader, sizes[i] <= left, "the lists hold more than all vectors"))
            left -= sizes[i];
    expect(reader, left == 0, "the lists hold fewer than all vectors");
    if (reader->status == STATUS_OK) return sizes;
    free(sizes);
    return NULL;
}

/* One list: codes, then ids, each of which no list had before. */
static void check_list(struct faiss_reader *reader, uint64_t size, uint64_t code_size, bool floats,
                       struct faiss_shape shape, uint8_t *seen) {
    if (!expect(reader, size <= (reader->file.size - reader->at) / (code_size + sizeof(int64_t)),
                "a list is longer than the file"))
        return;
    const uint8_t *codes = take(reader, (size_t)(size * code_size)),
                  *ids = take(reader, (size_t)size * sizeof(int64_t));
    if (floats) check_finite(reader, codes, size * (uint64_t)shape.dim);
    for (uint64_t i = 0; i < size && reader->status == STATUS_OK; i++) {
        uint64_t id = u64_at(ids, i);
        if (!expect(reader, id < (uint64_t)shape.count, "an id that no chunk has") ||
            !expect(reader, (seen[id / 8] >> id % 8 & 1) == 0, "an id that is there twice"))
            return;
        seen[id / 8] |= (uint8_t)(1 << id % 8);
    }
}

static void check_lists(struct faiss_reader *reader, struct faiss_shape shape, uint64_t n_lists,
                        uint64_t code_size, bool floats) {
    expect(reader, take_u32(reader) == KIND('i', 'l', 'a', 'r'),
           "the inverted lists are of another kind");
    expect(reader, take_u64(reader) == n_lists && take_u64(reader) == code_size,
           "the sizes of the inverted lists");
    if (reader->status) return;
    uint64_t *sizes = take_list_sizes(reader, n_lists, (uint64_t)shape.count);
    uint8_t *seen = xcalloc((size_t)shape.count / 8 + 1, 1);
    for (uint64_t i = 0; i < n_lists && reader->status == STATUS_OK; i++)
        if (sizes[i] > 0) check_list(reader, sizes[i], code_size, floats, shape, seen);
    free(seen);
    free(sizes);
}

/* Reads the beginning that inverted files of all kinds share; returns the number of lists. */
static uint64_t check_inverted_header(struct faiss_reader *reader, struct faiss_shape shape,
                                      int depth) {
    check_header(reader, shape);
    uint64_t n_lists = take_u64(reader), n_probes = take_u64(reader);
    if (!expect(reader,
                n_lists >= 1 && n_lists <= INT32_MAX && n_probes >= 1 && n_probes <= n_lists,
                "the lists to search"))
        return 0;
    uint32_t kind = next_kind(reader);
    expect(reader, kind == KIND('I', 'x', 'F', 'I') || kind == KIND('I', 'H', 'N', 'f'),
           "the centres are of another kind");
    check_index(reader, (struct faiss_shape){.count = (int64_t)n_lists, .dim = shape.dim},
                depth - 1);
    expect(reader, take_number(reader, 1) == 0 && take_u64(reader) == 0, "a map from ids to lists");
    return n_lists;
}

static void check_inverted_flat(struct faiss_reader *reader, struct faiss_shape shape, int depth) {
    uint64_t n_lists = check_inverted_header(reader, shape, depth);
    check_lists(reader, shape, n_lists, (uint64_t)shape.dim * sizeof(float), true);
}

static void check_inverted_scalar(struct faiss_reader *reader, struct faiss_shape shape,
                                  int depth) {
    uint64_t n_lists = check_inverted_header(reader, shape, depth),
             code_size = check_scalar_quantizer(reader, shape.dim);
    expect(reader, take_u64(reader) == code_size, "the size of a code");
    take_bool(reader); /* whether codes are of differences to the centre */
    check_lists(reader, shape, n_lists, code_size, false);
}

static void check_inverted_product(struct faiss_reader *reader, struct faiss_shape shape,
                                   int depth) {
    uint64_t n_lists = check_inverted_header(reader, shape, depth);
    take_bool(reader); /* whether codes are of differences to the centre */
    uint64_t given = take_u64(reader), code_size = check_product_quantizer(reader, shape.dim);
    expect(reader, given == code_size, "the size of a code");
    check_lists(reader, shape, n_lists, code_size, false);
}

/* A matrix before an index: a rotation, which may drop dimensions. */
static int check_rotation(struct faiss_reader *reader, int dim) {
    uint32_t kind = take_u32(reader);
    if (!expect(reader, kind == KIND('L', 'T', 'r', 'a') || kind == KIND('r', 'r', 'o', 't'),
                "the transform's kind"))
        return 0;
    bool has_bias = take_bool(reader);
    uint64_t n_matrix, n_bias;
    const uint8_t *matrix = take_vector(reader, sizeof(float), &n_matrix);
    const uint8_t *bias = take_vector(reader, sizeof(float), &n_bias);
    int32_t in = take_i32(reader), out = take_i32(reader);
    bool trained = take_bool(reader);
    if (!expect(reader, in == dim && out >= 1 && out <= in && trained, "the transform's sizes") ||
        !expect(
            reader,
            n_matrix == (uint64_t)in * (uint64_t)out && n_bias == (has_bias ? (uint64_t)out : 0),
            "the transform's matrix"))
        return 0;
    check_finite(reader, matrix, n_matrix);
    check_finite(reader, bias, n_bias);
    return out;
}

static void check_transformed(struct faiss_reader *reader, struct faiss_shape shape, int depth) {
    check_header(reader, shape);
    if (!expect(reader, take_i32(reader) == 1, "more than one transform")) return;
    struct faiss_shape inner = {.count = shape.count, .dim = check_rotation(reader, shape.dim)};
    if (reader->status == STATUS_OK) check_index(reader, inner, depth - 1);
}

/* More results than asked for, put in order by the vectors themselves. */
static void check_refined(struct faiss_reader *reader, struct faiss_shape shape, int depth) {
    check_header(reader, shape);
    check_index(reader, shape, depth - 1);
    expect(reader, next_kind(reader) == KIND('I', 'x', 'F', 'I'),
           "the refining vectors are of another kind");
    check_index(reader, shape, depth - 1);
    const uint8_t *factor = take(reader, sizeof(float));
    if (factor)
        expect(reader, float_at(factor, 0) >= 1 && float_at(factor, 0) <= 64,
               "the factor of refining");
}

static void refuse_kind(struct faiss_reader *reader, uint32_t kind) {
    char name[5] = {0};
    for (int i = 0; i < 4; i++) {
        uint8_t c = (uint8_t)(kind >> 8 * i);
        name[i] = c > ' ' && c < 0x7f ? (char)c : '?';
    }
    if (reader->status) return;
    reader->status = error_set(reader->e, STATUS_UNSUPPORTED,
                               "%s: a FAISS index of kind \"%s\" is not read; build the collection "
                               "again with --index, kinds "
                               "are " FAISS_FILE_KINDS,
                               reader->file.name, name);
}

static void check_index(struct faiss_reader *reader, struct faiss_shape shape, int depth) {
    if (!expect(reader, depth > 0, "indexes in indexes")) return;
    uint32_t kind = take_u32(reader);
    if (reader->status) return;
    switch (kind) {
        case KIND('I', 'x', 'F', 'I'): check_flat(reader, shape); break;
        case KIND('I', 'x', 'S', 'Q'): check_scalar(reader, shape); break;
        case KIND('I', 'x', 'P', 'q'): check_product(reader, shape); break;
        case KIND('I', 'H', 'N', 'f'):
            check_hnsw(reader, shape, KIND('I', 'x', 'F', 'I'), depth);
            break;
        case KIND('I', 'H', 'N', 's'):
            check_hnsw(reader, shape, KIND('I', 'x', 'S', 'Q'), depth);
            break;
        case KIND('I', 'w', 'F', 'l'): check_inverted_flat(reader, shape, depth); break;
        case KIND('I', 'w', 'S', 'q'): check_inverted_scalar(reader, shape, depth); break;
        case KIND('I', 'w', 'P', 'Q'): check_inverted_product(reader, shape, depth); break;
        case KIND('I', 'x', 'P', 'T'): check_transformed(reader, shape, depth); break;
        case KIND('I', 'x', 'R', 'F'): check_refined(reader, shape, depth); break;
        default: refuse_kind(reader, kind);
    }
}

enum status faiss_file_check(struct faiss_file file, int64_t count, int dim, struct error *e) {
    struct faiss_reader reader = {.file = file, .e = e};
    if (count < 0 || count > INT64_MAX / ((int64_t)sizeof(float) * max_int(1, dim)) || dim < 1)
        return error_set(e, STATUS_INVALID, "%s: %lld vectors of %d numbers", file.name,
                         (long long)count, dim);
    check_index(&reader, (struct faiss_shape){.count = count, .dim = dim}, MAX_DEPTH);
    expect(&reader, reader.at == file.size, "bytes behind the index");
    return reader.status;
}
