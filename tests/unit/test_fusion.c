/* tests/unit/test_fusion.c: one ranking of vectors and words: an identifier that stands in one of
 * many chunks brings that chunk to the front, whatever the vectors say; where words say nothing
 * the order is that of the vectors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/generation/generation.h"
#include "retrieval/search/candidates.h"
#include "retrieval/search/exact_words.h"
#include "retrieval/search/ranking.h"
#include "retrieval/store/store.h"
#include "tests/folder.h"

enum { DIM = 8, NOTES = 10000, OPTIONS = 20 };

static char dir[FOLDER_SIZE];
static struct collection *collection;
static struct snapshot *snapshot;
static float query_vector[DIM];
static uint32_t seed = 11;

static float draw(void) {
    seed = seed * 1664525U + 1013904223U;
    return (float)((int)(seed >> 16) - 32768) / 32768;
}

static void draw_vector(float *vector) {
    float square = 1e-9F;
    for (int j = 0; j < DIM; j++) {
        vector[j] = draw();
        square += vector[j] * vector[j];
    }
    for (int j = 0; j < DIM; j++) vector[j] /= sqrtf(square);
}

static void add_note(struct generation_builder *b, int number, const char *text,
                     const float *vector) {
    char path[32];
    struct error e;
    int32_t id = 1;
    struct chunk_range chunk = {0, (uint32_t)strlen(text), 0, 1};
    snprintf(path, sizeof path, "note %d", number);
    struct collection_document document = {.path = path,
                                           .title = "",
                                           .text = {text, strlen(text)},
                                           .ids = &id,
                                           .n = 1,
                                           .chunks = &chunk,
                                           .n_chunks = 1};
    if (builder_add_document(b, &document, &e) || builder_add_vectors(b, vector, 1, &e))
        fail_msg("%s", e.text);
}

static const char *const planted[] = {
    "Order P-7777 waits for a signature.", "The fault is fixed by commit 3f2a9bc of the branch.",
    "Boxes for the exhibition stand behind gate B-214.", "read_pages_ahead is off by default."};

/* The planted notes are as far from the query's vector as can be. */
static int open_notes(void **state) {
    struct collection_options o = {.chunk_length = 1,
                                   .eod = 9,
                                   .dim = DIM,
                                   .embedder = "toy",
                                   .tokenizer = "toy",
                                   .index_factory = INDEX_EXACT};
    struct generation_builder *b;
    struct error e;
    float vector[DIM];
    char text[120];
    (void)state;
    folder_make(dir);
    if (builder_create(&b, dir, &o, &e)) fail_msg("%s", e.text);
    draw_vector(query_vector);
    for (int i = 0; i < NOTES; i++) {
        snprintf(text, sizeof text,
                 "Locker %d holds the order of gate B, row %d, fixed to branch %d by a commit.", i,
                 i % 300, i % 97);
        draw_vector(vector);
        add_note(b, i, text, vector);
    }
    for (int j = 0; j < DIM; j++) vector[j] = -query_vector[j];
    for (size_t i = 0; i < ARRAY_COUNT(planted); i++)
        add_note(b, NOTES + (int)i, planted[i], vector);
    for (int i = 0; i < OPTIONS; i++) {
        snprintf(text, sizeof text, "See -x.\n  -x  %s the %s for %d days.", i ? "keeps" : "dims",
                 i ? "bell" : "lamp", 100 + i);
        add_note(b, NOTES + (int)ARRAY_COUNT(planted) + i, text, vector);
    }
    if (builder_commit(b, &e) || store_open(&collection, dir, &e)) fail_msg("%s", e.text);
    snapshot = collection_hold(collection);
    return 0;
}

static int close_notes(void **state) {
    (void)state;
    snapshot_release(snapshot);
    collection_close(collection);
    folder_remove(dir);
    return 0;
}

static struct hits ask(const char *text, enum retriever_way way, int k) {
    struct retriever_query query = {.text = {text, strlen(text)},
                                    .min_similarity = -1,
                                    .choice.way = way,
                                    .snapshot = snapshot};
    struct hits hits = {0};
    struct error e;
    struct ranked_query ranked = {.query = &query, .passages = query_vector, .k = k, .hits = &hits};
    if (ranking_find(collection, &ranked, 1, &e)) fail_msg("%s", e.text);
    return hits;
}

static void expect_first(const char *question, const char *part) {
    struct hits hits = ask(question, RETRIEVE_BOTH, 4);
    if (hits.n < 4 ||
        memmem(hits.list[0].text.text, hits.list[0].text.size, part, strlen(part)) == NULL)
        fail_msg("\"%s\" finds \"%.*s\"", question, (int)hits.list[0].text.size,
                 hits.list[0].text.text);
    assert_true(hits.list[0].worth.exact == 1);
    hits_free(&hits);
}

static void test_planted(void **state) {
    (void)state;
    expect_first("P-7777", "P-7777");
    expect_first("what is the state of the order P-7777?", "P-7777");
    expect_first("which fault did commit 3f2a9bc fix", "3f2a9bc");
    expect_first("what is behind gate B-214", "B-214");
    expect_first("what is in locker 4321", "Locker 4321 ");
    expect_first("Is READ_PAGES_AHEAD on?", "read_pages_ahead");
}

/* An option that many notes tell of is the one of the note that has the rest of the question. */
static void test_option_of_many(void **state) {
    (void)state;
    expect_first("what does -x of the lamp do?", "dims the lamp");
    struct hits hits = ask("what does -x of the lamp do?", RETRIEVE_BOTH, 4),
                none = ask("what does -x of the chair do?", RETRIEVE_BOTH, 4);
    assert_true(hits.list[0].worth.told == 1 && hits.list[1].worth.exact == 0);
    for (int i = 0; i < none.n; i++) assert_int_equal(none.list[i].worth.exact, 0);
    hits_free(&hits);
    hits_free(&none);
}

/* A query without a word of the collection is ranked as by vectors. */
static void test_vectors_alone(void **state) {
    (void)state;
    struct hits both = ask("zebra quagga", RETRIEVE_BOTH, 20),
                nearest = ask("zebra quagga", RETRIEVE_NEAREST, 20);
    assert_int_equal(both.n, 20);
    for (int i = 0; i < both.n; i++) assert_int_equal(both.list[i].chunk, nearest.list[i].chunk);
    hits_free(&both);
    hits_free(&nearest);
}

/* The last chunk that counts among the nearest is worth nothing, which is a worth like others. */
static void test_no_worth(void **state) {
    (void)state;
    struct hits both = ask("zebra quagga", RETRIEVE_BOTH, FUSED_RANKS),
                nearest = ask("zebra quagga", RETRIEVE_NEAREST, 1);
    struct buffer text = {0};
    struct json_writer w;
    const struct hit *last = &both.list[FUSED_RANKS - 1];
    assert_int_equal(both.n, FUSED_RANKS);
    assert_true(last->worth.joined && last->worth.total == 0 && !nearest.list[0].worth.joined);
    put_begin(&w, &text);
    put_object(&w);
    hit_put_worth(&w, &nearest.list[0]);
    assert_int_equal(text.size, 1);
    hit_put_worth(&w, last);
    put_object_end(&w);
    assert_memory_equal(text.data, "{\"worth\":{\"total\":0,", 20);
    buffer_free(&text);
    hits_free(&both);
    hits_free(&nearest);
}

/* The first hits do not depend on how many are asked for. */
static void test_prefix(void **state) {
    (void)state;
    struct hits many = ask("which locker is fixed to gate B", RETRIEVE_BOTH, 50),
                few = ask("which locker is fixed to gate B", RETRIEVE_BOTH, 5);
    for (int i = 0; i < few.n; i++) assert_int_equal(many.list[i].chunk, few.list[i].chunk);
    hits_free(&many);
    hits_free(&few);
}

static void expect_words(const char *query, int n, const char *first) {
    struct exact_words words = exact_words_find((struct text_span){query, strlen(query)});
    assert_int_equal(words.n, n);
    if (n > 0)
        assert_true(words.words[0].size == strlen(first) &&
                    memcmp(words.words[0].text, first, strlen(first)) == 0);
}

static void expect_found(const char *word, const char *text, bool there, bool told) {
    struct exact_words words = exact_words_find((struct text_span){word, strlen(word)});
    struct exact_found found = exact_words_in(&words, (struct text_span){text, strlen(text)});
    if (words.n != 1 || (found.there == 1) != there || (found.told == 1) != told)
        fail_msg("%s in \"%s\": %u, %u", word, text, found.there, found.told);
}

static void test_exact_words(void **state) {
    (void)state;
    expect_words("", 0, "");
    expect_words("how do I read a file", 0, "");
    expect_words("the 3 best, 20 or so", 0, "");
    expect_words("why (EINVAL)?", 1, "EINVAL");
    expect_words("\"B-214\", please", 1, "B-214");
    expect_words("pthread_create or fork", 1, "pthread_create");
    expect_words("a1b a1b a1b a1b a1b a1b a1b a1b a1b a1b", EXACT_WORDS, "a1b");
    expect_words("what does --soft, of reset, do?", 1, "--soft");
    expect_words("and `-k`?", 1, "-k");
    expect_words("a line --- or - or --", 0, "");
    expect_found("4321", "x 4321.", true, false);
    expect_found("4321", "x 43210", false, false);
    expect_found("4321", "a4321", false, false);
    expect_found("4321", "432", false, false);
    expect_found("MNT_DETACH", "either mnt_detach or MNT_FORCE", true, false);
}

/* A line tells of what it begins with. Options are written in one case. */
static void test_told(void **state) {
    (void)state;
    expect_found("MNT_DETACH", "x\n   MNT_DETACH (since 2.4)\n   lazily", true, true);
    expect_found("--zero", "  -z, --zero\n     hides it", true, true);
    expect_found("--zero", "- `--zero`: hides it", true, true);
    expect_found("--zero", "see --zero", true, false);
    expect_found("--zero", "--zero-all", true, true); /* a mark stands behind it */
    expect_found("--zero", "--zeros", false, false);
    expect_found("--zero", "---zero", false, false);
    expect_found("-k", "  -K, -k  keeps it", true, true);
    expect_found("-k", "  -K keeps it", false, false);
    expect_found("-k", "--k", false, false);
    char far[200];
    memset(far, ' ', sizeof far);
    far[sizeof far - 2] = '-', far[sizeof far - 1] = 'k';
    struct exact_words words = exact_words_find((struct text_span){"-k", 2});
    assert_int_equal(exact_words_in(&words, (struct text_span){far, sizeof far}).told, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted),       cmocka_unit_test(test_vectors_alone),
        cmocka_unit_test(test_no_worth),      cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_exact_words),   cmocka_unit_test(test_told),
        cmocka_unit_test(test_option_of_many)};
    return cmocka_run_group_tests(tests, open_notes, close_notes);
}
