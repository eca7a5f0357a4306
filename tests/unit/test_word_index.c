/* tests/unit/test_word_index.c: the index of words against counting every word of every chunk: what
 * is written in runs, what is passed over while the best are sought, and bytes that are damaged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store.h"
#include "retrieval/words/word_cursor.h"
#include "retrieval/words/word_demands.h"
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

static struct text_span note_text(void *context, int64_t chunk) {
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
                                        .title = "notes",
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
    struct collection *collection = NULL;
    struct error e;
    if (builder_create(&builder, test_folder, &options, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < CHUNKS; i++) notes[i].there = i < n;
    for (int i = 0; i < n; i++) {
        struct collection_document document = document_of(i);
        if (builder_add_document(builder, &document, &e) ||
            builder_add_vectors(builder, vector, 1, &e))
            fail_msg("%s", e.text);
    }
    if (builder_commit(builder, &e) || store_open(&collection, test_folder, &e))
        fail_msg("%s", e.text);
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

/* A word of a query, or all with a beginning: [low, high]. */
struct sought {
    int low, high;
};
/* A query, and two words that must or must not stand behind each other. */
struct asked {
    struct sought words[8];
    int n;
    int first, second; /* -1: none */
    bool without;
    char text[96];
};

static int count_in(const struct note *note, struct sought sought) {
    int n = 0;
    for (int i = 0; i < note->n; i++)
        n += note->words[i] >= sought.low && note->words[i] <= sought.high;
    return n;
}

static bool is_demanded(const struct asked *asked, const struct note *note) {
    bool stands = false;
    for (int i = 0; i + 1 < note->n; i++)
        stands = stands || (note->words[i] == asked->first && note->words[i + 1] == asked->second);
    return asked->first < 0 || stands != asked->without;
}

/* Of each note its score, by the formula in words; 0: it is not in the scope, or not what was
 * asked for. */
static void score_notes(const struct scope *scope, const struct asked *asked, float *scores) {
    double n_chunks = 0, total = 0, there[8] = {0};
    int n_rare = 0;
    for (int i = 0; i < CHUNKS; i++) {
        if (!is_in(scope, i)) continue;
        n_chunks++;
        total += notes[i].n + 1; /* the title's word */
        for (int j = 0; j < asked->n; j++) there[j] += count_in(&notes[i], asked->words[j]) > 0;
    }
    for (int j = 0; j < asked->n; j++) n_rare += there[j] > 0 && there[j] * 8 <= n_chunks;
    for (int i = 0; i < CHUNKS; i++) {
        double score = 0;
        for (int j = 0; j < asked->n && is_in(scope, i); j++) {
            double count = count_in(&notes[i], asked->words[j]);
            if (count == 0 || (there[j] * 8 > n_chunks && n_rare >= 2)) continue;
            double weight = log(1 + (n_chunks - there[j] + 0.5) / (there[j] + 0.5));
            double relative = 1 - 0.75 + 0.75 * (notes[i].n + 1) / (total / n_chunks);
            score += (double)(float)(weight * count * (1.2 + 1) / (count + 1.2 * relative));
        }
        scores[i] = is_demanded(asked, &notes[i]) ? (float)score : 0;
    }
}

static void add_sought(struct asked *asked, int low, int high) {
    for (int i = 0; i < asked->n; i++)
        if (asked->words[i].low == low && asked->words[i].high == high) return;
    asked->words[asked->n] = (struct sought){low, high};
    asked->n++;
}

static void ask_words(struct asked *asked) {
    int wanted = 1 + (int)draw(5);
    for (int i = 0; i < wanted; i++) {
        int word = (int)(draw(VOCABULARY) * draw(VOCABULARY) / VOCABULARY);
        add_sought(asked, word, word);
        snprintf(asked->text + strlen(asked->text), 6, "w%03d ", word);
    }
}

/* A beginning, and two words that stand somewhere behind each other, which hits must have or must
 * not. */
static void ask_more(struct asked *asked) {
    const struct note *note = &notes[draw(CHUNKS)];
    if (draw(2)) {
        int tens = (int)draw(20);
        add_sought(asked, 10 * tens, 10 * tens + 9);
        snprintf(asked->text + strlen(asked->text), 6, "w%02d* ", tens);
    }
    if (note->n < 2 || draw(3) == 0) return;
    int at = (int)draw((uint32_t)note->n - 1);
    asked->first = note->words[at];
    asked->second = note->words[at + 1];
    asked->without = draw(2);
    snprintf(asked->text + strlen(asked->text), 14, "%s\"w%03d w%03d\" ", asked->without ? "-" : "",
             asked->first, asked->second);
    if (asked->without) return;
    add_sought(asked, asked->first, asked->first);
    add_sought(asked, asked->second, asked->second);
}

/* The best are exactly those of the formula: the same scores, in the same order. */
static void check_found(struct snapshot *snapshot, const int64_t *found, const float *scores) {
    float last = 1e9F;
    int n_found = 0, n_scored = 0;
    for (int i = 0; i < CHUNKS; i++) n_scored += scores[i] > 0;
    for (; n_found < K && found[n_found] >= 0; n_found++) {
        int note = atoi(snapshot_chunk(snapshot, found[n_found]).document_id + 1), n_better = 0;
        assert_true(scores[note] > 0 && scores[note] <= last);
        if (scores[note] == last) assert_true(found[n_found] > found[n_found - 1]);
        last = scores[note];
        for (int i = 0; i < CHUNKS; i++) n_better += scores[i] > last;
        assert_true(n_better <= n_found);
    }
    assert_int_equal(n_found, n_scored < K ? n_scored : K);
}

static void check_search(struct collection *collection, const struct scope *scope, bool more) {
    static float scores[CHUNKS];
    struct asked asked = {.first = -1};
    int64_t found_ids[K];
    float shares[K];
    struct word_found found = {.ids = found_ids, .shares = shares};
    struct word_demands *demands = NULL;
    struct filter *filter = NULL;
    struct error e;
    ask_words(&asked);
    if (more) ask_more(&asked);
    struct text_span text = {asked.text, strlen(asked.text)};
    if (more && word_demands_parse(&demands, text, &e)) fail_msg("%s: %s", asked.text, e.text);
    if (scope->filter && filter_parse(&filter, scope->filter, "test", &e)) fail_msg("%s", e.text);
    struct word_query words = {.text = text, .demands = demands, .filter = filter, .k = K};
    struct snapshot *snapshot = collection_hold(collection);
    if (store_search_words(snapshot, &words, &found, &e)) fail_msg("%s", e.text);
    score_notes(scope, &asked, scores);
    check_found(snapshot, found_ids, scores);
    for (int i = 0; i < K && found_ids[i] >= 0 && demands; i++)
        assert_true(word_demands_allow(demands, snapshot_chunk(snapshot, found_ids[i]).text));
    snapshot_release(snapshot);
    filter_release(filter);
    word_demands_free(demands);
}

static void test_best(void **state) {
    static const struct scope scopes[] = {
        {NULL, 1, 0}, {"{\"eq\":{\"half\":1}}", 2, 1}, {"{\"eq\":{\"group\":3}}", GROUPS, 3}};
    struct error e;
    enum change_effect effect;
    (void)state;
    make_notes();
    struct collection *collection = open_notes(9000);
    for (int i = 0; i < 150; i++) {
        check_search(collection, &scopes[i % 3], i % 2);
        int number = (int)draw(CHUNKS);
        struct collection_document document = document_of(number);
        if (notes[number].there)
            assert_int_equal(collection_delete(collection, NULL, ids[number], &e), STATUS_OK);
        else
            assert_int_equal(collection_put(collection, NULL, &document, vector, &effect, &e),
                             STATUS_OK);
        notes[number].there = !notes[number].there;
        if (i == 100) assert_int_equal(collection_compact(collection, NULL, &e), STATUS_OK);
    }
    collection_close(collection);
}

/* Damage. */

static struct text_span short_text(void *context, int64_t chunk) {
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
