/* tests/unit/test_retriever.c: texts to neighbours with a toy embedder, whose vector of a text is
 * an axis: its first letter's. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "retrieval/retriever.h"
#include "retrieval/store/store.h"
#include "server/reading/retrieval_thread.h"
#include "tests/folder.h"

enum { DIM = 26, CHUNK = 2, EOD = 50, R = 4, MAX_K = 3 };

struct toy {
    int calls, texts;
    bool fails;
    enum embed_role role; /* of the last call */
};

/* "a" is axis 0, "b" axis 1; "ab" lies between them. */
static enum status toy_embed(void *self, const struct embed_request *r, struct error *e) {
    struct toy *toy = self;
    toy->calls++;
    toy->texts += r->n;
    toy->role = r->role;
    if (toy->fails) return error_set(e, STATUS_DEVICE, "the toy is broken");
    for (int i = 0; i < r->n; i++) {
        float *v = r->vectors + i * DIM;
        struct text_span text = r->texts[i];
        memset(v, 0, DIM * sizeof *v);
        for (size_t j = 0; j < text.size; j++) v[text.text[j] - 'a'] = 1 / sqrtf((float)text.size);
    }
    return STATUS_OK;
}

static struct toy toy;
static struct embedder embedder = {.dim = DIM,
                                   .hash = 5,
                                   .name = "toy",
                                   .prompts = {"", "", ""},
                                   .embed = toy_embed,
                                   .self = &toy};
static char dir[FOLDER_SIZE];
static struct collection *collection;
static struct retriever *retriever;

static struct text_span span(const char *s) { return (struct text_span){s, strlen(s)}; }

static struct retriever_query ask(const char *text, int k, float floor) {
    return (struct retriever_query){.text = span(text), .k = k, .r = R, .min_similarity = floor};
}

static void add(struct generation_builder *b, const char *path, const char *const *chunks, int n,
                int first_id) {
    struct error e = {0};
    int32_t ids[16];
    struct chunk_range ranges[16];
    for (int i = 0; i < CHUNK * n; i++) ids[i] = first_id + i;
    for (int i = 0; i < n; i++) {
        uint32_t first = (uint32_t)(CHUNK * i), end = (uint32_t)(CHUNK * (i + 1));
        ranges[i] = (struct chunk_range){first, end, first, CHUNK};
    }
    assert_int_equal(builder_add_document(
                         b,
                         &(struct collection_document){.path = path,
                                                       .title = "",
                                                       .text = {"0123456789", (size_t)(CHUNK * n)},
                                                       .ids = ids,
                                                       .chunks = ranges,
                                                       .n_chunks = n,
                                                       .n = CHUNK * n},
                         &e),
                     STATUS_OK);
    for (int i = 0; i < n; i++) {
        float vector[DIM];
        struct text_span text = span(chunks[i]);
        toy_embed(&toy, &(struct embed_request){.texts = &text, .n = 1, .vectors = vector}, &e);
        assert_int_equal(builder_add_vectors(b, vector, 1, &e), STATUS_OK);
    }
}

static int setup(void **state) {
    (void)state;
    static const char *const first[] = {"a", "b", "ab"}, *const second[] = {"c"};
    toy = (struct toy){0};
    struct collection_options o = {.chunk_length = CHUNK,
                                   .eod = EOD,
                                   .dim = DIM,
                                   .embedder_hash = 5,
                                   .tokenizer_hash = 6,
                                   .embedder = "toy",
                                   .tokenizer = "toy"};
    struct generation_builder *b;
    struct error e = {0};
    folder_make(dir);
    if (builder_create(&b, dir, &o, &e)) return 1;
    add(b, "first", first, 3, 10);
    add(b, "second", second, 1, 30);
    if (builder_commit(b, &e) || store_open(&collection, dir, &e)) return 1;
    toy = (struct toy){0};
    return retriever_open(&retriever, collection, (struct retriever_embedders){.texts = &embedder},
                          MAX_K, &e) != STATUS_OK;
}

static int teardown(void **state) {
    (void)state;
    retriever_close(retriever);
    collection_close(collection);
    folder_remove(dir);
    return 0;
}

static void test_batch(void **state) {
    (void)state;
    struct retriever_query queries[] = {ask("a", 2, -1), ask("c", 1, -1), ask("b", 100, 0.1F)};
    struct hits results[3];
    struct error e = {0};
    assert_int_equal(retriever_search(retriever, queries, 3, results, &e), STATUS_OK);
    assert_int_equal(toy.calls, 1);
    assert_int_equal(toy.texts, 3);
    assert_int_equal(results[0].n, 2);
    assert_int_equal(results[0].list[0].chunk, 0);
    assert_int_equal(results[0].list[1].chunk, 2);
    assert_true(results[0].list[0].similarity > 0.999F);
    assert_true(fabsf(results[0].list[1].similarity - sqrtf(0.5F)) < 1e-5F);
    static const int32_t ids[] = {10, 11, 12, 13, 14, 15, EOD, EOD};
    assert_memory_equal(results[0].ids, ids, sizeof ids);
    assert_int_equal(results[1].n, 1);
    assert_string_equal(results[1].list[0].path, "second");
    static const int32_t second_ids[] = {30, 31, EOD, EOD};
    assert_memory_equal(results[1].ids, second_ids, sizeof second_ids);
    /* k is capped at three, the floor leaves two. */
    assert_int_equal(results[2].n, 2);
    assert_int_equal(results[2].list[0].chunk, 1);
    assert_int_equal(results[2].list[1].chunk, 2);
    for (int i = 0; i < 3; i++) hits_free(&results[i]);
    assert_null(results[0].ids);
}

/* Excluded documents are found as little as if there were none such; the next ones take their
 * places. */
static void test_excluded_documents(void **state) {
    (void)state;
    char id[DOCUMENT_ID_SIZE];
    document_id_of_path("first", id);
    struct text_span by_path = span("first"), by_id = span(id), unknown = span("firs"),
                     both[] = {by_path, span("second")};
    struct retriever_query queries[] = {ask("a", 1, -1), ask("a", 3, -1), ask("a", 1, -1),
                                        ask("a", 1, -1), ask("a", 2, -1), ask("a", 1, 0.5F),
                                        ask("a", 1, -1)};
    struct hits results[ARRAY_COUNT(queries)];
    struct error e = {0};
    queries[0].excluded = queries[1].excluded = queries[5].excluded = &by_path;
    queries[2].excluded = &by_id;
    queries[3].excluded = &unknown;
    queries[4].excluded = both;
    for (size_t i = 0; i < 6; i++) queries[i].n_excluded = i == 4 ? 2 : 1;
    assert_int_equal(retriever_search(retriever, queries, ARRAY_COUNT(queries), results, &e),
                     STATUS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(results[i].n, 1);
        assert_string_equal(results[i].list[0].path, "second");
        assert_int_equal(results[i].ids[0], 30);
    }
    assert_int_equal(results[3].list[0].chunk, 0);
    assert_int_equal(results[4].n, 0);
    assert_int_equal(results[5].n, 0); /* the floor holds for those that take the places */
    assert_int_equal(results[6].list[0].chunk, 0);
    for (size_t i = 0; i < ARRAY_COUNT(queries); i++) hits_free(&results[i]);
}

/* A query whose asker is gone is not embedded, as far as pieces of texts allow; the others find
 * what they find alone.
 */
static void test_nobody_waits(void **state) {
    (void)state;
    enum { QUERIES = 40 };
    struct retriever_query queries[QUERIES];
    struct hits results[QUERIES];
    struct error e;
    atomic_bool gone = true, there = false;
    for (int i = 0; i < QUERIES; i++) {
        queries[i] = ask("a", 1, -1);
        queries[i].cancelled = &gone;
    }
    toy = (struct toy){0};
    assert_int_equal(retriever_search(retriever, queries, QUERIES, results, &e), STATUS_CANCELLED);
    assert_int_equal(toy.texts, 0);

    queries[QUERIES - 1].cancelled = &there;
    assert_int_equal(retriever_search(retriever, queries, QUERIES, results, &e), STATUS_OK);
    assert_in_range(toy.texts, 1, 8);
    assert_int_equal(results[QUERIES - 1].n, 1);
    for (int i = 0; i < QUERIES; i++) hits_free(&results[i]);
}

static void test_limits(void **state) {
    (void)state;
    struct error e = {0};
    struct hits results[2];
    struct retriever_query all = ask("a", 1000, -1), floor = ask("d", 3, 0.5F),
                           none = ask("a", 0, -1);
    assert_int_equal(retriever_search(retriever, &all, 1, results, &e), STATUS_OK);
    assert_int_equal(results[0].n, MAX_K);
    hits_free(&results[0]);
    assert_int_equal(retriever_search(retriever, &floor, 1, results, &e), STATUS_OK);
    assert_int_equal(results[0].n, 0);
    hits_free(&results[0]);
    toy.calls = 0;
    assert_int_equal(retriever_search(retriever, &none, 1, results, &e), STATUS_OK);
    assert_int_equal(results[0].n, 0);
    assert_int_equal(retriever_search(retriever, &all, 0, results, &e), STATUS_OK);
    assert_int_equal(toy.calls, 0);
    none.k = -4;
    struct retriever_query mixed[] = {none, all};
    assert_int_equal(retriever_search(retriever, mixed, 2, results, &e), STATUS_OK);
    assert_int_equal(results[0].n, 0);
    assert_int_equal(results[1].n, MAX_K);
    hits_free(&results[1]);
}

static void test_errors(void **state) {
    (void)state;
    struct error e = {0};
    struct retriever *t;
    struct hits result;
    struct retriever_query query = ask("a", 1, -1);
    toy.fails = true;
    assert_int_equal(retriever_search(retriever, &query, 1, &result, &e), STATUS_DEVICE);
    assert_string_equal(e.text, "the toy is broken");
    hits_free(&result);
    struct embedder other = embedder;
    other.hash = 7;
    assert_int_equal(
        retriever_open(&t, collection, (struct retriever_embedders){.texts = &other}, MAX_K, &e),
        STATUS_INVALID);
    other = embedder;
    other.dim = 4;
    assert_int_equal(
        retriever_open(&t, collection, (struct retriever_embedders){.texts = &other}, MAX_K, &e),
        STATUS_INVALID);
    other = embedder;
    other.prompts[EMBED_QUERY] = "query: ";
    assert_int_equal(
        retriever_open(&t, collection, (struct retriever_embedders){.texts = &other}, MAX_K, &e),
        STATUS_INVALID);
    assert_non_null(strstr(e.text, "retrieval.query_prompt"));
    assert_int_equal(
        retriever_open(&t, collection, (struct retriever_embedders){.texts = &embedder}, 0, &e),
        STATUS_INVALID);
}

/* A generation more: `mark` is the first token of its first document, and it has one chunk more. */
static void build_newer(const char *const *paths, int n, int mark) {
    static const char *const first[] = {"a", "b"};
    struct collection_options o = {.chunk_length = CHUNK,
                                   .eod = EOD,
                                   .dim = DIM,
                                   .embedder_hash = 5,
                                   .tokenizer_hash = 6,
                                   .embedder = "toy",
                                   .tokenizer = "toy",
                                   .index_factory = INDEX_EXACT};
    struct generation_builder *b;
    struct error e = {0};
    if (builder_create(&b, dir, &o, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) add(b, paths[i], first, 2, mark + 4 * i);
    if (builder_commit(b, &e)) fail_msg("%s", e.text);
}

/* Hits stay readable after everything that they came from was closed and removed. */
static void test_hits_pin(void **state) {
    (void)state;
    struct error e = {0};
    struct hits hits;
    struct retriever_query query = ask("b", 1, -1);
    assert_int_equal(retriever_search(retriever, &query, 1, &hits, &e), STATUS_OK);
    retriever_close(retriever);
    collection_close(collection);
    folder_remove(dir);
    retriever = NULL;
    collection = NULL;
    const struct hit *hit = &hits.list[0];
    assert_string_equal(hit->path, "first");
    assert_string_equal(hit->title, "");
    assert_int_equal(hit->start, 2);
    assert_int_equal(hit->end, 4);
    assert_int_equal(hit->text.size, 2);
    assert_memory_equal(hit->text.text, "23", 2);
    assert_int_equal(hit->n_tokens, 2);
    assert_int_equal(hit->tokens[0], 12);
    assert_int_equal(hits.ids[1], 13);
    hits_free(&hits);
    assert_null(hits.list);
    folder_make(dir);
}

/* A document keeps its id in whatever place it is, and two never share one. */
static void test_stable_ids(void **state) {
    (void)state;
    static const char *const paths[] = {"new", "second", "first"};
    struct error e = {0};
    char of_first[DOCUMENT_ID_SIZE], id[DOCUMENT_ID_SIZE];
    struct hits hits;
    struct retriever_query query = ask("b", 1, -1);
    assert_int_equal(retriever_search(retriever, &query, 1, &hits, &e), STATUS_OK);
    snprintf(of_first, sizeof of_first, "%s", hits.list[0].document);
    document_id_of_path("first", id);
    assert_string_equal(of_first, id);
    assert_int_equal(strlen(id), DOCUMENT_ID_SIZE - 1);
    hits_free(&hits);

    struct disk_generation *newer;
    build_newer(paths, 3, 60);
    assert_int_equal(disk_generation_open(&newer, dir, &e), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        struct chunk chunk = disk_generation_chunk(newer, 2 * i);
        document_id_of_path(paths[i], id);
        assert_string_equal(chunk.document_id, id);
        assert_true((strcmp(chunk.document_id, of_first) == 0) == (i == 2));
    }
    disk_generation_close(newer);
}

static enum status add_named(struct generation_builder *b, const char *path, const char *id,
                             struct error *e) {
    static const int32_t ids[] = {1};
    static const struct chunk_range chunk = {0, 1, 0, 1};
    float vector[DIM] = {1};
    struct collection_document d = {.id = id,
                                    .path = path,
                                    .title = "",
                                    .text = {"x", 1},
                                    .ids = ids,
                                    .chunks = &chunk,
                                    .n_chunks = 1,
                                    .n = 1};
    if (builder_add_document(b, &d, e)) return e->status;
    return builder_add_vectors(b, vector, 1, e);
}

static void test_callers_ids(void **state) {
    (void)state;
    struct error e = {0};
    struct generation_builder *b;
    struct collection_options o = {.chunk_length = 1,
                                   .eod = EOD,
                                   .dim = DIM,
                                   .embedder = "toy",
                                   .tokenizer = "toy",
                                   .index_factory = INDEX_EXACT};
    char too_long[600];
    memset(too_long, 'x', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    assert_int_equal(builder_create(&b, dir, &o, &e), STATUS_OK);
    assert_int_equal(add_named(b, "one", "ticket 7", &e), STATUS_OK);
    assert_int_equal(add_named(b, "two", "ticket 7", &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "ticket 7"));
    assert_int_equal(add_named(b, "two", NULL, &e), STATUS_OK);
    assert_int_equal(add_named(b, "two", NULL, &e), STATUS_INVALID);
    assert_int_equal(add_named(b, "three", "", &e), STATUS_INVALID);
    assert_int_equal(add_named(b, "three", too_long, &e), STATUS_INVALID);
    struct disk_generation *c = NULL;
    if (builder_commit(b, &e) || disk_generation_open(&c, dir, &e)) fail_msg("%s", e.text);
    assert_string_equal(disk_generation_chunk(c, 0).document_id, "ticket 7");
    assert_int_equal(disk_generation_info(c)->n_documents, 2);
    disk_generation_close(c);
}

/* A query finds what its snapshot has, beside queries of other snapshots and of the newest. */
static void test_snapshots_in_one_batch(void **state) {
    (void)state;
    static const char *const paths[] = {"newer"};
    struct error e = {0};
    struct snapshot *old = retriever_hold(retriever);
    build_newer(paths, 1, 60);
    assert_int_equal(collection_follow(collection, &e), STATUS_OK);
    assert_int_equal(old->n_chunks, 4);
    struct hits hits[3];
    struct retriever_query queries[] = {ask("a", 3, -1), ask("a", 3, -1), ask("a", 1, -1)};
    queries[0].snapshot = old;
    assert_int_equal(retriever_search(retriever, queries, 3, hits, &e), STATUS_OK);
    assert_string_equal(hits[0].list[0].path, "first");
    assert_int_equal(hits[0].n, 3);
    assert_string_equal(hits[1].list[0].path, "newer");
    assert_int_equal(hits[1].n, 2);
    assert_int_equal(hits[2].n, 1);
    assert_true(hits[0].pinned == old && hits[1].pinned != old);
    assert_true(hits[1].pinned->version > old->version);
    snapshot_release(old);
    for (int i = 0; i < 3; i++) hits_free(&hits[i]);
}

/* A vector in place of a text, and a hit without tokens for a model. */
static void test_vector_query(void **state) {
    (void)state;
    struct error e = {0};
    struct hits hits;
    float vector[DIM] = {0, 0, 1};
    struct retriever_query query = {.vector = vector, .k = 1, .min_similarity = -1};
    toy.calls = 0;
    assert_int_equal(retriever_search(retriever, &query, 1, &hits, &e), STATUS_OK);
    assert_int_equal(toy.calls, 0);
    assert_string_equal(hits.list[0].path, "second");
    assert_null(hits.ids);
    hits_free(&hits);
}

enum { REQUESTS = 8, GENERATIONS = 40 };

/* A request: holds a snapshot and reads all of it again and again, while newer ones come and it is
 * let go of. */
struct request {
    pthread_t thread;
    atomic_bool *stop;
    int rounds;
    bool wrong;
};

static bool read_all(struct snapshot *s) {
    int generation = s->info->generation;
    uint32_t mark = snapshot_chunk(s, 0).tokens[0];
    bool right = true;
    for (int64_t id = 0; id < s->n_chunks; id++) {
        struct chunk chunk = snapshot_chunk(s, id);
        int32_t ids[R];
        snapshot_neighbor_tokens(s, id, R, ids);
        /* The generation's number is in its first token, once it is one of ours. */
        right = right && chunk.text.size == 2 &&
                strlen(chunk.document_id) == DOCUMENT_ID_SIZE - 1 &&
                (generation == 1 || chunk.tokens[0] == mark + 2 * (uint32_t)id) &&
                ids[0] == (int32_t)chunk.tokens[0];
    }
    return right && (generation == 1 || mark == 100 * (uint32_t)generation);
}

static void *serve_request(void *argument) {
    struct request *r = argument;
    while (!atomic_load(r->stop) || r->rounds == 0) {
        struct snapshot *s = retriever_hold(retriever);
        for (int i = 0; i < 5; i++) r->wrong = r->wrong || !read_all(s);
        snapshot_release(s);
        r->rounds++;
    }
    return NULL;
}

static void test_generations_beside_requests(void **state) {
    (void)state;
    struct request requests[REQUESTS];
    atomic_bool stop = false;
    for (int i = 0; i < REQUESTS; i++) {
        requests[i] = (struct request){.stop = &stop};
        assert_int_equal(pthread_create(&requests[i].thread, NULL, serve_request, &requests[i]), 0);
    }
    for (int g = 2; g < 2 + GENERATIONS; g++) {
        static const char *const paths[] = {"x", "y", "z"};
        struct error e = {0};
        build_newer(paths, 1 + g % 3, 100 * g);
        assert_int_equal(collection_follow(collection, &e), STATUS_OK);
        struct snapshot *newest = collection_hold(collection);
        assert_int_equal(newest->info->generation, g);
        snapshot_release(newest);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < REQUESTS; i++) {
        pthread_join(requests[i].thread, NULL);
        assert_false(requests[i].wrong);
        assert_true(requests[i].rounds > 0);
    }
}

/* The later a chunk begins in its document, the more relevant it is. */
static enum status toy_rank(void *self, const struct embed_request *r, struct error *e) {
    struct toy *ranker = self;
    ranker->calls++;
    ranker->texts += r->n;
    if (ranker->fails) return error_set(e, STATUS_DEVICE, "the toy is broken");
    assert_true(r->query.size > 0);
    for (int i = 0; i < r->n; i++) r->vectors[i] = (float)(r->texts[i].text[0] - '0') / 10;
    return STATUS_OK;
}

static void test_reranked(void **state) {
    (void)state;
    struct toy ranks = {0};
    struct embedder reranker = {.dim = 1, .name = "ranks", .embed = toy_rank, .self = &ranks};
    struct retriever_query queries[] = {ask("a", 1, -1), ask("a", 3, -1), ask("a", 2, -1),
                                        ask("a", 2, 0.5F)};
    struct hits results[4];
    struct error e = {0};
    float vector[DIM] = {1};
    for (int i = 0; i < 4; i++) queries[i].choice.rerank = i == 2 ? 0 : 4;
    assert_int_equal(retriever_search(retriever, queries, 1, results, &e),
                     STATUS_OK); /* there is no reranker yet */
    assert_int_equal(results[0].list[0].chunk, 0);
    assert_true(results[0].list[0].relevance == -1);
    hits_free(&results[0]);

    retriever_set_reranker(retriever, &reranker);
    assert_int_equal(retriever_search(retriever, queries, 4, results, &e), STATUS_OK);
    assert_int_equal(ranks.calls, 3);
    assert_int_equal(ranks.texts, 4 + 4 + 2);
    static const int32_t best[] = {14, 15, EOD, EOD}, second[] = {12, 13, 14, 15};
    assert_int_equal(results[0].n, 1);
    assert_int_equal(results[0].list[0].chunk, 2);
    assert_true(results[0].list[0].relevance == 0.4F);
    assert_memory_equal(results[0].ids, best, sizeof best);
    assert_int_equal(results[1].n, 3);
    assert_memory_equal(results[1].ids + R, second, sizeof second);
    assert_int_equal(results[1].list[2].chunk,
                     0); /* as relevant as the other document's, and nearer */
    assert_int_equal(results[2].list[0].chunk, 0);
    assert_true(results[2].list[0].relevance == -1);
    assert_int_equal(results[3].n, 2); /* above the floor of the cosine */
    assert_int_equal(results[3].list[0].chunk, 2);
    for (int i = 0; i < 4; i++) hits_free(&results[i]);

    queries[0].vector = vector;
    queries[0].text = (struct text_span){0};
    assert_int_equal(retriever_search(retriever, queries, 1, results, &e),
                     STATUS_OK); /* nothing to read beside */
    assert_int_equal(results[0].list[0].chunk, 0);
    hits_free(&results[0]);
    ranks.fails = true;
    assert_int_equal(retriever_search(retriever, queries + 1, 1, results, &e), STATUS_DEVICE);
}

/* A collection whose words take as long as the test wants. */
static const struct collection_ops *quick_ops;
static atomic_bool words_begun, words_released, words_made;

static bool has_slow_words(struct collection *c, const struct snapshot *s) {
    (void)c, (void)s;
    return atomic_load(&words_made);
}

static enum status search_slow_words(struct collection *c, struct snapshot *s,
                                     const struct word_query *q, struct word_found *found,
                                     struct error *e) {
    atomic_store(&words_begun, true);
    while (!atomic_load(&words_released)) sched_yield();
    atomic_store(&words_made, true);
    return quick_ops->search_words(c, s, q, found, e);
}

static void note_done(struct lookup *l) { atomic_store((atomic_bool *)l->context, true); }

/* Searches by vectors are answered while a search by words waits for these. */
static void test_words_are_made_beside(void **state) {
    enum { LOOKUPS = 3 };
    struct error e;
    struct retrieval_thread *thread;
    struct retriever_query queries[LOOKUPS] = {ask("a", 1, -1), ask("b", 1, -1), ask("a", 1, -1)};
    struct hits hits[LOOKUPS] = {0};
    struct lookup lookups[LOOKUPS] = {0};
    atomic_bool done[LOOKUPS] = {false, false, false};
    struct collection_ops slow = *collection->ops;
    (void)state;
    quick_ops = collection->ops;
    slow.has_words = has_slow_words;
    slow.search_words = search_slow_words;
    collection->ops = &slow;
    queries[0].choice.way = queries[2].choice.way = RETRIEVE_BOTH;
    assert_int_equal(retrieval_thread_open(&thread, retriever, 8, 1, &e), STATUS_OK);
    for (int i = 0; i < LOOKUPS; i++)
        lookups[i] = (struct lookup){.queries = &queries[i],
                                     .hits = &hits[i],
                                     .n = 1,
                                     .done = note_done,
                                     .context = &done[i]};
    assert_int_equal(retrieval_thread_ask(thread, &lookups[0], &e), STATUS_OK);
    while (!atomic_load(&words_begun)) sched_yield();
    assert_int_equal(retrieval_thread_ask(thread, &lookups[1], &e), STATUS_OK);
    while (!atomic_load(&done[1])) sched_yield();
    assert_int_equal(retrieval_thread_ask(thread, &lookups[2], &e), STATUS_OK);
    assert_false(atomic_load(&done[0]));
    atomic_store(&words_released, true);
    for (int i = 0; i < LOOKUPS; i++) {
        while (!atomic_load(&done[i])) sched_yield();
        assert_int_equal(lookups[i].status, STATUS_OK);
        assert_int_equal(hits[i].n, 1);
        hits_free(&hits[i]);
        snapshot_release(lookups[i].snapshot);
    }
    retrieval_thread_close(thread);
    collection->ops = quick_ops;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reranked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_excluded_documents, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nobody_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hits_pin, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stable_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_callers_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshots_in_one_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_vector_query, setup, teardown),
        cmocka_unit_test_setup_teardown(test_words_are_made_beside, setup, teardown),
        cmocka_unit_test_setup_teardown(test_generations_beside_requests, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
