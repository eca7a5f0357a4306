/* tests/unit/test_words.c: words of texts, and ranking by them against counting every word of every chunk. */
#include <math.h>
#include <string.h>

#include "retrieval/candidates.h"
#include "retrieval/words/words.h"
#include "tests/folder.h"

static int split(const char *text, uint64_t words[64]) {
    return words_split((struct text_span){text, strlen(text)}, words, 64);
}

/* Whether two texts are the same words. */
static bool same_words(const char *a, const char *b) {
    uint64_t x[64], y[64];
    int n = split(a, x);
    return n == split(b, y) && (n == 0 || memcmp(x, y, (size_t)n * sizeof *x) == 0);
}

static void test_words(void **state) {
    uint64_t words[64];
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
        if (i != 9 && !same_words(same[i][0], same[i][1])) fail_msg("%s is not %s", same[i][0], same[i][1]);
    assert_false(same_words(same[9][0], same[9][1])); /* an accent tells words apart */
    uint64_t words[64];
    assert_int_equal(split("、。「」《》…–", words), 0);
    assert_int_equal(split("日本語。", words), 3);
}

static const char *const sample[] = {"one two two", "three", "", "two four ones"};
static struct text_span sample_text(const void *context, int64_t chunk) {
    (void)context;
    return (struct text_span){sample[chunk], strlen(sample[chunk])};
}

static void test_postings(void **state) {
    struct words *w;
    struct error e;
    uint64_t words[64];
    (void)state;
    assert_int_equal(words_make(&w, sample_text, NULL, 4, &e), STATUS_OK);
    assert_int_equal(split("two one none", words), 3);
    struct postings two = words_find(w, words[0]), one = words_find(w, words[1]), none = words_find(w, words[2]);
    assert_int_equal(two.n, 2);
    assert_int_equal(two.list[0].chunk, 0);
    assert_int_equal(two.list[0].count, 2);
    assert_int_equal(two.list[1].chunk, 3);
    assert_int_equal(one.n, 2);
    assert_int_equal(none.n, 0);
    assert_int_equal(words_length(w, 0), 3);
    assert_int_equal(words_length(w, 2), 0);
    assert_int_equal(words_total(w), 7);
    words_free(w);
    assert_int_equal(words_make(&w, sample_text, NULL, 0, &e), STATUS_OK);
    assert_int_equal(words_find(w, words[0]).n, 0);
    words_free(w);
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
    char id[16], metadata[32], text[2 * LENGTH * 4 + 1];
    int counts[2][VOCABULARY], lengths[2];
    int32_t ids[2];
    uint32_t bounds[3];
    float vectors[2 * DIM];
    bool there;
    struct collection_document document;
};

static void make(struct made *m, int number) {
    *m = (struct made){0};
    snprintf(m->id, sizeof m->id, "d%d", number);
    snprintf(m->metadata, sizeof m->metadata, "{\"half\":%d}", number % 2);
    for (int part = 0; part < 2; part++) {
        int n = 1 + (int)draw(LENGTH);
        m->bounds[part] = (uint32_t)strlen(m->text);
        for (int i = 0; i < n; i++) {
            uint32_t word = draw(VOCABULARY) * draw(VOCABULARY) / VOCABULARY;
            snprintf(m->text + strlen(m->text), 5, "w%02u ", word);
            m->counts[part][word]++;
            m->lengths[part]++;
        }
    }
    m->bounds[2] = (uint32_t)strlen(m->text);
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
                                               .title = "",
                                               .metadata = m->metadata,
                                               .text = {m->text, strlen(m->text)},
                                               .ids = m->ids,
                                               .bounds = m->bounds,
                                               .n = 2};
}

struct world {
    struct made made[DOCUMENTS];
    struct living *living;
};

static void open_world(struct world *w, int n) {
    struct collection_options o = {
        .chunk_length = 1, .eod = 9, .dim = DIM, .embedder = "toy", .tokenizer = "toy", .index_factory = INDEX_EXACT};
    struct collection_builder *b;
    struct error e;
    if (collection_create(&b, test_folder, &o, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < DOCUMENTS; i++) make(&w->made[i], i);
    for (int i = 0; i < n; i++) {
        w->made[i].there = true;
        if (collection_add_document(b, &w->made[i].document, &e) ||
            collection_add_vectors(b, w->made[i].vectors, 2, &e))
            fail_msg("%s", e.text);
    }
    if (collection_commit(b, &e) || living_open(&w->living, test_folder, &e)) fail_msg("%s", e.text);
}

/* BM25 of one chunk, from its counts; half: of which documents, 2: of all. Words that are in more than an eighth of the
 * chunks count for nothing where two rarer ones are there. */
static double score_of(const struct world *w, const struct made *m, int part, const int *query, int n, int half) {
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
        score += weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * m->lengths[part] / (total / n_chunks)));
    }
    return score;
}

static void check_rank(const struct world *w, int half) {
    char text[64] = "";
    int query[5], n = 0;
    int64_t ids[K];
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
        assert_int_equal(filter_parse(&filter, half ? "{\"eq\":{\"half\":1}}" : "{\"eq\":{\"half\":0}}", "test", &e),
                         STATUS_OK);
    struct snapshot *view = living_hold(w->living);
    assert_int_equal(view_search_words(view, filter, (struct text_span){text, strlen(text)}, K, ids, &e), STATUS_OK);
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
        struct chunk c = view_chunk(view, ids[i]);
        const struct made *m = &w->made[atoi(c.document_id + 1)];
        assert_true(m->there);
        double score = score_of(w, m, c.start > 0, query, n, half);
        assert_true(fabs(score - best[i]) < 1e-4 && score <= last + 1e-4);
        last = score;
    }
    snapshot_release(view);
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
            assert_int_equal(living_delete(w->living, m->id, &e), STATUS_OK);
        else
            assert_int_equal(living_put(w->living, &m->document, m->vectors, &effect, &e), STATUS_OK);
        m->there = !m->there;
        if (i % 40 == 39) assert_int_equal(living_compact(w->living, NULL, &e), STATUS_OK);
    }
    living_close(w->living);
    free(w);
}

/* Candidates. */

static struct candidates find(struct snapshot *view, struct retriever_query query, const float *vector, int k) {
    struct candidates c;
    struct error e;
    struct candidate_vectors vectors = {.passages = vector};
    if (candidates_find(&c, view, &query, k, vectors, &e)) fail_msg("%s", e.text);
    return c;
}

/* The place of a chunk in a list of the best 100. */
static int rank_in(const struct candidates *c, int64_t id) {
    for (int i = 0; i < c->n; i++)
        if (c->ids[i] == id) return i + 1;
    return 0;
}

static double worth(int rank, double share) { return rank > 0 ? share / (10 + rank) : 0; }

static void test_fusion(void **state) {
    struct world *w = calloc(1, sizeof *w);
    struct retriever_query query = {.text = {"w01 w02 w17", 11}, .min_similarity = -1};
    (void)state;
    open_world(w, DOCUMENTS);
    struct snapshot *view = living_hold(w->living);
    const float *vector = w->made[5].vectors;
    struct candidates nearest = find(view, query, vector, 100);
    query.choice.way = RETRIEVE_WORDS;
    struct candidates words = find(view, query, vector, 100);
    query.choice.way = RETRIEVE_BOTH;
    struct candidates both = find(view, query, vector, 20), again = find(view, query, vector, 5);
    assert_int_equal(both.n, 20);
    double last = 1;
    for (int i = 0; i < both.n; i++) {
        double fused = worth(rank_in(&nearest, both.ids[i]), 1) + worth(rank_in(&words, both.ids[i]), 0.5);
        assert_true(fused > 0 && fused <= last);
        last = fused;
        if (i < again.n) assert_int_equal(again.ids[i], both.ids[i]);
        float similarity = 0;
        for (int j = 0; j < DIM; j++)
            similarity += vector[j] * w->made[both.ids[i] / 2].vectors[both.ids[i] % 2 * DIM + j];
        assert_true(fabsf(similarity - both.similarities[i]) < 1e-5F);
    }
    query.min_similarity = 0.5F;
    struct candidates near = find(view, query, vector, 20);
    for (int i = 0; i < near.n; i++) assert_true(near.similarities[i] >= 0.5F);
    candidates_free(&near);
    candidates_free(&again);
    candidates_free(&both);
    candidates_free(&words);
    candidates_free(&nearest);
    snapshot_release(view);
    living_close(w->living);
    free(w);
}

static void test_leaving_out(void **state) {
    struct world *w = calloc(1, sizeof *w);
    struct retriever_query query = {.text = {"w01", 3}, .min_similarity = -1, .choice = {.per_document = 1}};
    (void)state;
    open_world(w, DOCUMENTS);
    struct snapshot *view = living_hold(w->living);
    const float *vector = w->made[5].vectors;
    struct candidates one = find(view, query, vector, DOCUMENTS);
    assert_int_equal(one.n, DOCUMENTS);
    for (int i = 0; i < one.n; i++)
        for (int j = 0; j < i; j++) assert_true(one.ids[i] / 2 != one.ids[j] / 2);

    query.choice = (struct retriever_choice){.distinct = 0.9F};
    struct candidates apart = find(view, query, vector, 2 * DOCUMENTS);
    assert_in_range(apart.n, 2, 2 * DOCUMENTS - 1);
    for (int i = 0; i < apart.n; i++) {
        for (int j = 0; j < i; j++) {
            const float *a = w->made[apart.ids[i] / 2].vectors + apart.ids[i] % 2 * DIM;
            const float *b = w->made[apart.ids[j] / 2].vectors + apart.ids[j] % 2 * DIM;
            float similarity = 0;
            for (int d = 0; d < DIM; d++) similarity += a[d] * b[d];
            assert_true(similarity < 0.9001F);
        }
    }
    candidates_free(&apart);
    candidates_free(&one);
    snapshot_release(view);
    living_close(w->living);
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_folding),
        cmocka_unit_test(test_postings),
        cmocka_unit_test_setup_teardown(test_ranks, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fusion, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_leaving_out, folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
