/* tests/unit/test_word_index.c: the index of words against counting every word of every chunk: what
 * is written in runs, what is passed over while the best are sought, and bytes that are damaged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store.h"
#include "retrieval/words/word_cursor.h"
#include "retrieval/words/words_writer.h"
#include "tests/folder.h"

enum { CHUNKS = 9500, VOCABULARY = 900, LENGTH = 30, DIM = 2, K = 20, GROUPS = 200 };

static uint32_t seed = 11;
static uint32_t draw(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* A chunk is a document of its own; words with low numbers are common. */
struct note {
    int words[LENGTH], n;
    bool there;
    char text[LENGTH * 6 + 1];
};
static struct note notes[CHUNKS];

static void make_notes(void) {
    seed = 11;
    for (int i = 0; i < CHUNKS; i++) {
        struct note *note = &notes[i];
        size_t size = 0;
        *note = (struct note){.n = 1 + (int)draw(LENGTH), .there = true};
        for (int j = 0; j < note->n; j++) {
            uint32_t word = draw(VOCABULARY);
            word = word * draw(VOCABULARY) / VOCABULARY * draw(VOCABULARY) / VOCABULARY;
            note->words[j] = (int)word;
            size += (size_t)snprintf(note->text + size, sizeof note->text - size, "w%03u ", word);
        }
    }
}

static struct text_span note_text(const void *context, int64_t chunk) {
    (void)context;
    return (struct text_span){notes[chunk].text, strlen(notes[chunk].text)};
}

/* Runs. */

static enum status take_bytes(void *context, const void *bytes, size_t size, struct error *e) {
    (void)e;
    buffer_append(context, bytes, size);
    return STATUS_OK;
}

static void write_words(struct buffer *out, const char *folder, size_t run) {
    struct error e;
    struct words_writer *writer = words_writer_open(folder, run);
    for (int i = 0; i < CHUNKS; i++)
        if (words_writer_add(writer, note_text(NULL, i), &e)) fail_msg("%s", e.text);
    if (words_writer_end(writer, take_bytes, out, &e)) fail_msg("%s", e.text);
    words_writer_free(writer);
}

static void check_word(const struct words *words, int word) {
    char text[8];
    struct error e;
    struct word_list list;
    struct word_cursor cursor;
    uint32_t positions[LENGTH];
    snprintf(text, sizeof text, "w%03d", word);
    assert_int_equal(words_find(words, (struct text_span){text, 4}, &list, &e), STATUS_OK);
    word_cursor_open(&cursor, words, &list);
    for (int i = 0; i < CHUNKS; i++) {
        int n = 0;
        for (int j = 0; j < notes[i].n; j++) n += notes[i].words[j] == word;
        if (n == 0) continue;
        assert_int_equal(cursor.chunk, i);
        assert_int_equal(cursor.count, n);
        assert_int_equal(word_cursor_positions(&cursor, positions, LENGTH), n);
        for (int j = 0; j < n; j++) assert_int_equal(notes[i].words[positions[j]], word);
        word_cursor_next(&cursor);
    }
    assert_true(cursor.chunk == WORD_END && cursor.damage == NULL);
}

/* Words in many small runs are those in one. */
static void test_runs(void **state) {
    struct buffer whole = {0}, runs = {0};
    struct words *words;
    struct error e;
    (void)state;
    make_notes();
    write_words(&whole, NULL, 0);
    write_words(&runs, test_folder, 5000);
    assert_int_equal(whole.size, runs.size);
    assert_memory_equal(whole.data, runs.data, whole.size);
    /* Nothing is left in the folder. */
    assert_int_equal(rmdir(test_folder), 0);
    assert_int_equal(mkdir(test_folder, 0700), 0);
    assert_int_equal(
        words_open(&words, (struct text_span){runs.data, runs.size}, CHUNKS, "words", &e),
        STATUS_OK);
    if (words_check(words, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < VOCABULARY; i += 7) check_word(words, i);
    words_free(words);
    assert_int_equal(
        words_open(&words, (struct text_span){runs.data, runs.size}, CHUNKS - 1, "words", &e),
        STATUS_CORRUPT);
    buffer_free(&whole);
    buffer_free(&runs);
}

/* Searches. */

static char metadata[CHUNKS][32], ids[CHUNKS][16];

static struct collection_document document_of(int i) {
    static const int32_t token = 3;
    static struct chunk_range range;
    range = (struct chunk_range){0, (uint32_t)strlen(notes[i].text), 0, 1};
    snprintf(ids[i], sizeof ids[i], "d%d", i);
    snprintf(metadata[i], sizeof metadata[i], "{\"group\":%d,\"half\":%d}", i % GROUPS, i % 2);
    return (struct collection_document){.id = ids[i],
                                        .path = ids[i],
                                        .title = "",
                                        .metadata = metadata[i],
                                        .text = note_text(NULL, i),
                                        .ids = &token,
                                        .chunks = &range,
                                        .n_chunks = 1,
                                        .n = 1};
}

static const float vector[DIM] = {1, 0};

static struct collection *open_notes(int n) {
    struct collection_options options = {.chunk_length = 1,
                                         .eod = 9,
                                         .dim = DIM,
                                         .embedder = "toy",
                                         .tokenizer = "toy",
                                         .index_factory = INDEX_EXACT};
    struct generation_builder *builder;
    struct collection *collection;
    struct error e;
    if (builder_create(&builder, test_folder, &options, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < CHUNKS; i++) notes[i].there = i < n;
    for (int i = 0; i < n; i++) {
        struct collection_document document = document_of(i);
        if (builder_add_document(builder, &document, &e) ||
            builder_add_vectors(builder, vector, 1, &e))
            fail_msg("%s", e.text);
    }
    if (builder_commit(builder, &e) || store_open(&collection, test_folder, &e)) fail_msg("%s", e.text);
    return collection;
}

/* Documents that may be found: all, those of a half, or those of a group. */
struct scope {
    const char *filter;
    int modulus, rest;
};

static bool is_in(const struct scope *scope, int i) {
    return notes[i].there && i % scope->modulus == scope->rest;
}

static int count_in(const struct note *note, int word) {
    int n = 0;
    for (int i = 0; i < note->n; i++) n += note->words[i] == word;
    return n;
}

/* Of each note its score, by the formula in words; 0: it is not in the scope. */
static void score_notes(const struct scope *scope, const int *query, int n, float *scores) {
    double n_chunks = 0, total = 0, there[8] = {0};
    int n_rare = 0;
    for (int i = 0; i < CHUNKS; i++) {
        if (!is_in(scope, i)) continue;
        n_chunks++;
        total += notes[i].n;
        for (int j = 0; j < n; j++) there[j] += count_in(&notes[i], query[j]) > 0;
    }
    for (int j = 0; j < n; j++) n_rare += there[j] > 0 && there[j] * 8 <= n_chunks;
    for (int i = 0; i < CHUNKS; i++) {
        double score = 0;
        for (int j = 0; j < n && is_in(scope, i); j++) {
            double count = count_in(&notes[i], query[j]);
            if (count == 0 || (there[j] * 8 > n_chunks && n_rare >= 2)) continue;
            double weight = log(1 + (n_chunks - there[j] + 0.5) / (there[j] + 0.5));
            double relative = 1 - 0.75 + 0.75 * notes[i].n / (total / n_chunks);
            score += (double)(float)(weight * count * (1.2 + 1) / (count + 1.2 * relative));
        }
        scores[i] = (float)score;
    }
}

static int make_query(int query[8], char *text, size_t size) {
    int n = 0, wanted = 1 + (int)draw(8);
    text[0] = '\0';
    for (int i = 0; i < wanted; i++) {
        int word = (int)(draw(VOCABULARY) * draw(VOCABULARY) / VOCABULARY), j = 0;
        while (j < n && query[j] != word) j++;
        if (j < n) continue;
        query[n] = word;
        n++;
        snprintf(text + strlen(text), size - strlen(text), "w%03d ", word);
    }
    return n;
}

/* The best are exactly those of the formula: the same scores, in the same order. */
static void check_search(struct collection *collection, const struct scope *scope) {
    static float scores[CHUNKS];
    int query[8];
    char text[64];
    int64_t found_ids[K];
    float shares[K], last = 1e9F;
    struct word_found found = {.ids = found_ids, .shares = shares};
    struct filter *filter = NULL;
    struct error e;
    int n = make_query(query, text, sizeof text), n_better, n_found = 0, n_scored = 0;
    if (scope->filter && filter_parse(&filter, scope->filter, "test", &e)) fail_msg("%s", e.text);
    struct word_query words = {.text = {text, strlen(text)}, .filter = filter, .k = K};
    struct snapshot *snapshot = collection_hold(collection);
    if (store_search_words(snapshot, &words, &found, &e)) fail_msg("%s", e.text);
    score_notes(scope, query, n, scores);
    for (int i = 0; i < CHUNKS; i++) n_scored += scores[i] > 0;
    for (; n_found < K && found_ids[n_found] >= 0; n_found++) {
        int note = atoi(snapshot_chunk(snapshot, found_ids[n_found]).document_id + 1);
        assert_true(scores[note] > 0 && scores[note] <= last);
        if (scores[note] == last) assert_true(found_ids[n_found] > found_ids[n_found - 1]);
        last = scores[note];
        n_better = 0;
        for (int i = 0; i < CHUNKS; i++) n_better += scores[i] > last;
        assert_true(n_better <= n_found);
    }
    assert_int_equal(n_found, n_scored < K ? n_scored : K);
    snapshot_release(snapshot);
    filter_release(filter);
}

static void test_best(void **state) {
    static const struct scope scopes[] = {
        {NULL, 1, 0}, {"{\"eq\":{\"half\":1}}", 2, 1}, {"{\"eq\":{\"group\":3}}", GROUPS, 3}};
    struct error e;
    enum change_effect effect;
    (void)state;
    make_notes();
    struct collection *collection = open_notes(9000);
    for (int i = 0; i < 90; i++) {
        check_search(collection, &scopes[i % 3]);
        int number = (int)draw(CHUNKS);
        struct collection_document document = document_of(number);
        if (notes[number].there)
            assert_int_equal(collection_delete(collection, NULL, ids[number], &e), STATUS_OK);
        else
            assert_int_equal(collection_put(collection, NULL, &document, vector, &effect, &e),
                             STATUS_OK);
        notes[number].there = !notes[number].there;
        if (i == 60) assert_int_equal(collection_compact(collection, NULL, &e), STATUS_OK);
    }
    collection_close(collection);
}

/* Damage. */

static struct text_span short_text(const void *context, int64_t chunk) {
    struct text_span text = note_text(context, chunk);
    text.size = text.size < 30 ? text.size : 30;
    return text;
}

/* Reads all that can be read; false: damage was met. */
static bool read_all(const struct words *words) {
    static struct word_cursor cursor;
    uint32_t positions[4];
    struct words_walk walk;
    bool sound = true;
    words_walk_open(&walk, words, (struct text_span){"", 0});
    while (words_walk_next(&walk)) {
        word_cursor_open(&cursor, words, &walk.list);
        for (; cursor.chunk != WORD_END; word_cursor_seek(&cursor, cursor.chunk + 1))
            sound = word_cursor_positions(&cursor, positions, 4) > 0 && sound;
        sound = sound && cursor.damage == NULL;
    }
    return sound && walk.damage == NULL;
}

/* Whichever bit is another one, what is read stays within the bytes (the sanitizers watch), and
 * what is checked as whole can be read. */
static void test_damage(void **state) {
    enum { FEW = 300 };
    struct buffer bytes = {0};
    struct words *words;
    struct error e;
    int n_refused = 0;
    (void)state;
    make_notes();
    struct words_writer *writer = words_writer_open(NULL, 0);
    for (int i = 0; i < FEW; i++)
        assert_int_equal(words_writer_add(writer, short_text(NULL, i), &e), STATUS_OK);
    assert_int_equal(words_writer_end(writer, take_bytes, &bytes, &e), STATUS_OK);
    words_writer_free(writer);
    for (size_t i = 0; i < bytes.size; i++) {
        /* In memory of their own, so that a read behind the end is seen. */
        char *copy = xmalloc(bytes.size);
        memcpy(copy, bytes.data, bytes.size);
        copy[i] ^= (char)(1 << i % 8);
        enum status status =
            words_open(&words, (struct text_span){copy, bytes.size}, FEW, "words", &e);
        if (status == STATUS_OK) {
            bool read = read_all(words);
            status = words_check(words, &e);
            assert_true(status == STATUS_OK ? read : e.text[0] != '\0');
            words_free(words);
        }
        n_refused += status != STATUS_OK;
        free(copy);
    }
    assert_true(n_refused > (int)bytes.size / 2);
    for (size_t i = 0; i < bytes.size; i += 1 + i / 50)
        if (words_open(&words, (struct text_span){bytes.data, i}, FEW, "words", &e) == STATUS_OK)
            fail_msg("%zu bytes of %zu are opened", i, bytes.size);
    buffer_free(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_runs, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_best, folder_set_up, folder_tear_down),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
