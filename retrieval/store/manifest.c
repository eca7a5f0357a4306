/* retrieval/store/manifest.c: MANIFEST and CURRENT, the two small files that say what a collection is. A MANIFEST ends
 * with the checksum of everything before it, and every field is required, so damage is found wherever it is. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/json/json.h"
#include "retrieval/store/collection_private.h"

static const char metric[] = "inner_product";
/* The MANIFEST's last bytes: this, 16 digits, a quote, and the closing of the object. */
static const char checksum_key[] = "  \"checksum\": \"";
static const char checksum_end[] = "\"\n}\n";

bool collection_is_exact(const char *index_factory) { return strcmp(index_factory, INDEX_EXACT) == 0; }

const char *collection_file_name(enum collection_file file, const char *index_factory) {
    switch (file) {
        case COLLECTION_FILE_TOKENS: return "chunks.tokens";
        case COLLECTION_FILE_OFFSETS: return "chunks.offsets";
        case COLLECTION_FILE_DOCUMENTS: return "documents";
        case COLLECTION_FILE_TEXT: return "documents.text";
        case COLLECTION_FILE_VECTORS: return collection_is_exact(index_factory) ? "vectors.f32" : "vectors.faiss";
        case COLLECTION_FILE_COUNT: break;
    }
    CHECK(!"a collection file");
    return "";
}

/* Exactly 16 lower-case hexadecimal digits: one spelling per number, so that a flipped bit cannot hide in the case. */
static bool parse_hash(const char *text, uint64_t *hash) {
    *hash = 0;
    for (int i = 0; i < 16; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        *hash = *hash << 4 | (uint64_t)digit;
    }
    return true;
}

static enum status check_checksum(const char *text, size_t size, const char *name, uint64_t *checksum,
                                  struct error *e) {
    const size_t key = sizeof checksum_key - 1, end = sizeof checksum_end - 1, tail = key + 16 + end;
    if (size < tail || memcmp(text + size - tail, checksum_key, key) != 0 ||
        memcmp(text + size - end, checksum_end, end) != 0 || !parse_hash(text + size - end - 16, checksum))
        return error_set(e, STATUS_CORRUPT, "%s: does not end with its checksum; it is cut off or damaged", name);
    uint64_t found = hash_bytes(text, size - tail, 0);
    if (found != *checksum)
        return error_set(e, STATUS_CORRUPT, "%s: checksum %016" PRIx64 ", expected %016" PRIx64 "; it is damaged", name,
                         found, *checksum);
    return STATUS_OK;
}

/* Reading of fields: the first failure is kept in *e and later reads change nothing. */
struct reader {
    const char *name; /* of the file */
    struct error *e;
    enum status status;
};

static json_t *field(struct reader *r, const json_t *object, const char *key, json_type type) {
    json_t *v = json_object_get(object, key);
    if (r->status == STATUS_OK && (v == NULL || json_typeof(v) != type))
        r->status =
            error_set(r->e, STATUS_CORRUPT, "%s: \"%s\" is %s", r->name, key, v ? "of the wrong type" : "missing");
    return r->status ? NULL : v;
}

static int64_t number(struct reader *r, const json_t *object, const char *key, int64_t min, int64_t max) {
    json_t *v = field(r, object, key, JSON_INTEGER);
    if (v == NULL) return 0;
    int64_t n = json_integer_value(v);
    if (n >= min && n <= max) return n;
    r->status = error_set(r->e, STATUS_CORRUPT, "%s: \"%s\" is %lld, not in %lld .. %lld", r->name, key, (long long)n,
                          (long long)min, (long long)max);
    return 0;
}

static char *string(struct reader *r, const json_t *object, const char *key) {
    json_t *v = field(r, object, key, JSON_STRING);
    if (v == NULL) return NULL;
    if (strlen(json_string_value(v)) == json_string_length(v)) return xstrdup(json_string_value(v));
    r->status = error_set(r->e, STATUS_CORRUPT, "%s: \"%s\" holds a NUL", r->name, key);
    return NULL;
}

static uint64_t hash_value(struct reader *r, const json_t *object, const char *key) {
    json_t *v = field(r, object, key, JSON_STRING);
    uint64_t hash = 0;
    if (v && (json_string_length(v) != 16 || !parse_hash(json_string_value(v), &hash)))
        r->status = error_set(r->e, STATUS_CORRUPT, "%s: \"%s\" is not 16 hexadecimal digits", r->name, key);
    return hash;
}

static void expect(struct reader *r, bool ok, const char *what) {
    if (r->status == STATUS_OK && !ok) r->status = error_set(r->e, STATUS_CORRUPT, "%s: %s", r->name, what);
}

static void read_info(struct reader *r, const json_t *root, struct collection_info *info) {
    info->generation = (int)number(r, root, "generation", 1, INT32_MAX);
    info->n_documents = number(r, root, "documents", 1, INT32_MAX);
    info->n_chunks = number(r, root, "chunks", 1, INT64_MAX / (int64_t)sizeof(struct chunk_record));
    info->n_tokens = number(r, root, "tokens", 1, INT64_MAX / (int64_t)sizeof(uint32_t));
    info->chunk_length = (int)number(r, root, "chunk_length", 1, COLLECTION_MAX_CHUNK_LENGTH);
    info->eod = (int32_t)number(r, root, "eod", 0, INT32_MAX);
    info->max_token = (int32_t)number(r, root, "max_token", 0, INT32_MAX);
    info->dim = (int)number(r, root, "dim", 1, COLLECTION_MAX_DIM);
    info->embedder = string(r, root, "embedder");
    info->embedder_hash = hash_value(r, root, "embedder_hash");
    info->tokenizer = string(r, root, "tokenizer");
    info->tokenizer_hash = hash_value(r, root, "tokenizer_hash");
    info->index_factory = string(r, root, "index");
    json_t *m = field(r, root, "metric", JSON_STRING);
    expect(r, m == NULL || strcmp(json_string_value(m), metric) == 0, "\"metric\" is not inner_product");
}

static void read_files(struct reader *r, const json_t *root, struct manifest *m) {
    json_t *files = field(r, root, "files", JSON_OBJECT);
    for (int i = 0; i < COLLECTION_FILE_COUNT && r->status == STATUS_OK; i++) {
        json_t *file =
            field(r, files, collection_file_name((enum collection_file)i, m->info.index_factory), JSON_OBJECT);
        m->files[i].bytes = (uint64_t)number(r, file, "bytes", 1, INT64_MAX);
        m->files[i].checksum = hash_value(r, file, "xxh3");
        expect(r, json_object_size(file) == 2, "\"files\" holds a field this version does not know");
    }
    expect(r, json_object_size(files) == COLLECTION_FILE_COUNT, "\"files\" names a file this version does not know");
}

/* What the numbers must say about each other, whatever the files hold. */
static void check_counts(struct reader *r, const struct manifest *m) {
    const struct collection_info *info = &m->info;
    if (r->status) return;
    expect(r, info->n_documents <= info->n_chunks && info->n_chunks <= info->n_tokens,
           "more documents than chunks, or more chunks than tokens");
    expect(r, info->eod <= info->max_token, "\"eod\" is above \"max_token\"");
    expect(r, m->files[COLLECTION_FILE_TOKENS].bytes == (uint64_t)info->n_tokens * sizeof(uint32_t),
           "the length of chunks.tokens is not four bytes a token");
    expect(r, m->files[COLLECTION_FILE_OFFSETS].bytes == (uint64_t)info->n_chunks * sizeof(struct chunk_record),
           "the length of chunks.offsets is not one record a chunk");
    size_t vectors;
    bool fits = !mul_overflows((size_t)info->n_chunks, (size_t)info->dim * sizeof(float), &vectors);
    expect(r, fits && (!collection_is_exact(info->index_factory) || m->files[COLLECTION_FILE_VECTORS].bytes == vectors),
           "the length of vectors.f32 is not one vector a chunk");
}

enum status manifest_parse(struct manifest *m, const char *text, size_t size, const char *name, struct error *e) {
    json_t *root;
    *m = (struct manifest){0};
    if (size > COLLECTION_MANIFEST_LIMIT)
        return error_set(e, STATUS_CORRUPT, "%s: %zu bytes, more than a MANIFEST has", name, size);
    enum status status = check_checksum(text, size, name, &m->checksum, e);
    if (status == STATUS_OK) status = json_load_text(&root, text, size, name, e);
    if (status) return status;
    struct reader r = {.name = name, .e = e};
    if (!json_is_object(root)) expect(&r, false, "not an object");
    int64_t format = number(&r, root, "format", 1, INT32_MAX);
    if (r.status == STATUS_OK && format != COLLECTION_FORMAT)
        r.status =
            error_set(e, STATUS_UNSUPPORTED, "%s: format %lld, this version reads %d; build the collection again", name,
                      (long long)format, COLLECTION_FORMAT);
    read_info(&r, root, &m->info);
    read_files(&r, root, m);
    check_counts(&r, m);
    expect(&r, json_object_size(root) == 17, "holds a field this version does not know");
    json_decref(root);
    return r.status;
}

static void print_string(struct buffer *out, const char *s) {
    buffer_append(out, "\"", 1);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            buffer_printf(out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            buffer_printf(out, "\\u%04x", (unsigned)*s);
        else
            buffer_append(out, s, 1);
    }
    buffer_append(out, "\"", 1);
}

void manifest_print(struct manifest *m, struct buffer *out) {
    const struct collection_info *info = &m->info;
    size_t begin = out->size;
    buffer_printf(out, "{\n  \"format\": %d,\n  \"generation\": %d,\n", COLLECTION_FORMAT, info->generation);
    buffer_printf(out, "  \"documents\": %" PRId64 ",\n  \"chunks\": %" PRId64 ",\n  \"tokens\": %" PRId64 ",\n",
                  info->n_documents, info->n_chunks, info->n_tokens);
    buffer_printf(out, "  \"chunk_length\": %d,\n  \"eod\": %d,\n  \"max_token\": %d,\n", info->chunk_length, info->eod,
                  info->max_token);
    buffer_printf(out, "  \"dim\": %d,\n  \"metric\": \"%s\",\n  \"embedder\": ", info->dim, metric);
    print_string(out, info->embedder);
    buffer_printf(out, ",\n  \"embedder_hash\": \"%016" PRIx64 "\",\n  \"tokenizer\": ", info->embedder_hash);
    print_string(out, info->tokenizer);
    buffer_printf(out, ",\n  \"tokenizer_hash\": \"%016" PRIx64 "\",\n", info->tokenizer_hash);
    buffer_append_string(out, "  \"index\": ");
    print_string(out, info->index_factory);
    buffer_append_string(out, ",\n  \"files\": {\n");
    for (int i = 0; i < COLLECTION_FILE_COUNT; i++)
        buffer_printf(out, "    \"%s\": {\"bytes\": %" PRIu64 ", \"xxh3\": \"%016" PRIx64 "\"}%s\n",
                      collection_file_name((enum collection_file)i, info->index_factory), m->files[i].bytes,
                      m->files[i].checksum, i + 1 < COLLECTION_FILE_COUNT ? "," : "");
    buffer_append_string(out, "  },\n");
    m->checksum = hash_bytes(out->data + begin, out->size - begin, 0);
    buffer_printf(out, "%s%016" PRIx64 "%s", checksum_key, m->checksum, checksum_end);
}

void manifest_free(struct manifest *m) {
    free((char *)(uintptr_t)m->info.embedder);
    free((char *)(uintptr_t)m->info.tokenizer);
    free((char *)(uintptr_t)m->info.index_factory);
    *m = (struct manifest){0};
}

void generation_name(char name[COLLECTION_NAME_SIZE], int generation) {
    snprintf(name, COLLECTION_NAME_SIZE, "gen-%06d", generation);
}

bool generation_parse(const char *name, int *generation) {
    char again[COLLECTION_NAME_SIZE];
    if (strncmp(name, "gen-", 4) != 0 || strlen(name) >= sizeof again) return false;
    long long n = 0;
    for (const char *p = name + 4; *p >= '0' && *p <= '9' && n <= INT32_MAX; p++) n = n * 10 + (*p - '0');
    if (n < 1 || n > INT32_MAX) return false;
    /* One spelling per number. */
    generation_name(again, (int)n);
    *generation = (int)n;
    return strcmp(again, name) == 0;
}

void current_print(int generation, uint64_t manifest_checksum, struct buffer *out) {
    char name[COLLECTION_NAME_SIZE];
    generation_name(name, generation);
    buffer_printf(out, "%s %016" PRIx64 "\n", name, manifest_checksum);
}

/* "gen-000012 0123456789abcdef\n" and nothing else. */
static bool current_parse(const struct buffer *text, int *generation, uint64_t *manifest_checksum) {
    char name[COLLECTION_NAME_SIZE];
    const char *space = text->size > 0 ? memchr(text->data, ' ', text->size) : NULL;
    size_t size = space ? (size_t)(space - text->data) : 0;
    if (space == NULL || size >= sizeof name || text->size != size + 18 || text->data[text->size - 1] != '\n')
        return false;
    memcpy(name, text->data, size);
    name[size] = '\0';
    return generation_parse(name, generation) && parse_hash(space + 1, manifest_checksum);
}

enum status current_read(const char *dir, int *generation, uint64_t *manifest_checksum, struct error *e) {
    char *path = disk_path(dir, "CURRENT");
    struct buffer text = {0};
    enum status status = STATUS_OK;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        status =
            error_set(e, STATUS_NOT_FOUND, "%s: no such file; %s is not a collection made by retro-index", path, dir);
    if (status == STATUS_OK) status = file_read(path, 256, &text, e);
    if (status == STATUS_OK && !current_parse(&text, generation, manifest_checksum))
        status = error_set(e, STATUS_CORRUPT, "%s: not a line naming a generation; build the collection again", path);
    buffer_free(&text);
    free(path);
    return status;
}
