/* tests/unit/test_words.c: words of texts, and ranking by them against counting every word of every
 * chunk. */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "retrieval/search/ranking.h"
#include "retrieval/store/store.h"
#include "retrieval/words/word_cursor.h"
#include "retrieval/words/words_once.h"
#include "retrieval/words/words_writer.h"
#include "tests/folder.h"

static int split(const char *text, struct word_text words[64]) {
    return words_split((struct text_span){text, strlen(text)}, words, 64);
}

/* Whether two texts are the same words. */
static bool same_words(const char *a, const char *b) {
    struct word_text x[64], y[64];
    int n = split(a, x);
    return n == split(b, y) && (n == 0 || memcmp(x, y, (size_t)n * sizeof *x) == 0);
}

static void test_words(void **state) {
    struct word_text words[64];
    (void)state;
    assert_int_equal(split("", words), 0);
    assert_int_equal(split(" ,.-() \n", words), 0);
    assert_int_equal(split("one two, ONE (two)", words), 2);
    assert_int_equal(words_split((struct text_span){"a b c d", 7}, words, 2), 2);
    assert_true(same_words("The Files, entries", "the file entry"));
    assert_true(same_words("class status is as", "CLASS Status IS AS"));
    assert_false(same_words("class", "clas"));
    assert_false(same_words("status", "statu"));
    assert_true(same_words("ÄÖÜ Ñandú ΑΒΓ ДЖЯ Ĳ", "äöü ñandú αβγ джя Ĳ"));
    assert_true(same_words("“quoted”—dash… «x»", "quoted dash x"));
    assert_int_equal(split("日本語", words), 3);
    assert_int_equal(split("use日本now", words), 4);
    assert_int_equal(split("pthread_create", words), 3);
    assert_int_equal(split("__init__", words), 2); /* init, and the whole */
    assert_false(same_words("pthread_create", "pthread create"));
    assert_int_equal(split("\xc3", words), 0);
    assert_true(same_words("a\xc3 b", "a b"));
}

/* Whatever has a capital letter or another form of the same letters is the same word. */
static void test_folding(void **state) {
    static const char *const same[][2] = {{"ŁÓDŹ Łódź", "łódź łódź"},
                                          {"ČAPEK Čapek", "čapek čapek"},
                                          {"ŞİŞLİ Şişli", "şi̇şli̇ şişli"},
                                          {"ЁЛКА Ёлка", "ёлка ёлка"},
                                          {"ІСТОРІЯ Іван", "історія іван"},
                                          {"STRASSE", "straße"},
                                          {"ﬁnden Oﬃce", "finden office"},
                                          {"ＡＢＣ１２３", "abc123"},
                                          {"ΟΔΟΣ", "οδος"},
                                          {"ΟΔΟΣ", "οδός"},
                                          {"cafe\u0301", "CAFÉ"},
                                          {"ｶﾞ", "ガ"},
                                          {"x²", "x2"},
                                          {"Kaf\u00adfee", "kaffee"},
                                          {"a\u200bb", "a b"},
                                          {"\u1112\u1161\u11ab", "한"},
                                          {"ԱՐԵՎ", "արեվ"},
                                          {"🚢 ⅳ", "🚢 iv"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(same); i++)
        if (i != 9 && !same_words(same[i][0], same[i][1]))
            fail_msg("%s is not %s", same[i][0], same[i][1]);
    assert_false(same_words(same[9][0], same[9][1])); /* an accent tells words apart */
    struct word_text words[64];
    assert_int_equal(split("、。「」《》…–", words), 0);
    assert_int_equal(split("日本語。", words), 3);
}

static const char *const sample[] = {"one two two", "three", "", "two four ones"};
static struct text_span sample_text(void *context, int64_t chunk) {
    (void)context;
    return (struct text_span){sample[chunk], strlen(sample[chunk])};
}

static void open_cursor(struct word_cursor *cursor, const struct words *w,
                        const struct word_text *word) {
    struct word_list list;
    struct error e;
    if (words_find(w, (struct text_span){word->bytes, word->size}, &list, &e))
        fail_msg("%s", e.text);
    word_cursor_open(cursor, w, &list);
}

static void test_postings(void **state) {
    struct words *w;
    struct error e;
    struct word_text words[64];
    (void)state;
    assert_int_equal(words_make(&w, sample_text, NULL, 4, &e), STATUS_OK);
    assert_int_equal(split("two one none", words), 3);
    struct word_cursor two, one, none;
    open_cursor(&two, w, &words[0]);
    open_cursor(&one, w, &words[1]);
    open_cursor(&none, w, &words[2]);
    assert_int_equal(two.n, 2);
    assert_int_equal(two.chunk, 0);
    assert_int_equal(two.count, 2);
    uint32_t positions[4];
    assert_int_equal(word_cursor_positions(&two, positions, 4), 2);
    assert_int_equal(positions[0], 1);
    assert_int_equal(positions[1], 2);
    word_cursor_next(&two);
    assert_int_equal(two.chunk, 3);
    assert_int_equal(word_cursor_positions(&two, positions, 4), 1);
    assert_int_equal(positions[0], 0);
    word_cursor_next(&two);
    assert_true(two.chunk == WORD_END);
    assert_int_equal(one.n, 2);
    assert_int_equal(none.n, 0);
    assert_true(none.chunk == WORD_END);
    assert_int_equal(words_length(w, 0), 3);
    assert_int_equal(words_length(w, 2), 0);
    assert_int_equal(words_total(w), 7);
    assert_int_equal(words_count(w), 4);
    assert_int_equal(words_check(w, &e), STATUS_OK);
    words_free(w);
    assert_int_equal(words_make(&w, sample_text, NULL, 0, &e), STATUS_OK);
    open_cursor(&one, w, &words[1]);
    assert_true(one.chunk == WORD_END);
    assert_int_equal(words_check(w, &e), STATUS_OK);
    words_free(w);
}

/* Words that take as long as the test wants: their maker waits within the text of the first chunk.
 */
struct slow_text {
    atomic_bool begun, released;
    atomic_int n_made;
};

static struct text_span read_slow_text(void *context, int64_t chunk) {
    struct slow_text *slow = (struct slow_text *)(uintptr_t)context;
    if (chunk == 0) atomic_fetch_add(&slow->n_made, 1);
    atomic_store(&slow->begun, true);
    while (!atomic_load(&slow->released)) sched_yield();
    return sample_text(NULL, chunk);
}

/* One who asks for words in a thread of its own. */
struct word_asker {
    struct words_once *once;
    struct words_request request;
    const struct words *words;
    struct error error;
    enum status status;
    pthread_t thread;
};

static void *ask_for_words(void *argument) {
    struct word_asker *asker = argument;
    asker->status = words_once_get(asker->once, &asker->request, &asker->words, &asker->error);
    return NULL;
}

/* Words are made once for all who ask, and nobody else waits meanwhile. */
static void test_once(void **state) {
    struct slow_text slow = {0};
    struct words_once first, second;
    const struct words *other;
    atomic_bool cancelled = false;
    struct error e;
    struct word_asker askers[3] = {{.once = &first, .request = {read_slow_text, &slow, 4, NULL}}};
    (void)state;
    words_once_open(&first);
    words_once_open(&second);
    askers[1] = askers[2] = askers[0];
    askers[2].request.cancelled = &cancelled;
    assert_int_equal(pthread_create(&askers[0].thread, NULL, ask_for_words, &askers[0]), 0);
    while (!atomic_load(&slow.begun)) sched_yield();
    for (int i = 1; i < 3; i++)
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_for_words, &askers[i]), 0);
    struct words_request fast = {sample_text, NULL, 4, NULL};
    assert_int_equal(words_once_get(&second, &fast, &other, &e), STATUS_OK);
    atomic_store(&cancelled, true);
    pthread_join(askers[2].thread, NULL);
    assert_int_equal(askers[2].status, STATUS_CANCELLED);
    assert_null(askers[2].words);
    atomic_store(&slow.released, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].status, STATUS_OK);
    }
    assert_ptr_equal(askers[0].words, askers[1].words);
    assert_int_equal(atomic_load(&slow.n_made), 1);
    assert_int_equal(words_total(other), words_total(askers[0].words));
    words_once_close(&first);
    words_once_close(&second);
}

/* A collection of made-up texts. */
enum { DIM = 4, DOCUMENTS = 120, VOCABULARY = 30, LENGTH = 24, K = 8 };

static uint32_t seed = 7;
static uint32_t draw(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* A document of two chunks, each a text of its own. */
struct made {
    char id[16], title[8], metadata[32], text[2 * LENGTH * 4 + 1];
    int counts[2][VOCABULARY], lengths[2];
    int32_t ids[2];
    struct chunk_range chunks[2];
    float vectors[2 * DIM];
    bool there;
    struct collection_document document;
};

static void make(struct made *m, int number) {
    *m = (struct made){0};
    snprintf(m->id, sizeof m->id, "d%d", number);
    snprintf(m->metadata, sizeof m->metadata, "{\"half\":%d}", number % 2);
    uint32_t titled = draw(VOCABULARY);
    snprintf(m->title, sizeof m->title, "w%02u", titled);
    for (int part = 0; part < 2; part++) {
        int n = 1 + (int)draw(LENGTH);
        uint32_t start = (uint32_t)strlen(m->text);
        for (int i = 0; i < n; i++) {
            uint32_t word = draw(VOCABULARY) * draw(VOCABULARY) / VOCABULARY;
            snprintf(m->text + strlen(m->text), 5, "w%02u ", word);
            m->counts[part][word]++;
            m->lengths[part]++;
        }
        m->chunks[part] = (struct chunk_range){start, (uint32_t)strlen(m->text), (uint32_t)part, 1};
        m->counts[part][titled]++; /* a chunk is found by the title's words as well */
        m->lengths[part]++;
    }
    for (int i = 0; i < 2; i++) {
        double square = 1e-9;
        for (int j = 0; j < DIM; j++) {
            float x = (float)draw(2001) / 1000 - 1;
            m->vectors[i * DIM + j] = x;
            square += (double)x * (double)x;
        }
        for (int j = 0; j < DIM; j++) m->vectors[i * DIM + j] /= (float)sqrt(square);
    }
    m->document = (struct collection_document){.id = m->id,
                                               .path = m->id,
                                               .title = m->title,
                                               .metadata = m->metadata,
                                               .text = {m->text, strlen(m->text)},
                                               .ids = m->ids,
                                               .chunks = m->chunks,
                                               .n_chunks = 2,
                                               .n = 2};
}

struct world {
    struct made made[DOCUMENTS];
    struct collection *store;
};

static void open_world(struct world *w, int n) {
    struct collection_options o = {.chunk_length = 1,
                                   .eod = 9,
                                   .dim = DIM,
                                   .embedder = "toy",
                                   .tokenizer = "toy",
                                   .index_factory = INDEX_EXACT};
    struct generation_builder *b;
    struct error e;
    if (builder_create(&b, test_folder, &o, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < DOCUMENTS; i++) make(&w->made[i], i);
    for (int i = 0; i < n; i++) {
        w->made[i].there = true;
        if (builder_add_document(b, &w->made[i].document, &e) ||
            builder_add_vectors(b, w->made[i].vectors, 2, &e))
            fail_msg("%s", e.text);
    }
    if (builder_commit(b, &e) || store_open(&w->store, test_folder, &e)) fail_msg("%s", e.text);
}

/* BM25 of one chunk, from its counts; half: of which documents, 2: of all. Words that are in more
 * than an eighth of the chunks count for nothing where two rarer ones are there. */
static double score_of(const struct world *w, const struct made *m, int part, const int *query,
                       int n, int half) {
    double n_chunks = 0, total = 0, score = 0, there[VOCABULARY] = {0};
    int n_rare = 0;
    for (int i = 0; i < DOCUMENTS; i++) {
        if (!w->made[i].there || (half < 2 && i % 2 != half)) continue;
        for (int p = 0; p < 2; p++) {
            n_chunks++;
            total += w->made[i].lengths[p];
            for (int t = 0; t < VOCABULARY; t++) there[t] += w->made[i].counts[p][t] > 0;
        }
    }
    for (int i = 0; i < n; i++) n_rare += there[query[i]] > 0 && there[query[i]] * 8 <= n_chunks;
    for (int i = 0; i < n; i++) {
        double has = there[query[i]], count = m->counts[part][query[i]];
        if (count == 0 || (has * 8 > n_chunks && n_rare >= 2)) continue;
        double weight = log(1 + (n_chunks - has + 0.5) / (has + 0.5));
        score += weight * count * 2.2 /
                 (count + 1.2 * (0.25 + 0.75 * m->lengths[part] / (total / n_chunks)));
    }
    return score;
}

static void check_rank(const struct world *w, int half) {
    char text[64] = "";
    int query[5], n = 0;
    int64_t ids[K];
    float shares[K];
    struct word_found found = {.ids = ids, .shares = shares};
    struct error e;
    struct filter *filter = NULL;
    for (int i = 0; i < 5; i++) {
        int word = (int)(draw(VOCABULARY) * draw(VOCABULARY) / VOCABULARY), j = 0;
        while (j < n && query[j] != word) j++;
        if (j < n) continue;
        query[n] = word;
        n++;
        snprintf(text + strlen(text), 6, "W%02d, ", word);
    }
    if (half < 2)
        assert_int_equal(
            filter_parse(&filter, half ? "{\"eq\":{\"half\":1}}" : "{\"eq\":{\"half\":0}}", "test",
                         &e),
            STATUS_OK);
    struct snapshot *snapshot = collection_hold(w->store);
    struct word_query words = {.text = {text, strlen(text)}, .filter = filter, .k = K};
    assert_int_equal(store_search_words(snapshot, &words, &found, &e), STATUS_OK);
    double last = 1e9, best[K] = {0};
    for (int i = 0; i < 2 * DOCUMENTS; i++) {
        double score = w->made[i / 2].there && (half == 2 || i / 2 % 2 == half)
                           ? score_of(w, &w->made[i / 2], i % 2, query, n, half)
                           : 0;
        int at = K;
        while (at > 0 && best[at - 1] < score) at--;
        for (int j = K - 1; j > at; j--) best[j] = best[j - 1];
        if (at < K) best[at] = score;
    }
    for (int i = 0; i < K; i++) {
        assert_true((ids[i] >= 0) == (best[i] > 0));
        if (ids[i] < 0) continue;
        struct chunk c = snapshot_chunk(snapshot, ids[i]);
        const struct made *m = &w->made[atoi(c.document_id + 1)];
        assert_true(m->there);
        double score = score_of(w, m, c.start > 0, query, n, half);
        assert_true(fabs(score - best[i]) < 1e-4 && score <= last + 1e-4);
        assert_true(shares[i] > 0 && shares[i] <= 1 + 1e-6F);
        last = score;
    }
    snapshot_release(snapshot);
    filter_release(filter);
}

static void test_ranks(void **state) {
    struct world *w = calloc(1, sizeof *w);
    struct error e;
    enum change_effect effect;
    (void)state;
    open_world(w, 70);
    for (int i = 0; i < 150; i++) {
        check_rank(w, i % 3);
        int number = (int)draw(DOCUMENTS);
        struct made *m = &w->made[number];
        if (m->there)
            assert_int_equal(collection_delete(w->store, NULL, m->id, &e), STATUS_OK);
        else
            assert_int_equal(collection_put(w->store, NULL, &m->document, m->vectors, &effect, &e),
                             STATUS_OK);
        m->there = !m->there;
        if (i % 40 == 39) assert_int_equal(collection_compact(w->store, NULL, &e), STATUS_OK);
    }
    collection_close(w->store);
    free(w);
}

/* Candidates. */

static struct hits find(struct world *w, struct snapshot *snapshot, struct retriever_query query,
                        const float *vector, int k) {
    struct hits hits = {0};
    struct error e;
    query.snapshot = snapshot;
    struct ranked_query ranked = {.query = &query, .passages = vector, .k = k, .hits = &hits};
    if (ranking_find(w->store, &ranked, 1, &e)) fail_msg("%s", e.text);
    return hits;
}

/* The place of a chunk in a list of the best 100. */
static int rank_in(const struct hits *hits, int64_t id) {
    for (int i = 0; i < hits->n; i++)
        if (hits->list[i].chunk == id) return i + 1;
    return 0;
}

static void test_fusion(void **state) {
    struct world *w = calloc(1, sizeof *w);
    struct retriever_query query = {.text = {"w01 w02 w17", 11}, .min_similarity = -1};
    (void)state;
    open_world(w, DOCUMENTS);
    struct snapshot *snapshot = collection_hold(w->store);
    const float *vector = w->made[5].vectors;
    struct hits nearest = find(w, snapshot, query, vector, 100);
    query.choice.way = RETRIEVE_WORDS;
    struct hits words = find(w, snapshot, query, vector, 100);
    query.choice.way = RETRIEVE_BOTH;
    struct hits both = find(w, snapshot, query, vector, 20),
                again = find(w, snapshot, query, vector, 5);
    assert_int_equal(both.n, 20);
    float last = 1e9F;
    for (int i = 0; i < both.n; i++) {
        const struct hit_worth *worth = &both.list[i].worth;
        bool seen = rank_in(&nearest, both.list[i].chunk) || rank_in(&words, both.list[i].chunk);
        assert_true(seen && worth->total > 0 && worth->total <= last);
        assert_true(fabsf(worth->total - worth->vectors - worth->weight * worth->words) < 1e-4F);
        assert_true(worth->vectors >= 0 && worth->vectors <= 1 && worth->exact == 0);
        last = worth->total;
        if (i < again.n) assert_int_equal(again.list[i].chunk, both.list[i].chunk);
        float similarity = 0;
        for (int j = 0; j < DIM; j++)
            similarity += vector[j] *
                          w->made[both.list[i].chunk / 2].vectors[both.list[i].chunk % 2 * DIM + j];
        assert_true(fabsf(similarity - both.list[i].similarity) < 1e-5F);
    }
    query.min_similarity = 0.5F;
    struct hits near = find(w, snapshot, query, vector, 20);
    for (int i = 0; i < near.n; i++) assert_true(near.list[i].similarity >= 0.5F);
    hits_free(&near);
    hits_free(&again);
    hits_free(&both);
    hits_free(&words);
    hits_free(&nearest);
    snapshot_release(snapshot);
    collection_close(w->store);
    free(w);
}

static void test_leaving_out(void **state) {
    struct world *w = calloc(1, sizeof *w);
    struct retriever_query query = {
        .text = {"w01", 3}, .min_similarity = -1, .choice = {.per_document = 1}};
    (void)state;
    open_world(w, DOCUMENTS);
    struct snapshot *snapshot = collection_hold(w->store);
    const float *vector = w->made[5].vectors;
    struct hits one = find(w, snapshot, query, vector, DOCUMENTS);
    assert_int_equal(one.n, DOCUMENTS);
    for (int i = 0; i < one.n; i++)
        for (int j = 0; j < i; j++) assert_true(one.list[i].chunk / 2 != one.list[j].chunk / 2);

    query.choice = (struct retriever_choice){.distinct = 0.9F};
    struct hits apart = find(w, snapshot, query, vector, 2 * DOCUMENTS);
    assert_in_range(apart.n, 2, 2 * DOCUMENTS - 1);
    for (int i = 0; i < apart.n; i++) {
        for (int j = 0; j < i; j++) {
            const float *a =
                w->made[apart.list[i].chunk / 2].vectors + apart.list[i].chunk % 2 * DIM;
            const float *b =
                w->made[apart.list[j].chunk / 2].vectors + apart.list[j].chunk % 2 * DIM;
            float similarity = 0;
            for (int d = 0; d < DIM; d++) similarity += a[d] * b[d];
            assert_true(similarity < 0.9001F);
        }
    }
    hits_free(&apart);
    hits_free(&one);
    snapshot_release(snapshot);
    collection_close(w->store);
    free(w);
}

/* A collection whose nearest chunk goes while it is found. */
static const struct collection_ops *whole_ops;
static int n_searches;

static enum status search_without_first(struct collection *c, struct snapshot *s,
                                        const struct nearest_query *q, struct nearest_found *out,
                                        struct error *e) {
    enum status status = whole_ops->search(c, s, q, out, e);
    n_searches++;
    for (int i = 0; i < q->n && status == STATUS_OK; i++) out->ids[i * q->k] = FOUND_GONE;
    return status;
}

/* The next nearest take the place of what has gone. */
static void test_gone_meanwhile(void **state) {
    struct world *w = calloc(1, sizeof *w);
    struct retriever_query query = {.min_similarity = -1};
    (void)state;
    open_world(w, DOCUMENTS);
    struct snapshot *snapshot = collection_hold(w->store);
    struct collection_ops ops = *w->store->ops;
    struct hits whole = find(w, snapshot, query, w->made[5].vectors, K + 1);
    whole_ops = w->store->ops;
    ops.search = search_without_first;
    w->store->ops = &ops;
    struct hits rest = find(w, snapshot, query, w->made[5].vectors, K);
    assert_int_equal(n_searches, 2);
    assert_int_equal(rest.n, K);
    for (int i = 0; i < K; i++) assert_int_equal(rest.list[i].chunk, whole.list[i + 1].chunk);
    w->store->ops = whole_ops;
    hits_free(&rest);
    hits_free(&whole);
    snapshot_release(snapshot);
    collection_close(w->store);
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_folding),
        cmocka_unit_test(test_postings),
        cmocka_unit_test(test_once),
        cmocka_unit_test_setup_teardown(test_ranks, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fusion, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_leaving_out, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_gone_meanwhile, folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
