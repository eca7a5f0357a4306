/* tests/unit/test_two_embedders.c: passages and pictures in one collection, each by an embedder of
 * their own. The toy for texts has an axis for each letter; the toy for pictures has three, red,
 * green and blue, and of a text it sees the letters r, g and b. */
#include <math.h>
#include <string.h>

#include "retrieval/retriever.h"
#include "retrieval/store/store.h"
#include "tests/folder.h"

enum { DIM = 26, COLORS = 3, EOD = 50, MAX_K = 8 };

struct toy {
    int calls, texts, pictures;
};

static void make_unit(float *v, int n) {
    double square = 0;
    for (int i = 0; i < n; i++) square += (double)v[i] * (double)v[i];
    for (int i = 0; i < n && square > 0; i++) v[i] = (float)(v[i] / sqrt(square));
}

static enum status embed_letters(void *self, const struct embed_request *r, struct error *e) {
    struct toy *toy = self;
    (void)e;
    assert_null(r->pictures);
    toy->calls++;
    toy->texts += r->n;
    for (int i = 0; i < r->n; i++) {
        float *v = r->vectors + i * DIM;
        memset(v, 0, DIM * sizeof *v);
        for (size_t j = 0; j < r->texts[i].size; j++) v[r->texts[i].text[j] - 'a'] = 1;
        make_unit(v, DIM);
    }
    return STATUS_OK;
}

static enum status embed_colors(void *self, const struct embed_request *r, struct error *e) {
    struct toy *toy = self;
    (void)e;
    toy->calls++;
    toy->texts += r->pictures ? 0 : r->n;
    toy->pictures += r->pictures ? r->n : 0;
    for (int i = 0; i < r->n; i++) {
        float *v = r->vectors + i * COLORS;
        memset(v, 0, COLORS * sizeof *v);
        if (r->pictures) memcpy(v, r->pictures[i].pixels, COLORS * sizeof *v);
        for (size_t j = 0; r->pictures == NULL && j < r->texts[i].size; j++) {
            const char *color = strchr("rgb", r->texts[i].text[j]);
            if (color) v[strlen("rgb") - strlen(color)] = 1;
        }
        make_unit(v, COLORS);
    }
    return STATUS_OK;
}

static struct toy reader, eyes;
static const struct embedder letters = {.dim = DIM,
                                        .hash = 5,
                                        .name = "letters",
                                        .prompts = {"", "", ""},
                                        .embed = embed_letters,
                                        .self = &reader};
static const struct embedder colors = {.dim = COLORS,
                                       .hash = 6,
                                       .name = "colors",
                                       .sees = true,
                                       .prompts = {"", "", ""},
                                       .embed = embed_colors,
                                       .self = &eyes};
static struct collection *collection;
static struct retriever *retriever;

/* A document whose chunks are single tokens. */
struct made {
    struct collection_document document;
    char text[64];
    int32_t ids[4];
    struct chunk_range chunks[4];
    float vectors[4 * DIM], picture[COLORS];
};

static void make(struct made *m, const char *name, const char *const *chunks, int n,
                 const float *picture) {
    struct error e;
    *m = (struct made){0};
    for (int i = 0; i < n; i++) {
        struct text_span text = {chunks[i], strlen(chunks[i])};
        uint32_t start = (uint32_t)strlen(m->text);
        m->ids[i] = i + 1;
        strcat(m->text, chunks[i]);
        m->chunks[i] = (struct chunk_range){start, (uint32_t)strlen(m->text), (uint32_t)i, 1};
        embed_letters(
            &reader,
            &(struct embed_request){.texts = &text, .n = 1, .vectors = m->vectors + i * DIM}, &e);
    }
    if (picture) memcpy(m->picture, picture, sizeof m->picture);
    m->document = (struct collection_document){.id = name,
                                               .path = name,
                                               .title = "",
                                               .text = {m->text, strlen(m->text)},
                                               .ids = m->ids,
                                               .chunks = m->chunks,
                                               .n_chunks = n,
                                               .n = n,
                                               .picture = picture ? m->picture : NULL};
}

static void build(struct generation_builder *b, const char *name, const char *const *chunks, int n,
                  const float *picture) {
    struct made m;
    struct error e;
    make(&m, name, chunks, n, picture);
    if (builder_add_document(b, &m.document, &e) || builder_add_vectors(b, m.vectors, n, &e))
        fail_msg("%s", e.text);
}

static void put(const char *name, const char *caption, const float *picture) {
    struct made m;
    struct error e;
    enum change_effect effect;
    make(&m, name, &caption, 1, picture);
    if (collection_put(collection, NULL, &m.document, m.vectors, &effect, &e))
        fail_msg("%s", e.text);
}

static const float red[COLORS] = {1, 0, 0}, green[COLORS] = {0, 1, 0}, blue[COLORS] = {0, 0, 1};

static const struct collection_options options = {
    .chunk_length = 1,
    .eod = EOD,
    .dim = DIM,
    .embedder_hash = 5,
    .embedder = "letters",
    .tokenizer = "toy",
    .index_factory = INDEX_EXACT,
    .pictures = {.embedder = "colors", .embedder_hash = 6, .dim = COLORS},
};

/* Chunks 0 to 2 of "text", 3 of the picture "red", 4 of "more", 5 of "green"; in the log 6 of
 * "blue". */
static int setup(void **state) {
    static const char *const text[] = {"a", "b", "ab"}, *const more[] = {"c"},
                             *const rose[] = {"r"}, *const lawn[] = {"x"};
    struct generation_builder *b;
    struct error e;
    if (folder_set_up(state) || builder_create(&b, test_folder, &options, &e)) return 1;
    build(b, "text", text, 3, NULL);
    build(b, "red", rose, 1, red);
    build(b, "more", more, 1, NULL);
    build(b, "green", lawn, 1, green);
    if (builder_commit(b, &e) || store_open(&collection, test_folder, &e)) return 1;
    put("blue", "ab", blue);
    reader = eyes = (struct toy){0};
    return retriever_open(&retriever, collection, (struct retriever_embedders){&letters, &colors},
                          MAX_K, &e) != STATUS_OK;
}

static int teardown(void **state) {
    retriever_close(retriever);
    collection_close(collection);
    return folder_tear_down(state);
}

static struct retriever_query ask(const char *text, float floor) {
    return (struct retriever_query){
        .text = {text, strlen(text)}, .k = MAX_K, .min_similarity = floor};
}

/* A hit that is expected. */
struct expected {
    int64_t chunk;
    unsigned by;
    float similarity;
};

static void expect(const struct retriever_query *query, const struct expected *list, int n) {
    struct error e;
    struct hits hits;
    if (retriever_search(retriever, query, 1, &hits, &e)) fail_msg("%s", e.text);
    assert_int_equal(hits.n, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(hits.list[i].chunk, list[i].chunk);
        assert_int_equal(hits.list[i].by, list[i].by);
        assert_true(fabsf(hits.list[i].similarity - list[i].similarity) < 1e-5F);
    }
    hits_free(&hits);
}
#define EXPECT(query, ...) \
    do { \
        const struct expected expected_[] = {__VA_ARGS__}; \
        expect((query), expected_, (int)(sizeof expected_ / sizeof expected_[0])); \
    } while (0)

static const float half = 0.70710678F;

static void test_fusion(void **state) {
    (void)state;
    struct retriever_query query = ask("r", 0.5F);
    EXPECT(&query, {3, HIT_BY_PASSAGES | HIT_BY_PICTURES, 1});
    query = ask("g", 0.5F);
    EXPECT(&query, {5, HIT_BY_PICTURES, 1});
    query = ask("a", 0.5F);
    EXPECT(&query, {0, HIT_BY_PASSAGES, 1}, {2, HIT_BY_PASSAGES, half}, {6, HIT_BY_PASSAGES, half});
    /* Third among passages and first among pictures: 1 / 13 + 1 / 11, before 1 / 11. */
    query = ask("b", 0.5F);
    EXPECT(&query, {6, HIT_BY_PASSAGES | HIT_BY_PICTURES, 1}, {1, HIT_BY_PASSAGES, 1},
           {2, HIT_BY_PASSAGES, half});
    /* A passage and a picture of the same rank: the passage comes first. */
    query = ask("cg", 0.5F);
    EXPECT(&query, {4, HIT_BY_PASSAGES, half}, {5, HIT_BY_PICTURES, 1});
    query.k = 1;
    EXPECT(&query, {4, HIT_BY_PASSAGES, half});
}

static void test_passages_alone(void **state) {
    (void)state;
    struct retriever_query query = ask("b", 0.5F);
    query.choice.no_pictures = true;
    EXPECT(&query, {1, HIT_BY_PASSAGES, 1}, {2, HIT_BY_PASSAGES, half}, {6, HIT_BY_PASSAGES, half});
    query = ask("b", 0.5F);
    query.r = 2; /* a model that attends reads tokens */
    EXPECT(&query, {1, HIT_BY_PASSAGES, 1}, {2, HIT_BY_PASSAGES, half}, {6, HIT_BY_PASSAGES, half});
    assert_int_equal(eyes.calls, 0);
    assert_int_equal(reader.texts, 2);
}

static void test_by_picture(void **state) {
    (void)state;
    float pixels[COLORS] = {0, 4, 3};
    struct embedder_picture picture = {.pixels = pixels, .height = 1, .width = 1};
    struct retriever_query query = {.picture = &picture, .k = MAX_K, .min_similarity = 0.1F};
    EXPECT(&query, {5, HIT_BY_PICTURES, 0.8F}, {6, HIT_BY_PICTURES, 0.6F});
    assert_int_equal(reader.calls, 0);
    assert_int_equal(eyes.pictures, 1);
    query.choice.no_pictures = true;
    expect(&query, NULL, 0);
}

static void test_given_vectors(void **state) {
    (void)state;
    float vector[DIM] = {[2] = 1};
    struct retriever_query query = {.vector = vector, .k = MAX_K, .min_similarity = 0.5F};
    EXPECT(&query, {4, HIT_BY_PASSAGES, 1});
    query.picture_vector = red;
    EXPECT(&query, {4, HIT_BY_PASSAGES, 1}, {3, HIT_BY_PICTURES, 1});
    query.vector = NULL;
    EXPECT(&query, {3, HIT_BY_PICTURES, 1});
    assert_int_equal(reader.calls + eyes.calls, 0);
}

/* Queries of all kinds at once get what each gets by itself, and each text is embedded once by each
 * embedder. */
static void test_together(void **state) {
    (void)state;
    float pixels[COLORS] = {0, 0, 9};
    struct embedder_picture picture = {.pixels = pixels, .height = 1, .width = 1};
    struct retriever_query queries[] = {ask("b", 0.5F), ask("b", 0.5F), ask("", 0.5F), ask("g", -1),
                                        ask("b", -1)};
    struct hits together[5], alone;
    struct error e;
    queries[1].choice.no_pictures = true;
    queries[2].picture = &picture;
    queries[4].k = 0;
    if (retriever_search(retriever, queries, 5, together, &e)) fail_msg("%s", e.text);
    assert_int_equal(reader.texts, 3);
    assert_true(eyes.texts == 2 && eyes.pictures == 1);
    for (int i = 0; i < 5; i++) {
        if (retriever_search(retriever, &queries[i], 1, &alone, &e)) fail_msg("%s", e.text);
        assert_int_equal(alone.n, together[i].n);
        for (int j = 0; j < alone.n; j++) {
            assert_int_equal(alone.list[j].chunk, together[i].list[j].chunk);
            assert_int_equal(alone.list[j].by, together[i].list[j].by);
        }
        hits_free(&alone);
        hits_free(&together[i]);
    }
}

/* Documents that went or are left out are in neither list. */
static void test_left_out(void **state) {
    (void)state;
    struct error e;
    const struct text_span names[] = {{"green", 5}};
    struct retriever_query query = ask("rg", 0.5F);
    EXPECT(&query, {3, HIT_BY_PASSAGES | HIT_BY_PICTURES, half}, {5, HIT_BY_PICTURES, half});
    query.excluded = names;
    query.n_excluded = 1;
    EXPECT(&query, {3, HIT_BY_PASSAGES | HIT_BY_PICTURES, half});

    struct filter *filter;
    query = ask("rgb", 0.5F);
    assert_int_equal(filter_parse(&filter, "{\"prefix\": {\"path\": \"b\"}}", "filter", &e),
                     STATUS_OK);
    query.filter = filter;
    EXPECT(&query, {6, HIT_BY_PICTURES, sqrtf(1 / 3.0F)});
    filter_release(filter);

    assert_int_equal(collection_delete(collection, NULL, "red", &e), STATUS_OK);
    put("blue", "z", green);
    query = ask("rb", 0.4F);
    EXPECT(&query, {1, HIT_BY_PASSAGES, half}, {2, HIT_BY_PASSAGES, 0.5F});
    query = ask("g", 0.5F);
    EXPECT(&query, {5, HIT_BY_PICTURES, 1}, {7, HIT_BY_PICTURES, 1});
    assert_int_equal(collection_compact(collection, NULL, &e), STATUS_OK);
    EXPECT(&query, {4, HIT_BY_PICTURES, 1}, {5, HIT_BY_PICTURES, 1});
    assert_int_equal(collection_delete(collection, NULL, "green", &e), STATUS_OK);
    assert_int_equal(collection_delete(collection, NULL, "blue", &e), STATUS_OK);
    expect(&query, NULL, 0);
    assert_int_equal(collection_compact(collection, NULL, &e),
                     STATUS_OK); /* to a generation without pictures */
    expect(&query, NULL, 0);
    put("green", "x", green);
    EXPECT(&query, {4, HIT_BY_PICTURES, 1});
}

/* Pictures are near-duplicates of pictures, by their own vectors, and passages of passages. */
static void test_near_duplicates(void **state) {
    (void)state;
    put("rose", "y", red);   /* chunk 7: the same picture as 3, with another caption */
    put("leaf", "r", green); /* chunk 8: the same caption as 3, and the same picture as 5 */
    struct retriever_query query = ask("r", 0.5F);
    EXPECT(&query, {3, HIT_BY_PASSAGES | HIT_BY_PICTURES, 1}, {8, HIT_BY_PASSAGES, 1},
           {7, HIT_BY_PICTURES, 1});
    query.choice.distinct = 0.9F;
    EXPECT(&query, {3, HIT_BY_PASSAGES | HIT_BY_PICTURES, 1}, {8, HIT_BY_PASSAGES, 1});
    query.choice.distinct = 0;
    query.choice.per_document = 1;
    query.k = 1;
    EXPECT(&query, {3, HIT_BY_PASSAGES | HIT_BY_PICTURES, 1});
}

/* The shade of picture i, a unit vector. */
static void make_shade(float *v, int i) {
    double angle = (i * 7919 % 10007) * 1e-4;
    v[0] = (float)cos(angle);
    v[1] = (float)sin(angle);
    v[2] = 0;
}

/* More pictures than are compared one by one where a filter allows half of them, and documents
 * between them. */
static void test_many_pictures(void **state) {
    (void)state;
    enum { PICTURES = 5000 };
    static const char *const caption[] = {"z"};
    struct generation_builder *b;
    struct error e;
    char name[16];
    float shade[COLORS];
    if (builder_create(&b, test_folder, &options, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < 2 * PICTURES; i++) {
        bool is_picture = i % 2 == 1;
        make_shade(shade, i);
        snprintf(name, sizeof name, "%c %d", i % 20 == 1 ? 'x' : 'y', i);
        build(b, name, caption, 1, is_picture ? shade : NULL);
    }
    if (builder_commit(b, &e) || collection_follow(collection, &e)) fail_msg("%s", e.text);

    struct filter *filter;
    assert_int_equal(filter_parse(&filter, "{\"prefix\": {\"path\": \"y\"}}", "filter", &e),
                     STATUS_OK);
    make_shade(shade, 0);
    struct retriever_query query = {
        .picture_vector = shade, .k = MAX_K, .min_similarity = -1, .filter = filter};
    struct hits hits;
    if (retriever_search(retriever, &query, 1, &hits, &e)) fail_msg("%s", e.text);
    assert_int_equal(hits.n, MAX_K);
    float worst = hits.list[MAX_K - 1].similarity;
    int n_nearer = 0;
    for (int i = 1; i < 2 * PICTURES; i += 2) {
        float other[COLORS];
        make_shade(other, i);
        if (i % 20 != 1) n_nearer += other[0] * shade[0] + other[1] * shade[1] > worst + 1e-6F;
    }
    assert_in_range(n_nearer, 0, MAX_K - 1);
    for (int i = 0; i < MAX_K; i++) {
        assert_true(hits.list[i].path[0] == 'y' && hits.list[i].chunk % 2 == 1);
        make_shade(shade, (int)hits.list[i].chunk);
        assert_true(fabsf(shade[0] - hits.list[i].similarity) < 1e-5F);
    }
    hits_free(&hits);
    filter_release(filter);
}

static void test_words(void **state) {
    (void)state;
    struct retriever_query query = ask("x", 0.5F);
    query.choice.way = RETRIEVE_BOTH;
    EXPECT(&query, {5, HIT_BY_PASSAGES | HIT_BY_WORDS, 1});
    query = ask("r", 0.5F);
    query.choice.way = RETRIEVE_BOTH;
    EXPECT(&query, {3, HIT_BY_PASSAGES | HIT_BY_WORDS | HIT_BY_PICTURES, 1});
    query.choice.way = RETRIEVE_WORDS;
    EXPECT(&query, {3, HIT_BY_WORDS, 1});
    const char *names[HIT_LISTS];
    struct hit hit = {.by = HIT_BY_WORDS | HIT_BY_PICTURES};
    assert_int_equal(hit_list_names(&hit, names), 2);
    assert_string_equal(names[0], "words");
    assert_string_equal(names[1], "pictures");
}

static void test_other_embedders(void **state) {
    (void)state;
    struct retriever *t;
    struct error e;
    struct embedder other = colors;
    other.hash = 7;
    assert_int_equal(
        retriever_open(&t, collection, (struct retriever_embedders){.texts = &letters}, MAX_K, &e),
        STATUS_INVALID);
    assert_int_equal(
        retriever_open(&t, collection, (struct retriever_embedders){&letters, &other}, MAX_K, &e),
        STATUS_INVALID);
    assert_non_null(strstr(e.text, "pictures"));
    assert_int_equal(
        retriever_open(&t, collection, (struct retriever_embedders){&colors, &letters}, MAX_K, &e),
        STATUS_INVALID);
}

#define IN_COLLECTION(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_COLLECTION(test_fusion),          IN_COLLECTION(test_passages_alone),
        IN_COLLECTION(test_by_picture),      IN_COLLECTION(test_given_vectors),
        IN_COLLECTION(test_together),        IN_COLLECTION(test_left_out),
        IN_COLLECTION(test_words),           IN_COLLECTION(test_near_duplicates),
        IN_COLLECTION(test_other_embedders), IN_COLLECTION(test_many_pictures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
