/* tools/index/index_neighbors.c: retro-index neighbors: the nearest chunks of many queries at once,
 * for training and evaluation. Training needs them for every chunk of the collection itself and
 * never from the chunk's own document. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/json/json_value.h"
#include "config/json/json_writer.h"
#include "tools/index/index.h"

/* A batch is large because an inverted file is read from one end to the other for every range of
 * vectors. */
enum { BATCH = 4096, BATCH_TEXTS = 256, SPARE = 32 };

/* One query, without its vector. */
struct query {
    int64_t document; /* of the collection, -1: another */
    char *path;       /* of another document */
};

struct neighbor_search {
    const struct neighbors_options *o;
    const struct disk_generation *c;
    const struct embedder *embedder;
    struct query *queries; /* [BATCH], of the batch at hand */
    float *vectors;        /* [BATCH, dim] */
    /* Results, of all queries so far: [n, k] */
    int64_t *ids;
    float *similarities;
    size_t n, capacity;
};

static enum status reserve(struct neighbor_search *search, size_t n, struct error *e) {
    size_t k = (size_t)search->o->k, capacity = search->capacity ? search->capacity : BATCH,
           entries, bytes;
    while (capacity < n) capacity *= 2;
    if (mul_overflows(capacity, k, &entries) || mul_overflows(entries, sizeof *search->ids, &bytes))
        return error_set(e, STATUS_TOO_LARGE, "%zu queries for %zu neighbours", n, k);
    if (capacity == search->capacity) return STATUS_OK;
    int64_t *ids = realloc(search->ids, bytes);
    if (ids) search->ids = ids;
    float *similarities = realloc(search->similarities, entries * sizeof *similarities);
    if (similarities) search->similarities = similarities;
    if (ids == NULL || similarities == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%zu neighbours", entries);
    search->capacity = capacity;
    return STATUS_OK;
}

static bool excluded(const struct neighbor_search *search, const struct query *query, int64_t id) {
    if (!search->o->exclude_same_document) return false;
    struct chunk chunk = disk_generation_chunk(search->c, id);
    return query->path ? strcmp(query->path, chunk.path) == 0 : query->document == chunk.document;
}

/* Copies the first k of `wide` results that may stay, fills the rest with none; true when it found
 * k. */
static bool keep(const struct neighbor_search *search, int query, int wide, const int64_t *ids,
                 const float *similarities) {
    int k = search->o->k, kept = 0;
    size_t row = (search->n + (size_t)query) * (size_t)k;
    for (int i = 0; i < wide && kept < k && ids[i] >= 0; i++) {
        if (excluded(search, &search->queries[query], ids[i])) continue;
        search->ids[row + (size_t)kept] = ids[i];
        search->similarities[row + (size_t)kept] = similarities[i];
        kept++;
    }
    for (int i = kept; i < k; i++) {
        search->ids[row + (size_t)i] = -1;
        search->similarities[row + (size_t)i] = -2;
    }
    return kept == k;
}

/* One query again and again with twice as many results, until k of other documents are among them
 * or there are no more: a query from a long document can have very many of its own document before
 * the first of another. */
static enum status search_wider(const struct neighbor_search *search, int query, int wide,
                                struct error *e) {
    const struct index *index = disk_generation_index(search->c);
    enum status status = STATUS_OK;
    for (bool found = false; !found && wide < index->count && status == STATUS_OK;) {
        wide = (int)(index->count / 2 < wide ? index->count : 2 * wide);
        int64_t *ids = xmalloc((size_t)wide * sizeof *ids);
        float *similarities = xmalloc((size_t)wide * sizeof *similarities);
        const float *vector = search->vectors + (size_t)query * (size_t)index->dim;
        status = index_search(index, (struct index_query){.vectors = vector, .n = 1, .k = wide},
                              ids, similarities, e);
        /* An inverted file does not visit every list: fewer than asked for is all that it will
         * find. */
        if (status == STATUS_OK)
            found = keep(search, query, wide, ids, similarities) || ids[wide - 1] < 0;
        free(ids);
        free(similarities);
    }
    return status;
}

/* Searches the n queries of the batch at hand and appends their results. */
static enum status search_batch(struct neighbor_search *search, int n, struct error *e) {
    const struct index *index = disk_generation_index(search->c);
    int wide = search->o->k + (search->o->exclude_same_document ? SPARE : 0);
    if (wide > index->count) wide = max_int(1, (int)index->count);
    size_t results = (size_t)n * (size_t)wide;
    int64_t *ids = xmalloc((results + 1) * sizeof *ids);
    float *similarities = xmalloc((results + 1) * sizeof *similarities);
    enum status status = reserve(search, search->n + (size_t)n, e);
    if (status == STATUS_OK)
        status = index_search(
            index,
            (struct index_query){.vectors = search->vectors, .n = n, .k = wide, .bulk = true}, ids,
            similarities, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        size_t row = (size_t)i * (size_t)wide;
        if (!keep(search, i, wide, ids + row, similarities + row) &&
            ids[row + (size_t)wide - 1] >= 0)
            status = search_wider(search, i, wide, e);
    }
    search->n += (size_t)n;
    free(ids);
    free(similarities);
    return status;
}

static enum status search_collection(struct neighbor_search *search, struct error *e) {
    int64_t count = disk_generation_info(search->c)->n_chunks;
    enum status status = STATUS_OK;
    for (int64_t first = 0; first < count && status == STATUS_OK; first += BATCH) {
        int n = (int)(count - first < BATCH ? count - first : BATCH);
        for (int i = 0; i < n; i++)
            search->queries[i] =
                (struct query){.document = disk_generation_chunk(search->c, first + i).document};
        status = index_vectors(disk_generation_index(search->c), first, n, search->vectors, e);
        if (status == STATUS_OK) status = search_batch(search, n, e);
    }
    return status;
}

/* Queries of a file, whose texts stay until their batch is embedded. */
struct query_lines {
    struct neighbor_search *search;
    struct text_span texts[BATCH_TEXTS]; /* owned */
    int n;
};

static void forget_lines(struct query_lines *lines) {
    for (int i = 0; i < lines->n; i++) {
        free((char *)(uintptr_t)lines->texts[i].text);
        free(lines->search->queries[i].path);
    }
    lines->n = 0;
}

static enum status search_lines(struct query_lines *lines, struct error *e) {
    struct neighbor_search *search = lines->search;
    struct embed_request request = {
        .texts = lines->texts, .n = lines->n, .role = EMBED_QUERY, .vectors = search->vectors};
    enum status status = lines->n ? embedder_embed(search->embedder, &request, e) : STATUS_OK;
    if (status == STATUS_OK && lines->n) status = search_batch(search, lines->n, e);
    forget_lines(lines);
    return status;
}

static enum status add_line(void *context, const struct json *record, struct error *e) {
    struct query_lines *lines = context;
    struct text_span text = json_text(json_member(record, "text"));
    const char *document = json_word(json_member(record, "document"));
    if (document == NULL || text.text == NULL)
        return error_set(e, STATUS_INVALID, "expected {\"document\": \"...\", \"text\": \"...\"}");
    lines->search->queries[lines->n] = (struct query){.document = -1, .path = xstrdup(document)};
    lines->texts[lines->n] = (struct text_span){xstrndup(text.text, text.size), text.size};
    lines->n++;
    return lines->n == BATCH_TEXTS ? search_lines(lines, e) : STATUS_OK;
}

static enum status search_file(struct neighbor_search *search, struct error *e) {
    struct query_lines lines = {.search = search};
    enum status status = json_parse_lines(search->o->queries, add_line, &lines, e);
    if (status == STATUS_OK) status = search_lines(&lines, e);
    forget_lines(&lines);
    return status;
}

/* The file that is written: one beside the one asked for, which takes its name when it is whole;
 * or, where the name belongs to a device or a pipe, that itself, which stays whatever happens. */
struct neighbor_output {
    char *path;   /* through links */
    char *beside; /* NULL: written in place */
    FILE *file;
};

static void output_free(struct neighbor_output *output) {
    free(output->path);
    free(output->beside);
}

static enum status output_create(struct neighbor_output *output, const char *path,
                                 struct error *e) {
    struct stat st;
    struct buffer name = {0};
    char *real = realpath(path, NULL);
    *output = (struct neighbor_output){.path = real ? real : xstrdup(path)};
    bool in_place = stat(output->path, &st) == 0 && !S_ISREG(st.st_mode);
    if (!in_place) {
        buffer_printf(&name, "%s.%ld.part", output->path, (long)getpid());
        output->beside = name.data;
    }
    const char *opened = output->beside ? output->beside : output->path;
    output->file = fopen(opened, output->beside ? "wbx" : "wb");
    if (output->file) return STATUS_OK;
    enum status status = error_errno(e, "%s: create", opened);
    output_free(output);
    return status;
}

/* `written` ends the file: it gets its name, or what was made of it goes. */
static enum status output_close(struct neighbor_output *output, enum status written,
                                struct error *e) {
    enum status status = written;
    if (fclose(output->file) != 0 && status == STATUS_OK)
        status = error_errno(e, "%s: write", output->path);
    if (output->beside && status == STATUS_OK && rename(output->beside, output->path) != 0)
        status = error_errno(e, "%s: rename", output->path);
    if (output->beside && status) remove(output->beside);
    output_free(output);
    return status;
}

static enum status write_results(const struct neighbor_search *search, struct error *e) {
    struct {
        char magic[8];
        uint32_t version, k;
        uint64_t n, n_chunks;
    } header = {.version = 1, .k = (uint32_t)search->o->k, .n = search->n};
    _Static_assert(sizeof header == 32, "written as it is");
    memcpy(header.magic, "RETRONBR", sizeof header.magic);
    header.n_chunks = (uint64_t)disk_generation_info(search->c)->n_chunks;
    struct neighbor_output out;
    enum status status = output_create(&out, search->o->out, e);
    if (status) return status;
    size_t entries = search->n * (size_t)search->o->k;
    bool written =
        fwrite(&header, sizeof header, 1, out.file) == 1 &&
        (entries == 0 || (fwrite(search->ids, sizeof *search->ids, entries, out.file) == entries &&
                          fwrite(search->similarities, sizeof *search->similarities, entries,
                                 out.file) == entries));
    if (!written) status = error_errno(e, "%s: write", search->o->out);
    return output_close(&out, status, e);
}

static void report(const struct neighbor_search *search) {
    struct buffer text = {0};
    struct json_writer w;
    if (!search->o->json) {
        line_print(stdout, "%s: %d neighbours of %zu chunks", search->o->out, search->o->k,
                   search->n);
        return;
    }
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "file", search->o->out);
    put_key_int(&w, "k", search->o->k);
    put_key_int(&w, "queries", (int64_t)search->n);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

enum status index_neighbors(const struct neighbors_options *options,
                            const struct disk_generation *generation,
                            const struct embedder *embedder, struct error *e) {
    size_t dim = (size_t)disk_generation_info(generation)->dim;
    struct neighbor_search search = {.o = options, .c = generation, .embedder = embedder};
    search.queries = xcalloc(BATCH, sizeof *search.queries);
    search.vectors = xmalloc(BATCH * dim * sizeof *search.vectors);
    enum status status = options->queries ? search_file(&search, e) : search_collection(&search, e);
    if (status == STATUS_OK) status = write_results(&search, e);
    if (status == STATUS_OK) report(&search);
    free(search.queries);
    free(search.vectors);
    free(search.ids);
    free(search.similarities);
    return status;
}
