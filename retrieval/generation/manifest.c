/* retrieval/generation/manifest.c: MANIFEST and CURRENT, the two small files that say what a
 * collection is. A MANIFEST ends with the checksum of everything before it, and every field is
 * required, so damage is found wherever it is. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/json/json_table.h"
#include "config/json/json_writer.h"
#include "retrieval/generation/generation_private.h"

static const char metric[] = "inner_product";
/* The MANIFEST's last bytes: this, 16 digits, a quote, and the closing of the object. */
static const char checksum_key[] = "  \"checksum\": \"";
static const char checksum_end[] = "\"\n}\n";
/* Bytes of a file: all numbers below are exact as doubles and as int64_t. */
#define MANIFEST_MOST ((double)((int64_t)1 << 52))

bool generation_is_exact(const char *index_factory) {
    return strcmp(index_factory, INDEX_EXACT) == 0;
}

const char *generation_file_name(enum generation_file file, const struct collection_info *info) {
    switch (file) {
        case GENERATION_FILE_TOKENS: return "chunks.tokens";
        case GENERATION_FILE_OFFSETS: return "chunks.offsets";
        case GENERATION_FILE_DOCUMENTS: return "documents";
        case GENERATION_FILE_TEXT: return "documents.text";
        case GENERATION_FILE_WORDS: return "chunks.words";
        case GENERATION_FILE_SPARSE: return "chunks.sparse";
        case GENERATION_FILE_VECTORS:
            return generation_is_exact(info->index_factory) ? "vectors.f32" : "vectors.faiss";
        case GENERATION_FILE_ORIGINALS: return "vectors.f32";
        case GENERATION_FILE_PICTURE_CHUNKS: return "pictures.chunks";
        case GENERATION_FILE_PICTURES:
            return generation_is_exact(info->pictures.index_factory) ? "pictures.f32"
                                                                     : "pictures.faiss";
        case GENERATION_FILE_COUNT: break;
    }
    CHECK(!"a collection file");
    return "";
}

bool generation_has_file(enum generation_file file, const struct collection_info *info) {
    switch (file) {
        case GENERATION_FILE_ORIGINALS: return !index_is_lossless(info->index_factory);
        case GENERATION_FILE_SPARSE: return info->sparse;
        case GENERATION_FILE_PICTURE_CHUNKS:
        case GENERATION_FILE_PICTURES: return info->pictures.n > 0;
        default: return true;
    }
}

static enum status check_checksum(const char *text, size_t size, const char *name,
                                  uint64_t *checksum, struct error *e) {
    const size_t key = sizeof checksum_key - 1, end = sizeof checksum_end - 1,
                 tail = key + 16 + end;
    if (size < tail || memcmp(text + size - tail, checksum_key, key) != 0 ||
        memcmp(text + size - end, checksum_end, end) != 0 ||
        !hash_parse(text + size - end - 16, checksum))
        return error_set(e, STATUS_CORRUPT,
                         "%s: does not end with its checksum; it is cut off or damaged", name);
    uint64_t found = hash_bytes(text, size - tail, 0);
    if (found != *checksum)
        return error_set(e, STATUS_CORRUPT,
                         "%s: checksum %016" PRIx64 ", expected %016" PRIx64 "; it is damaged",
                         name, found, *checksum);
    return STATUS_OK;
}

static enum status parse_format(struct json_reader *reader, const struct json *value,
                                void *object) {
    (void)object;
    if (json_kind(value) != JSON_KIND_INT)
        return json_fail_type(reader, json_type_words(JSON_INT), value);
    if (json_int(value) == GENERATION_FORMAT) return STATUS_OK;
    return json_fail(reader, JSON_FAULT_UNSUPPORTED,
                     "format %lld, this version reads %d; build the collection again",
                     (long long)json_int(value), GENERATION_FORMAT);
}

static const struct json_field file_fields[] = {
    {"bytes", JSON_INT64, JSON_AT(struct file_facts, bytes), .min = 1, .max = MANIFEST_MOST,
     .required = true},
    {"xxh3", JSON_HEX, JSON_AT(struct file_facts, checksum), .required = true},
};
static const struct json_table file_table = JSON_TABLE(file_fields);

/* The files' names depend on the index, which is read before. */
static enum status parse_files(struct json_reader *reader, const struct json *value, void *object) {
    struct manifest *manifest = object;
    struct json_field rows[GENERATION_FILE_COUNT];
    int n = 0;
    for (int i = 0; i < GENERATION_FILE_COUNT; i++) {
        enum generation_file file = (enum generation_file)i;
        if (!generation_has_file(file, &manifest->info)) continue;
        rows[n] = (struct json_field){.name = generation_file_name(file, &manifest->info),
                                      .type = JSON_STRUCT,
                                      .offset = (size_t)i * sizeof manifest->files[0],
                                      .table = &file_table,
                                      .required = true};
        n++;
    }
    const struct json_table table = {.fields = rows, .count = n};
    return json_table_read(reader, &table, value, manifest->files);
}

static const struct json_choice metrics[] = {{metric, 0}, {NULL, 0}};

static const struct json_field picture_fields[] = {
    {"folder", JSON_TEXT, JSON_AT(struct picture_space, embedder), .required = true},
    {"hash", JSON_HEX, JSON_AT(struct picture_space, embedder_hash), .required = true},
    {"query_prompt", JSON_TEXT, JSON_AT(struct picture_space, query_prompt), .required = true},
    {"document_prompt", JSON_TEXT, JSON_AT(struct picture_space, document_prompt),
     .required = true},
    {"dim", JSON_INT, JSON_AT(struct picture_space, dim), .min = 1, .max = COLLECTION_MAX_DIM,
     .required = true},
    {"pictures", JSON_INT64, JSON_AT(struct picture_space, n), .min = 0, .max = INT32_MAX,
     .required = true},
    {"index", JSON_TEXT, JSON_AT(struct picture_space, index_factory), .required = true},
};
static const struct json_table picture_table = JSON_TABLE(picture_fields);

/* Every field is required, but for those of sparse weights and of the pictures' embedder.
 * "checksum" has been checked before anything is parsed. */
#define AT(member) JSON_AT(struct manifest, info.member), .required = true
static const struct json_field manifest_fields[] = {
    {"format", JSON_PARSED, .parse = parse_format, .required = true},
    {"generation", JSON_INT, AT(generation), .min = 1, .max = INT32_MAX},
    {"documents", JSON_INT64, AT(n_documents), .min = 1, .max = INT32_MAX},
    {"chunks", JSON_INT64, AT(n_chunks), .min = 1,
     .max = MANIFEST_MOST / sizeof(struct chunk_record)},
    {"tokens", JSON_INT64, AT(n_tokens), .min = 1, .max = MANIFEST_MOST / sizeof(uint32_t)},
    {"chunk_length", JSON_INT, AT(chunk_length), .min = 1, .max = COLLECTION_MAX_CHUNK_LENGTH},
    {"chunks_end", JSON_CHOICE, AT(cut), .choices = chunk_cuts},
    {"context", JSON_INT, AT(context), .min = 0, .max = CHUNK_MAX_CONTEXT},
    {"overlap", JSON_INT, AT(overlap), .min = 0, .max = CHUNK_MAX_CONTEXT},
    {"eod", JSON_INT, AT(eod), .min = 0, .max = INT32_MAX},
    {"max_token", JSON_INT, AT(max_token), .min = 0, .max = INT32_MAX},
    {"dim", JSON_INT, AT(dim), .min = 1, .max = COLLECTION_MAX_DIM},
    {"metric", JSON_CHOICE, JSON_AT(struct manifest, metric), .choices = metrics, .required = true},
    {"embedder", JSON_TEXT, AT(embedder)},
    {"embedder_hash", JSON_HEX, AT(embedder_hash)},
    {"query_prompt", JSON_TEXT, AT(query_prompt)},
    {"document_prompt", JSON_TEXT, AT(document_prompt)},
    {"tokenizer", JSON_TEXT, AT(tokenizer)},
    {"tokenizer_hash", JSON_HEX, AT(tokenizer_hash)},
    {"index", JSON_TEXT, AT(index_factory)},
    {"sparse", JSON_BOOL, JSON_AT(struct manifest, info.sparse)},
    {"picture_embedder", JSON_STRUCT, JSON_AT(struct manifest, info.pictures),
     .table = &picture_table},
    {"files", JSON_PARSED, .parse = parse_files, .required = true},
    {.name = "checksum", .type = JSON_IGNORED},
};
#undef AT
static const struct json_table manifest_table = JSON_TABLE(manifest_fields);

static const struct json_style manifest_style = {.status = STATUS_CORRUPT,
                                                 .quote = "\"",
                                                 .member = "field",
                                                 .advice = "this version does not know it"};

static const char *find_picture_contradiction(const struct manifest *manifest) {
    const struct picture_space *space = &manifest->info.pictures;
    size_t vectors;
    if (space->n == 0) return NULL;
    if (space->n > manifest->info.n_documents) return "more pictures than documents";
    if (!index_is_lossless(space->index_factory))
        return "the index of pictures compresses, which this version does not read";
    if (manifest->files[GENERATION_FILE_PICTURE_CHUNKS].bytes !=
        (uint64_t)space->n * sizeof(uint64_t))
        return "the length of pictures.chunks is not eight bytes a picture";
    if (mul_overflows((size_t)space->n, (size_t)space->dim * sizeof(float), &vectors) ||
        (generation_is_exact(space->index_factory) &&
         manifest->files[GENERATION_FILE_PICTURES].bytes != vectors))
        return "the length of pictures.f32 is not one vector a picture";
    return NULL;
}

/* Compares the numbers with each other, whatever the files hold. Returns what is wrong, or NULL. */
static const char *find_contradiction(const struct manifest *manifest) {
    const struct collection_info *info = &manifest->info;
    size_t vectors;
    if (info->n_documents > info->n_chunks || info->n_chunks > info->n_tokens)
        return "more documents than chunks, or more chunks than tokens";
    if (info->eod > info->max_token) return "\"eod\" is above \"max_token\"";
    if (manifest->files[GENERATION_FILE_TOKENS].bytes !=
        (uint64_t)info->n_tokens * sizeof(uint32_t))
        return "the length of chunks.tokens is not four bytes a token";
    if (manifest->files[GENERATION_FILE_OFFSETS].bytes !=
        (uint64_t)info->n_chunks * sizeof(struct chunk_record))
        return "the length of chunks.offsets is not one record a chunk";
    enum generation_file exact = generation_is_exact(info->index_factory)
                                     ? GENERATION_FILE_VECTORS
                                     : GENERATION_FILE_ORIGINALS;
    if (mul_overflows((size_t)info->n_chunks, (size_t)info->dim * sizeof(float), &vectors) ||
        (generation_has_file(exact, info) && manifest->files[exact].bytes != vectors))
        return "the length of vectors.f32 is not one vector a chunk";
    return find_picture_contradiction(manifest);
}

enum status manifest_parse(struct manifest *manifest, const char *text, size_t size,
                           const char *name, struct error *e) {
    struct json *root;
    *manifest = (struct manifest){0};
    if (size > MANIFEST_LIMIT)
        return error_set(e, STATUS_CORRUPT, "%s: %zu bytes, more than a MANIFEST has", name, size);
    enum status status = check_checksum(text, size, name, &manifest->checksum, e);
    if (status == STATUS_OK) status = json_parse(&root, (struct text_span){text, size}, name, e);
    if (status) return status;

    struct json_reader reader = {.name = name, .style = &manifest_style, .e = e};
    status = json_table_read(&reader, &manifest_table, root, manifest);
    json_close(root);
    if (status) return status;

    const char *wrong = find_contradiction(manifest);
    return wrong ? error_set(e, STATUS_CORRUPT, "%s: %s", name, wrong) : STATUS_OK;
}

static void put_files(struct json_writer *w, const struct manifest *manifest) {
    put_key_object(w, "files");
    for (int i = 0; i < GENERATION_FILE_COUNT; i++) {
        enum generation_file file = (enum generation_file)i;
        if (!generation_has_file(file, &manifest->info)) continue;
        put_key(w, generation_file_name(file, &manifest->info));
        put_object_line(w);
        put_key_int(w, "bytes", (int64_t)manifest->files[i].bytes);
        put_key_hex(w, "xxh3", manifest->files[i].checksum);
        put_object_end(w);
    }
    put_object_end(w);
}

static void put_pictures(struct json_writer *w, const struct picture_space *space) {
    if (space->embedder == NULL) return;
    put_key_object(w, "picture_embedder");
    put_key_string(w, "folder", space->embedder);
    put_key_hex(w, "hash", space->embedder_hash);
    put_key_string(w, "query_prompt", space->query_prompt);
    put_key_string(w, "document_prompt", space->document_prompt);
    put_key_int(w, "dim", space->dim);
    put_key_int(w, "pictures", space->n);
    put_key_string(w, "index", space->index_factory);
    put_object_end(w);
}

void manifest_print(struct manifest *manifest, struct buffer *out) {
    const struct collection_info *info = &manifest->info;
    size_t begin = out->size;
    struct json_writer w;
    put_begin_indented(&w, out, 2);
    put_object(&w);
    put_key_int(&w, "format", GENERATION_FORMAT);
    put_key_int(&w, "generation", info->generation);
    put_key_int(&w, "documents", info->n_documents);
    put_key_int(&w, "chunks", info->n_chunks);
    put_key_int(&w, "tokens", info->n_tokens);
    put_key_int(&w, "chunk_length", info->chunk_length);
    put_key_string(&w, "chunks_end", chunk_cut_name(info->cut));
    put_key_int(&w, "context", info->context);
    put_key_int(&w, "overlap", info->overlap);
    put_key_int(&w, "eod", info->eod);
    put_key_int(&w, "max_token", info->max_token);
    put_key_int(&w, "dim", info->dim);
    put_key_string(&w, "metric", metric);
    put_key_string(&w, "embedder", info->embedder);
    put_key_hex(&w, "embedder_hash", info->embedder_hash);
    put_key_string(&w, "query_prompt", info->query_prompt);
    put_key_string(&w, "document_prompt", info->document_prompt);
    put_key_string(&w, "tokenizer", info->tokenizer);
    put_key_hex(&w, "tokenizer_hash", info->tokenizer_hash);
    put_key_string(&w, "index", info->index_factory);
    if (info->sparse) put_key_bool(&w, "sparse", true);
    put_pictures(&w, &info->pictures);
    put_files(&w, manifest);
    put_key_hex(&w, "checksum", 0);
    put_object_end(&w);
    buffer_append(out, "\n", 1);

    /* The checksum is of everything before its own line, and takes the place of the zeros. */
    char digits[17];
    size_t end = out->size - (sizeof checksum_end - 1) - 16;
    manifest->checksum = hash_bytes(out->data + begin, end - (sizeof checksum_key - 1) - begin, 0);
    snprintf(digits, sizeof digits, "%016" PRIx64, manifest->checksum);
    memcpy(out->data + end, digits, 16);
}

void manifest_free(struct manifest *manifest) {
    json_table_free(&manifest_table, manifest);
    *manifest = (struct manifest){0};
}

void generation_name(char name[GENERATION_NAME_SIZE], int generation) {
    snprintf(name, GENERATION_NAME_SIZE, "gen-%06d", generation);
}

bool generation_parse(const char *name, int *generation) {
    char again[GENERATION_NAME_SIZE];
    if (strncmp(name, "gen-", 4) != 0 || strlen(name) >= sizeof again) return false;
    long long n = 0;
    for (const char *p = name + 4; *p >= '0' && *p <= '9' && n <= INT32_MAX; p++)
        n = n * 10 + (*p - '0');
    if (n < 1 || n > INT32_MAX) return false;
    /* One spelling per number. */
    generation_name(again, (int)n);
    *generation = (int)n;
    return strcmp(again, name) == 0;
}

enum status current_write(const char *dir, struct generation_origin origin, struct error *e) {
    char name[GENERATION_NAME_SIZE];
    struct buffer text = {0};
    char *temporary = disk_path(dir, "CURRENT.tmp"), *current = disk_path(dir, "CURRENT");
    generation_name(name, origin.generation);
    buffer_printf(&text, "%s %016" PRIx64 "\n", name, origin.manifest_checksum);
    enum status status = disk_write_whole(temporary, &text, e);
    if (status == STATUS_OK) status = disk_rename(temporary, current, e);
    buffer_free(&text);
    free(temporary);
    free(current);
    return status;
}

/* "gen-000012 0123456789abcdef\n" and nothing else. */
static bool current_parse(const struct buffer *text, int *generation, uint64_t *manifest_checksum) {
    char name[GENERATION_NAME_SIZE];
    const char *space = text->size > 0 ? memchr(text->data, ' ', text->size) : NULL;
    size_t size = space ? (size_t)(space - text->data) : 0;
    if (space == NULL || size >= sizeof name || text->size != size + 18 ||
        text->data[text->size - 1] != '\n')
        return false;
    memcpy(name, text->data, size);
    name[size] = '\0';
    return generation_parse(name, generation) && hash_parse(space + 1, manifest_checksum);
}

enum status current_read(const char *dir, int *generation, uint64_t *manifest_checksum,
                         struct error *e) {
    char *path = disk_path(dir, "CURRENT");
    struct buffer text = {0};
    enum status status = STATUS_OK;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        status =
            error_set(e, STATUS_NOT_FOUND,
                      "%s: no such file; %s is not a collection made by retro-index", path, dir);
    if (status == STATUS_OK) status = file_read(path, 256, &text, e);
    if (status == STATUS_OK && !current_parse(&text, generation, manifest_checksum))
        status = error_set(e, STATUS_CORRUPT,
                           "%s: not a line naming a generation; build the collection again", path);
    buffer_free(&text);
    free(path);
    return status;
}
