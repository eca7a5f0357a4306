/* tests/unit/test_generation.c: collections on disk: what is written reads back; damage is found
 * wherever it is; a process that ends anywhere in a build leaves the old collection or the new one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "config/base/hash.h"
#include "retrieval/generation/generation_private.h"
#include "retrieval/store/store.h"
#include "tests/folder.h"

enum { DIM = 4, CHUNK = 4, EOD = 99 };

static char dir[FOLDER_SIZE];

static int make_dir(void **state) {
    (void)state;
    folder_make(dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    disk_step_hook = NULL;
    folder_remove(dir);
    return 0;
}

static const struct collection_options options = {.chunk_length = CHUNK,
                                                  .eod = EOD,
                                                  .dim = DIM,
                                                  .embedder_hash = 0x1111,
                                                  .query_prompt = "query: ",
                                                  .document_prompt = "passage: ",
                                                  .tokenizer_hash = 0x2222,
                                                  .embedder = "toy \"embedder\"\n",
                                                  .tokenizer = "toy/tokenizer"};

static struct generation_builder *create(const struct collection_options *o) {
    struct generation_builder *b;
    struct error e = {0};
    if (builder_create(&b, dir, o, &e)) fail_msg("%s", e.text);
    return b;
}

/* Byte i is the digit i % 10. */
static char text_of_digits[3 * 64];

/* A document of n tokens with ids base, base + 1, ...; token i covers bytes [3 i, 3 i + 3). */
static enum status add(struct generation_builder *b, const char *path, int n, int base,
                       struct error *e) {
    int32_t ids[64];
    struct chunk_range chunks[16];
    int n_chunks = document_count_chunks(n, CHUNK);
    for (int i = 0; i < n; i++) ids[i] = base + i;
    for (int i = 0; i < n_chunks; i++) {
        uint32_t first = (uint32_t)(i * CHUNK), end = (uint32_t)min_int((i + 1) * CHUNK, n);
        chunks[i] = (struct chunk_range){3 * first, 3 * end, first, end - first};
    }
    for (size_t i = 0; i < sizeof text_of_digits; i++) text_of_digits[i] = (char)('0' + i % 10);
    enum status status = builder_add_document(
        b,
        &(struct collection_document){.path = path,
                                      .title = "a title",
                                      .text = {text_of_digits, (size_t)(3 * n)},
                                      .ids = ids,
                                      .chunks = chunks,
                                      .n_chunks = n_chunks,
                                      .n = n},
        e);
    for (int i = 0; status == STATUS_OK && i < n_chunks; i++) {
        float vector[DIM] = {0};
        vector[(base + i) % DIM] = 1;
        status = builder_add_vectors(b, vector, 1, e);
    }
    return status;
}

/* `mark` is the first token of the first document, by which tests tell collections apart. */
static enum status build(const struct collection_options *o, int mark, struct error *e) {
    struct generation_builder *b;
    enum status status = builder_create(&b, dir, o, e);
    if (status) return status;
    if ((status = add(b, "docs/one.md", 10, mark, e)) ||
        (status = add(b, "docs/two.md", 4, 30, e)) ||
        (status = add(b, "docs/three.md", 1, 50, e))) {
        builder_abandon(b);
        return status;
    }
    return builder_commit(b, e);
}

static void build_ok(const struct collection_options *o, int mark) {
    struct error e = {0};
    if (build(o, mark, &e)) fail_msg("%s", e.text);
}

static struct disk_generation *open_ok(void) {
    struct disk_generation *c;
    struct error e = {0};
    if (disk_generation_open(&c, dir, &e)) fail_msg("%s", e.text);
    return c;
}

/* 0 when nothing opens. A collection that opens is checked whole. */
static int mark_of_collection(void) {
    struct disk_generation *c;
    struct error e = {0};
    if (disk_generation_open(&c, dir, &e)) return 0;
    int mark = (int)disk_generation_chunk(c, 0).tokens[0];
    assert_int_equal(disk_generation_info(c)->n_chunks, 5);
    disk_generation_close(c);
    if (disk_generation_verify(dir, &e)) fail_msg("%s", e.text);
    return mark;
}

static void check_contents(const struct disk_generation *c) {
    const struct collection_info *info = disk_generation_info(c);
    assert_int_equal(info->n_documents, 3);
    assert_int_equal(info->n_chunks, 5);
    assert_int_equal(info->n_tokens, 15);
    assert_int_equal(info->chunk_length, CHUNK);
    assert_int_equal(info->max_token, EOD);
    assert_int_equal(info->dim, DIM);
    assert_true(info->embedder_hash == 0x1111 && info->tokenizer_hash == 0x2222);
    assert_string_equal(info->embedder, options.embedder);
    assert_string_equal(info->tokenizer, options.tokenizer);
    static const struct {
        const char *path;
        int document, first, n, start, end;
    } expected[] = {{"docs/one.md", 0, 1, 4, 0, 12},
                    {"docs/one.md", 0, 5, 4, 12, 24},
                    {"docs/one.md", 0, 9, 2, 24, 30},
                    {"docs/two.md", 1, 30, 4, 0, 12},
                    {"docs/three.md", 2, 50, 1, 0, 3}};
    for (int i = 0; i < 5; i++) {
        struct chunk chunk = disk_generation_chunk(c, i);
        assert_int_equal(chunk.id, i);
        assert_int_equal(chunk.document, expected[i].document);
        assert_string_equal(chunk.path, expected[i].path);
        assert_string_equal(chunk.title, "a title");
        assert_int_equal(chunk.text.size, expected[i].end - expected[i].start);
        for (size_t j = 0; j < chunk.text.size; j++)
            assert_int_equal(chunk.text.text[j], '0' + (chunk.start + j) % 10);
        assert_int_equal(chunk.n_tokens, expected[i].n);
        assert_int_equal(chunk.start, expected[i].start);
        assert_int_equal(chunk.end, expected[i].end);
        for (int j = 0; j < chunk.n_tokens; j++)
            assert_int_equal(chunk.tokens[j], expected[i].first + j);
    }
}

static void test_round_trip(void **state) {
    (void)state;
    static const char *const factories[] = {NULL, INDEX_EXACT, "Flat"};
    for (size_t f = 0; f < ARRAY_COUNT(factories); f++) {
        struct collection_options o = options;
        struct error e = {0};
        o.index_factory = factories[f];
        if (!HAVE_FAISS && f == 2) continue;
        build_ok(&o, 1);
        struct disk_generation *c = open_ok();
        check_contents(c);
        assert_int_equal(disk_generation_info(c)->generation, f + 1);
        if (factories[f]) assert_string_equal(disk_generation_info(c)->index_factory, factories[f]);
        float query[DIM] = {0, 0, 1, 0}, similarities[3];
        int64_t ids[3];
        assert_int_equal(index_search(disk_generation_index(c),
                                      (struct index_query){.vectors = query, .n = 1, .k = 3}, ids,
                                      similarities, &e),
                         STATUS_OK);
        /* Chunk 1 starts at token 1 + 1; documents two (30) and three (50) have base % 4 = 2. */
        assert_int_equal(ids[0], 1);
        assert_int_equal(ids[1], 3);
        assert_int_equal(ids[2], 4);
        assert_true(similarities[2] == 1);
        disk_generation_close(c);
        assert_int_equal(disk_generation_verify(dir, &e), STATUS_OK);
    }
}

static void test_neighbor_tokens(void **state) {
    (void)state;
    int32_t ids[9];
    struct error e;
    struct collection *store;
    build_ok(&options, 1);
    assert_int_equal(store_open(&store, dir, &e), STATUS_OK);
    struct snapshot *snapshot = collection_hold(store);
    static const struct {
        int id;
        int32_t ids[8];
    } cases[] = {{0, {1, 2, 3, 4, 5, 6, 7, 8}},
                 {1, {5, 6, 7, 8, 9, 10, EOD, EOD}},
                 {2, {9, 10, EOD, EOD, EOD, EOD, EOD, EOD}},
                 {3, {30, 31, 32, 33, EOD, EOD, EOD, EOD}},
                 {4, {50, EOD, EOD, EOD, EOD, EOD, EOD, EOD}}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        for (int r = 0; r <= 8; r++) {
            ids[r] = -7;
            snapshot_neighbor_tokens(snapshot, cases[i].id, r, ids);
            assert_memory_equal(ids, cases[i].ids, (size_t)r * sizeof *ids);
            assert_int_equal(ids[r], -7);
        }
    snapshot_release(snapshot);
    collection_close(store);
}

static void test_match(void **state) {
    (void)state;
    struct error e = {0};
    build_ok(&options, 1);
    struct disk_generation *c = open_ok();
    const struct collection_info *info = disk_generation_info(c);
    struct embedder embedder = {
        .dim = DIM, .hash = 0x1111, .prompts = {"", "query: ", "passage: "}};
    assert_int_equal(collection_match_embedder(info, &embedder, &e), STATUS_OK);
    assert_int_equal(collection_match_tokens(info, 0x2222, CHUNK, &e), STATUS_OK);
    embedder.prompts[EMBED_DOCUMENT] = "";
    assert_int_equal(collection_match_embedder(info, &embedder, &e), STATUS_INVALID);
    assert_non_null(
        strstr(e.text, "retrieval.document_prompt \"passage: \", the embedder has \"\" now"));
    embedder.prompts[EMBED_DOCUMENT] = "passage: ";
    embedder.prompts[EMBED_QUERY] = "ask: ";
    assert_int_equal(collection_match_embedder(info, &embedder, &e), STATUS_INVALID);
    assert_non_null(
        strstr(e.text, "retrieval.query_prompt \"query: \", the embedder has \"ask: \" now"));
    embedder.prompts[EMBED_QUERY] = "query: ";
    embedder.dim++;
    assert_int_equal(collection_match_embedder(info, &embedder, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "retrieval.embedder_dimensions"));
    embedder.dim--;
    embedder.hash++;
    assert_int_equal(collection_match_embedder(info, &embedder, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "another embedder"));
    assert_int_equal(collection_match_tokens(info, 0x2223, CHUNK, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "tokenizer"));
    assert_int_equal(collection_match_tokens(info, 0x2222, 64, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "--chunk-length 64"));
    disk_generation_close(c);
}

static struct collection_document *one_token(const int32_t *ids, const struct chunk_range *chunk,
                                             int n) {
    static struct collection_document d;
    d = (struct collection_document){.path = "x",
                                     .title = "",
                                     .text = {"abc", 3},
                                     .ids = ids,
                                     .chunks = chunk,
                                     .n_chunks = n,
                                     .n = n};
    return &d;
}

static void test_refused_input(void **state) {
    (void)state;
    struct error e = {0};
    struct generation_builder *b = create(&options);
    int32_t bad_id[1] = {-1}, id[1] = {1};
    struct chunk_range chunk = {0, 3, 0, 1}, backwards = {3, 0, 0, 1}, beyond = {0, 4, 0, 1},
                       two = {0, 3, 0, 2};
    float long_vector[DIM] = {2}, unit[DIM] = {1}, nan_vector[DIM] = {__builtin_nanf("")};
    assert_int_equal(builder_add_document(b, one_token(id, &chunk, 0), &e), STATUS_INVALID);
    assert_int_equal(builder_add_document(b, one_token(bad_id, &chunk, 1), &e), STATUS_INVALID);
    assert_int_equal(builder_add_document(b, one_token(id, &backwards, 1), &e), STATUS_INVALID);
    assert_int_equal(builder_add_document(b, one_token(id, &beyond, 1), &e), STATUS_INVALID);
    assert_int_equal(builder_add_document(b, one_token(id, &two, 1), &e), STATUS_INVALID);
    assert_int_equal(builder_add_vectors(b, long_vector, 1, &e), STATUS_INVALID);
    assert_int_equal(builder_add_vectors(b, nan_vector, 1, &e), STATUS_INVALID);
    assert_int_equal(builder_commit(b, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "no document"));
    b = create(&options);
    assert_int_equal(builder_add_document(b, one_token(id, &chunk, 1), &e), STATUS_OK);
    assert_int_equal(builder_add_vectors(b, unit, 1, &e), STATUS_OK);
    assert_int_equal(builder_add_vectors(b, unit, 1, &e), STATUS_OK);
    assert_int_equal(builder_commit(b, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "1 chunks but 2 vectors"));
    struct collection_options o = options;
    o.embedder = "not UTF-8: \xff";
    assert_int_equal(builder_create(&b, dir, &o, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "not valid UTF-8"));
    o = options;
    o.chunk_length = 0;
    assert_int_equal(builder_create(&b, dir, &o, &e), STATUS_INVALID);
    o = options;
    o.eod = -1;
    assert_int_equal(builder_create(&b, dir, &o, &e), STATUS_INVALID);
    struct disk_generation *c;
    assert_int_equal(disk_generation_open(&c, dir, &e), STATUS_NOT_FOUND);
}

static void read_whole(const char *path, struct buffer *b) {
    struct error e = {0};
    if (file_read(path, 1 << 20, b, &e)) fail_msg("%s", e.text);
}

static void write_whole(const char *path, const void *bytes, size_t size) {
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

/* Pictures with an embedder of their own. */

enum { PICTURE_DIM = 3 };

static enum status add_picture(struct generation_builder *b, const char *path, int base,
                               const float *vector, struct error *e) {
    int32_t ids[2] = {base, base + 1};
    static const struct chunk_range chunk = {0, 6, 0, 2};
    float of_chunk[DIM] = {[1] = 1};
    const struct collection_document d = {.path = path,
                                          .title = "",
                                          .text = {"012345", 6},
                                          .ids = ids,
                                          .chunks = &chunk,
                                          .n_chunks = 1,
                                          .n = 2,
                                          .picture = vector};
    if (builder_add_document(b, &d, e)) return e->status;
    return builder_add_vectors(b, of_chunk, 1, e);
}

/* Three documents of five chunks, and a picture before and behind the last of them: chunks 4 and 6.
 */
static void build_pictures(const char *factory) {
    static const float vectors[2][PICTURE_DIM] = {{0, 1, 0}, {0.6F, 0, 0.8F}};
    struct collection_options o = options;
    struct error e = {0};
    o.index_factory = factory;
    o.pictures =
        (struct picture_space){.embedder = "toy eyes", .embedder_hash = 0x3333, .dim = PICTURE_DIM};
    struct generation_builder *b = create(&o);
    if (add(b, "docs/one.md", 10, 1, &e) || add(b, "docs/two.md", 4, 30, &e) ||
        add_picture(b, "one.png", 60, vectors[0], &e) || add(b, "docs/three.md", 1, 50, &e) ||
        add_picture(b, "two.png", 70, vectors[1], &e) || builder_commit(b, &e))
        fail_msg("%s", e.text);
}

static void test_pictures(void **state) {
    (void)state;
    const char *const factories[] = {INDEX_EXACT, NULL};
    for (size_t f = 0; f < (HAVE_FAISS ? 2 : 1); f++) {
        struct error e = {0};
        int64_t ids[3];
        float similarities[3], query[PICTURE_DIM] = {0.6F, 0, 0.8F};
        build_pictures(factories[f]);
        struct disk_generation *c = open_ok();
        const struct picture_space *p = &disk_generation_info(c)->pictures;
        assert_int_equal(p->n, 2);
        assert_int_equal(p->dim, PICTURE_DIM);
        assert_true(p->embedder_hash == 0x3333);
        assert_string_equal(p->embedder, "toy eyes");
        assert_string_equal(p->index_factory, factories[f] ? INDEX_EXACT : "Flat");
        assert_int_equal(disk_generation_picture_chunk(c, 0), 4);
        assert_int_equal(disk_generation_picture_chunk(c, 1), 6);
        for (int64_t id = 0; id < 7; id++)
            assert_int_equal(disk_generation_picture_of(c, id), id == 4 ? 0 : id == 6 ? 1 : -1);
        struct index_query asked = {.vectors = query, .n = 1, .k = 3};
        assert_int_equal(index_search(disk_generation_pictures(c), asked, ids, similarities, &e),
                         STATUS_OK);
        assert_true(ids[0] == 1 && ids[1] == 0 && ids[2] == -1 && similarities[0] > 0.9999F);
        assert_int_equal(disk_generation_verify(dir, &e), STATUS_OK);
        disk_generation_close(c);
    }
}

static void test_pictures_refused(void **state) {
    (void)state;
    static const float vector[PICTURE_DIM] = {0, 1, 0}, too_long[PICTURE_DIM] = {0, 2, 0};
    struct collection_options o = options;
    struct error e = {0};
    struct generation_builder *b = create(&options);
    assert_int_equal(add_picture(b, "one.png", 60, vector, &e), STATUS_INVALID);
    builder_abandon(b);
    o.pictures = (struct picture_space){.embedder = "toy eyes", .dim = PICTURE_DIM};
    b = create(&o);
    assert_int_equal(add_picture(b, "one.png", 60, too_long, &e), STATUS_INVALID);
    builder_abandon(b);
    o.pictures.dim = 0;
    assert_int_equal(builder_create(&b, dir, &o, &e), STATUS_INVALID);

    const struct embedder eyes = {
        .hash = 0x3333, .dim = PICTURE_DIM, .name = "eyes", .prompts = {"", "", ""}};
    struct embedder other = eyes;
    build_ok(&options, 1);
    struct disk_generation *c = open_ok();
    assert_int_equal(collection_match_picture_embedder(disk_generation_info(c), NULL, &e),
                     STATUS_OK);
    assert_int_equal(collection_match_picture_embedder(disk_generation_info(c), &eyes, &e),
                     STATUS_INVALID);
    disk_generation_close(c);
    build_pictures(INDEX_EXACT);
    c = open_ok();
    assert_int_equal(collection_match_picture_embedder(disk_generation_info(c), &eyes, &e),
                     STATUS_OK);
    assert_int_equal(collection_match_picture_embedder(disk_generation_info(c), NULL, &e),
                     STATUS_INVALID);
    other.hash = 0x4444;
    assert_int_equal(collection_match_picture_embedder(disk_generation_info(c), &other, &e),
                     STATUS_INVALID);
    other = eyes;
    other.prompts[EMBED_QUERY] = "a photo of ";
    assert_int_equal(collection_match_picture_embedder(disk_generation_info(c), &other, &e),
                     STATUS_INVALID);
    disk_generation_close(c);
}

static const char *const every_file[] = {"CURRENT",
                                         "gen-000001/MANIFEST",
                                         "gen-000001/chunks.tokens",
                                         "gen-000001/chunks.offsets",
                                         "gen-000001/documents",
                                         "gen-000001/documents.text",
                                         "gen-000001/chunks.words",
                                         "gen-000001/vectors.faiss",
                                         "gen-000001/vectors.f32",
                                         "gen-000001/pictures.chunks",
                                         "gen-000001/pictures.faiss",
                                         "gen-000001/pictures.f32"};

static void expect_damage(const char *path, size_t at) {
    struct disk_generation *c;
    struct error e = {0};
    if (disk_generation_open(&c, dir, &e) == STATUS_OK)
        fail_msg("%s: damage at byte %zu was not found", path, at);
    assert_true(e.text[0] != '\0');
}

/* Every byte with one bit flipped, then every shorter length, of every file. */
static void damage_everything(void) {
    for (size_t f = 0; f < ARRAY_COUNT(every_file); f++) {
        struct buffer b = {0};
        char path[160];
        snprintf(path, sizeof path, "%s/%s", dir, every_file[f]);
        if (access(path, F_OK) != 0) continue;
        read_whole(path, &b);
        for (size_t i = 0; i < b.size; i++) {
            b.data[i] ^= (char)(1 << i % 8);
            write_whole(path, b.data, b.size);
            expect_damage(path, i);
            b.data[i] ^= (char)(1 << i % 8);
        }
        for (size_t i = 0; i < b.size; i++) {
            write_whole(path, b.data, i);
            expect_damage(path, i);
        }
        write_whole(path, b.data, b.size);
        unlink(path);
        expect_damage(path, 0);
        write_whole(path, b.data, b.size);
        buffer_free(&b);
    }
}

static void damage_collection(const char *factory) {
    struct collection_options o = options;
    o.index_factory = factory;
    build_ok(&o, 1);
    damage_everything();
    assert_int_equal(mark_of_collection(), 1);
}

static void test_damage_exact(void **state) {
    (void)state;
    damage_collection(INDEX_EXACT);
}

static void test_damage_faiss(void **state) {
    (void)state;
    damage_collection(NULL);
}

static void test_damage_pictures(void **state) {
    struct error e;
    (void)state;
    build_pictures(INDEX_EXACT);
    damage_everything();
    if (disk_generation_verify(dir, &e)) fail_msg("%s", e.text);
}

/* Recomputes what a careful forger would: the file's entry in MANIFEST, its checksum, and CURRENT.
 */
static void forge(enum generation_file file, const struct buffer *bytes, struct manifest *m) {
    char path[160];
    struct buffer text = {0};
    struct error e;
    snprintf(path, sizeof path, "%s/gen-000001/%s", dir, generation_file_name(file, &m->info));
    write_whole(path, bytes->data, bytes->size);
    m->files[file].bytes = bytes->size;
    m->files[file].checksum = hash_bytes(bytes->data, bytes->size, 0);
    manifest_print(m, &text);
    snprintf(path, sizeof path, "%s/gen-000001/MANIFEST", dir);
    write_whole(path, text.data, text.size);
    assert_int_equal(current_write(dir, (struct generation_origin){1, m->checksum}, &e), STATUS_OK);
    buffer_free(&text);
}

/* With right checksums over wrong contents nothing is read out of bounds: it opens or is refused,
 * and what opens can be read everywhere (the sanitizers watch). */
static void test_forged_contents(void **state) {
    (void)state;
    struct collection_options o = options;
    o.index_factory = INDEX_EXACT;
    build_ok(&o, 1);
    int opened = 0, refused = 0;
    for (int f = 0; f < GENERATION_FILE_VECTORS; f++) {
        struct buffer text = {0}, b = {0};
        struct manifest m;
        struct error e = {0};
        char path[160];
        snprintf(path, sizeof path, "%s/gen-000001/MANIFEST", dir);
        read_whole(path, &text);
        assert_int_equal(manifest_parse(&m, text.data, text.size, path, &e), STATUS_OK);
        snprintf(path, sizeof path, "%s/gen-000001/%s", dir,
                 generation_file_name((enum generation_file)f, &m.info));
        read_whole(path, &b);
        for (size_t i = 0; i < 8 * b.size; i++) {
            struct disk_generation *c;
            b.data[i / 8] ^= (char)(1 << i % 8);
            forge((enum generation_file)f, &b, &m);
            if (disk_generation_open(&c, dir, &e) == STATUS_OK) {
                opened++;
                size_t strings = 0;
                for (int64_t id = 0; id < disk_generation_info(c)->n_chunks; id++) {
                    struct chunk chunk = disk_generation_chunk(c, id);
                    for (int j = 0; j < chunk.n_following; j++)
                        assert_in_range(chunk.tokens[j], 0, disk_generation_info(c)->max_token);
                    strings += strlen(chunk.path) + strlen(chunk.title);
                }
                assert_true(strings > 0);
                disk_generation_close(c);
            } else {
                refused++;
            }
            b.data[i / 8] ^= (char)(1 << i % 8);
        }
        forge((enum generation_file)f, &b, &m);
        manifest_free(&m);
        buffer_free(&text);
        buffer_free(&b);
    }
    print_message("forged: %d opened, %d refused\n", opened, refused);
    assert_true(opened > 0 && refused > 0);
    assert_int_equal(mark_of_collection(), 1);
}

/* Each bit of the numbers of the pictures' chunks: only the numbers that were written fit. */
static void test_forged_pictures(void **state) {
    (void)state;
    build_pictures(INDEX_EXACT);
    struct buffer text = {0}, b = {0};
    struct manifest m;
    struct error e = {0};
    struct disk_generation *c;
    char path[160];
    snprintf(path, sizeof path, "%s/gen-000001/MANIFEST", dir);
    read_whole(path, &text);
    assert_int_equal(manifest_parse(&m, text.data, text.size, path, &e), STATUS_OK);
    snprintf(path, sizeof path, "%s/gen-000001/pictures.chunks", dir);
    read_whole(path, &b);
    for (size_t i = 0; i < 8 * b.size; i++) {
        b.data[i / 8] ^= (char)(1 << i % 8);
        forge(GENERATION_FILE_PICTURE_CHUNKS, &b, &m);
        enum status status = disk_generation_open(&c, dir, &e);
        /* Picture 0 at 0 or 5, which begin documents as well; picture 1 at 4 would come twice. */
        bool fits = i == 0 || i == 2;
        assert_int_equal(status, fits ? STATUS_OK : STATUS_CORRUPT);
        if (status == STATUS_OK) disk_generation_close(c);
        b.data[i / 8] ^= (char)(1 << i % 8);
    }
    forge(GENERATION_FILE_PICTURE_CHUNKS, &b, &m);
    manifest_free(&m);
    buffer_free(&text);
    buffer_free(&b);
}

static void expect_manifest_error(const char *from, const char *to, const char *message) {
    struct manifest m = {0};
    struct error e = {0};
    struct buffer text = {0}, forged = {0};
    char path[160];
    snprintf(path, sizeof path, "%s/gen-000001/MANIFEST", dir);
    read_whole(path, &text);
    const char *at = strstr(text.data, from), *end = strstr(text.data, "  \"checksum\"");
    assert_non_null(at);
    buffer_append(&forged, text.data, (size_t)(at - text.data));
    buffer_append_string(&forged, to);
    buffer_append(&forged, at + strlen(from), (size_t)(end - at) - strlen(from));
    uint64_t hash = hash_bytes(forged.data, forged.size, 0);
    buffer_printf(&forged, "  \"checksum\": \"%016llx\"\n}\n", (unsigned long long)hash);
    assert_int_not_equal(manifest_parse(&m, forged.data, forged.size, "MANIFEST", &e), STATUS_OK);
    if (strstr(e.text, message) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.text, message);
    manifest_free(&m);
    buffer_free(&text);
    buffer_free(&forged);
}

static void test_manifest_fields(void **state) {
    (void)state;
    build_ok(&options, 1);
    expect_manifest_error("\"format\": 9", "\"format\": 1", "format 1, this version reads 9");
    expect_manifest_error("\"chunks\": 5", "\"chunks\": -5", "\"chunks\" is -5");
    expect_manifest_error("\"chunks\": 5", "\"chunks\": 6", "chunks.offsets");
    expect_manifest_error("\"chunks\": 5", "\"chunks\": \"5\"",
                          "\"chunks\" is \"5\", expected an integer");
    expect_manifest_error("  \"chunks\": 5,\n", "", "\"chunks\" is missing");
    expect_manifest_error("\"chunks\": 5", "\"chunks\": 5, \"chunks\": 5", "not JSON: duplicate");
    expect_manifest_error("\"tokens\": 15", "\"tokens\": 9223372036854775807", "\"tokens\" is");
    expect_manifest_error("\"dim\": 4", "\"dim\": 0", "\"dim\" is 0");
    expect_manifest_error("\"dim\": 4", "\"dim\": 1000000", "\"dim\" is 1000000");
    expect_manifest_error("inner_product", "l2", "\"metric\" is \"l2\", allowed is inner_product");
    expect_manifest_error("\"eod\": 99", "\"eod\": 100", "above \"max_token\"");
    expect_manifest_error("\"dim\": 4", "\"dim\": 4, \"more\": 1", "does not know");
    expect_manifest_error("\"documents\": {", "\"../documents\": {",
                          "\"files.documents\" is missing");
    expect_manifest_error("toy/tokenizer", "toy\\u0000", "NUL");
}

static void test_manifest_pictures(void **state) {
    (void)state;
    build_pictures(INDEX_EXACT);
    expect_manifest_error("\"pictures\": 2", "\"pictures\": -1",
                          "\"picture_embedder.pictures\" is -1");
    expect_manifest_error("\"pictures\": 2", "\"pictures\": 1", "pictures.chunks");
    expect_manifest_error("\"pictures\": 2", "\"pictures\": 6", "more pictures than documents");
    expect_manifest_error("\"pictures\": 2", "\"pictures\": 0", "\"files.pictures.chunks\"");
    expect_manifest_error("\"dim\": 3", "\"dim\": 4", "pictures.f32");
    expect_manifest_error("\"folder\": \"toy eyes\",", "",
                          "\"picture_embedder.folder\" is missing");
    expect_manifest_error("\"hash\": \"0000000000003333\"", "\"hash\": 3",
                          "\"picture_embedder.hash\"");
    if (!HAVE_FAISS) return;
    folder_remove(dir);
    folder_make(dir);
    build_pictures(NULL);
    expect_manifest_error("\"pictures\": 2,\n    \"index\": \"Flat\"",
                          "\"pictures\": 2, \"index\": \"SQ8\"",
                          "the index of pictures compresses");
}

static int count_generations(void) {
    int *found, n = disk_list_generations(dir, &found);
    free(found);
    return n;
}

static void test_generations(void **state) {
    (void)state;
    for (int i = 1; i <= 5; i++) {
        build_ok(&options, i);
        assert_int_equal(mark_of_collection(), i);
        assert_int_equal(count_generations(), i == 1 ? 1 : 2);
    }
    /* A collection that is open stays readable while builds remove its files. */
    struct disk_generation *c = open_ok();
    build_ok(&options, 6);
    build_ok(&options, 7);
    assert_int_equal(disk_generation_info(c)->generation, 5);
    assert_int_equal(disk_generation_chunk(c, 0).tokens[0], 5);
    disk_generation_close(c);
    /* Leftovers above CURRENT go; a name that only resembles one stays. */
    char path[160];
    snprintf(path, sizeof path, "%s/gen-000042", dir);
    assert_int_equal(mkdir(path, 0755), 0);
    strcat(path, "/chunks.tokens");
    write_whole(path, "x", 1);
    snprintf(path, sizeof path, "%s/gen-42", dir);
    assert_int_equal(mkdir(path, 0755), 0);
    build_ok(&options, 8);
    struct disk_generation *again = open_ok();
    assert_int_equal(disk_generation_info(again)->generation, 8);
    disk_generation_close(again);
    assert_int_equal(count_generations(), 2);
    assert_int_equal(access(path, F_OK), 0);
}

static void test_abandon(void **state) {
    (void)state;
    struct error e = {0};
    build_ok(&options, 1);
    struct generation_builder *b = create(&options);
    assert_int_equal(add(b, "x", 3, 7, &e), STATUS_OK);
    builder_abandon(b);
    assert_int_equal(mark_of_collection(), 1);
    assert_int_equal(count_generations(), 1);
}

static void test_two_writers(void **state) {
    (void)state;
    struct error e = {0};
    struct generation_builder *first = create(&options), *second;
    assert_int_equal(builder_create(&second, dir, &options, &e), STATUS_BUSY);
    assert_non_null(strstr(e.text, "another program"));
    assert_int_equal(add(first, "x", 3, 7, &e), STATUS_OK);
    assert_int_equal(builder_commit(first, &e), STATUS_OK);
    second = create(&options);
    builder_abandon(second);
}

/* A damaged CURRENT does not open, and the next build keeps what is there until it has something
 * better. */
static void test_damaged_current(void **state) {
    (void)state;
    struct error e = {0};
    struct disk_generation *c;
    char path[160];
    build_ok(&options, 1);
    snprintf(path, sizeof path, "%s/CURRENT", dir);
    write_whole(path, "gen-000001\n", 11);
    assert_int_equal(disk_generation_open(&c, dir, &e), STATUS_CORRUPT);
    struct generation_builder *b = create(&options);
    assert_int_equal(count_generations(), 2);
    builder_abandon(b);
    assert_int_equal(count_generations(), 1);
    build_ok(&options, 2);
    assert_int_equal(mark_of_collection(), 2);
}

static int steps_left;
static void end_process(const char *step) {
    (void)step;
    if (steps_left-- == 0) _exit(7);
}

/* Ends a child before its n-th step. Returns false when the build was over before. */
static bool build_until(int n, int mark) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct error e = {0};
        steps_left = n;
        disk_step_hook = end_process;
        struct collection_options o = options;
        o.index_factory = INDEX_EXACT; /* FAISS' threads do not live through fork */
        _exit(build(&o, mark, &e) ? 1 : 0);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && (WEXITSTATUS(code) == 0 || WEXITSTATUS(code) == 7));
    return WEXITSTATUS(code) == 7;
}

static void test_ending_anywhere(void **state) {
    (void)state;
    int old_seen = 0, new_seen = 0, steps = 0;
    struct collection_options o = options;
    o.index_factory = INDEX_EXACT;
    build_ok(&o, 1);
    for (bool ended = true; ended; steps++) {
        int before = mark_of_collection(), mark = 2 + steps % 20;
        assert_int_not_equal(before, 0);
        if (mark == before) mark = 25;
        ended = build_until(steps, mark);
        int after = mark_of_collection();
        assert_true(after == before || after == mark);
        old_seen += after == before;
        new_seen += after == mark;
    }
    print_message("ended before each of %d steps: old %d times, new %d times\n", steps - 1,
                  old_seen, new_seen);
    assert_true(steps > 20 && old_seen > 10 && new_seen > 1);
    assert_true(count_generations() <= 2);
}

/* The same where there was none before: nothing opens, or the new one. */
static void test_ending_the_first(void **state) {
    (void)state;
    bool ended = true;
    for (int steps = 0; ended && mark_of_collection() == 0; steps++) {
        ended = build_until(steps, 3);
        int mark = mark_of_collection();
        assert_true(mark == 0 || mark == 3);
    }
    assert_int_equal(mark_of_collection(), 3);
}

static void test_names(void **state) {
    (void)state;
    static const char *const bad[] = {"gen-",
                                      "gen-000000",
                                      "gen-1",
                                      "gen-0000001",
                                      "gen-00000x",
                                      "gen-000001 ",
                                      "gen-99999999999999999999",
                                      "xen-000001",
                                      "gen--00001"};
    int n;
    char name[GENERATION_NAME_SIZE];
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) assert_false(generation_parse(bad[i], &n));
    assert_true(generation_parse("gen-000012", &n) && n == 12);
    generation_name(name, INT32_MAX);
    assert_true(generation_parse(name, &n) && n == INT32_MAX);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(test_round_trip),      IN_DIR(test_neighbor_tokens),  IN_DIR(test_match),
        IN_DIR(test_refused_input),   IN_DIR(test_damage_exact),     IN_DIR(test_damage_faiss),
        IN_DIR(test_forged_contents), IN_DIR(test_manifest_fields),  IN_DIR(test_generations),
        IN_DIR(test_abandon),         IN_DIR(test_two_writers),      IN_DIR(test_damaged_current),
        IN_DIR(test_ending_anywhere), IN_DIR(test_ending_the_first), cmocka_unit_test(test_names),
        IN_DIR(test_pictures),        IN_DIR(test_pictures_refused), IN_DIR(test_damage_pictures),
        IN_DIR(test_forged_pictures), IN_DIR(test_manifest_pictures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
