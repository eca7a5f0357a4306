/* tests/growth/cases_text.c: text to token ids, by every model of tokenizer, tokenizer.json itself,
 * and text to words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/words/word_demands.h"
#include "retro/text/tokenizer.h"
#include "tests/growth/growth.h"

static struct tokenizer *tokenizer;

/* The tokenizer that is open, by whoever opened it. */
static void (*opened)(void);

static bool is_open(void (*opener)(void)) {
    bool same = opened == opener;
    opened = opener;
    return same;
}

static void open_json(const char *json, size_t size) {
    struct error e;
    tokenizer_close(tokenizer);
    if (tokenizer_open_json(&tokenizer, json, size, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

static void run_encode(struct text_span text) {
    struct tokens ids = {0};
    struct error e;
    CHECK(tokenizer_encode(tokenizer, text.text, text.size, TOKENIZER_PARSE_SPECIAL, &ids, &e) ==
          STATUS_OK);
    tokens_free(&ids);
}

static void run_open(struct text_span text) {
    opened = NULL;
    open_json(text.text, text.size);
}

#define ADDED(id, content, special) \
    "{\"id\":" id ",\"content\":\"" content "\",\"special\":" special \
    ",\"lstrip\":false,\"rstrip\":false,\"single_word\":false,\"normalized\":false}"

/* Byte-level BPE of a few letters, which merges a run of one letter again and again. */
static const char bpe_tail[] =
    "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
    "\"use_regex\":true},"
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
    "\"<\":2,\"|\":3,"
    "\"aa\":4,\"aaaa\":5,\"ab\":6,\"aab\":7,\"\xC4\xA0\":8,\"1\":9},\"merges\":[\"a a\",\"aa "
    "aa\",\"a b\",\"aa b\"]}}";

static void put_added(struct buffer *out, int n) {
    buffer_append_string(out, "{\"added_tokens\":[");
    for (int i = 0; i < n; i++)
        buffer_printf(out, "%s" ADDED("%d", "<|reserved_%d|>", "true"), i ? "," : "", 100 + i, i);
}

static void open_bpe(void) {
    struct buffer json = {0};
    if (is_open(open_bpe)) return;
    put_added(&json, 1000);
    buffer_append_string(&json, bpe_tail);
    open_json(json.data, json.size);
    buffer_free(&json);
}

static void make_bpe_word(int n, struct buffer *out) {
    open_bpe();
    put_times(out, n, "a");
}
static void make_bpe_words(int n, struct buffer *out) {
    open_bpe();
    put_times(out, n, "aab ab");
}
static void make_blanks(int n, struct buffer *out) {
    open_bpe();
    put_times(out, n, " ");
    buffer_append_string(out, "a");
}
static void make_marks(int n, struct buffer *out) {
    open_bpe();
    put_times(out, n, "<|reserved_12");
}
static void make_angles(int n, struct buffer *out) {
    open_bpe();
    put_times(out, n, "<");
}
static void make_open_bpe(int n, struct buffer *out) {
    put_added(out, n);
    buffer_append_string(out, bpe_tail);
}
/* n words and the merges that make them. */
static void make_open_merges(int n, struct buffer *out) {
    buffer_append_string(out,
                         "{\"added_tokens\":[],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0");
    for (int i = 0; i < n; i++)
        buffer_printf(out, ",\"b%d\":%d,\"ab%d\":%d", i, 2 * i + 1, i, 2 * i + 2);
    buffer_append_string(out, "},\"merges\":[");
    for (int i = 0; i < n; i++) buffer_printf(out, "%s\"a b%d\"", i ? "," : "", i);
    buffer_append_string(
        out, "]},\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"}}");
}

static void open_unigram(void) {
    static const char json[] =
        "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\","
        "\"replacement\":"
        "\"\xE2\x96\x81\",\"prepend_scheme\":\"always\",\"split\":false},\"decoder\":{\"type\":"
        "\"Metaspace\","
        "\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\",\"split\":false},\"model\":"
        "{\"type\":"
        "\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"aa\",-1.5],[\"aaaaaaaa\",-"
        "2],[\"b\",-3],"
        "[\"\xE2\x96\x81\",-2]]}}";
    if (is_open(open_unigram)) return;
    open_json(json, sizeof json - 1);
}
static void make_unigram_word(int n, struct buffer *out) {
    open_unigram();
    put_times(out, n, "aab");
}
static void make_unigram_unknown(int n, struct buffer *out) {
    open_unigram();
    put_times(out, n, "zz y");
}
static void make_open_unigram(int n, struct buffer *out) {
    buffer_append_string(
        out,
        "{\"added_tokens\":[],\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0]");
    for (int i = 0; i < n; i++) buffer_printf(out, ",[\"word%d\",-%d]", i, i);
    buffer_append_string(
        out, "]},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\"}}");
}

static void open_wordpiece(void) {
    static const char json[] =
        "{\"added_tokens\":[],\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
        "\"handle_chinese_chars\":"
        "true,\"strip_accents\":null,\"lowercase\":true},\"pre_tokenizer\":{\"type\":"
        "\"BertPreTokenizer\"},"
        "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},\"model\":{"
        "\"type\":\"WordPiece\","
        "\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":"
        "100,\"vocab\":{"
        "\"[UNK]\":0,\"a\":1,\"##a\":2,\"##aaaa\":3,\"b\":4}}}";
    if (is_open(open_wordpiece)) return;
    open_json(json, sizeof json - 1);
}
static void make_wordpiece_word(int n, struct buffer *out) {
    open_wordpiece();
    put_times(out, n, "a");
}
static void make_wordpiece_words(int n, struct buffer *out) {
    open_wordpiece();
    put_times(out, n, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaz ");
}
static void make_accents(int n, struct buffer *out) {
    open_wordpiece();
    buffer_append_string(out, "e");
    put_times(out, n, "\xCC\x81\xCC\xA3");
}

static void open_sentencepiece(void) {
    struct error e;
    if (is_open(open_sentencepiece)) return;
    tokenizer_close(tokenizer);
    CHECK(tokenizer_open(&tokenizer, "tests/golden/siglip_served/spiece.model", &e) == STATUS_OK);
}
static void make_sentencepiece_word(int n, struct buffer *out) {
    open_sentencepiece();
    put_times(out, n, "ab");
}
static void make_sentencepiece_words(int n, struct buffer *out) {
    open_sentencepiece();
    put_times(out, n, "the cat. ");
}

static void run_words(struct text_span text) {
    struct word_text words[8];
    CHECK(words_split(text, words, 8) > 0);
}
/* A phrase whose beginnings are everywhere and which stands nowhere. */
static void run_phrase(struct text_span text) {
    struct word_demands *demands;
    struct error e;
    const char *query = "\"a a a a a a a a a a a a a a a b\"";
    CHECK(word_demands_parse(&demands, (struct text_span){query, strlen(query)}, &e) == STATUS_OK);
    CHECK(!word_demands_allow(demands, text));
    word_demands_free(demands);
}
static void make_phrase(int n, struct buffer *out) { put_times(out, n, "a a "); }
static void run_operators(struct text_span text) {
    struct word_demands *demands;
    struct error e;
    CHECK(word_demands_parse(&demands, text, &e) == STATUS_OK);
    word_demands_free(demands);
}
static void make_operators(int n, struct buffer *out) { put_times(out, n, "a - * \"\" "); }
/* Marks on one letter are one stretch: in canonical order, where tables fold it, and in none. The
 * tables are made before. */
static void put_letter_with(struct buffer *out, int n, const char *marks) {
    put_times(out, 1, "a");
    put_times(out, 1, marks);
    run_words((struct text_span){out->data, out->size});
    put_times(out, n - 1, marks);
}
static void make_sorted_marks(int n, struct buffer *out) { put_letter_with(out, n, "\u0336"); }
static void make_mixed_marks(int n, struct buffer *out) { put_letter_with(out, n, "\u0301\u0323"); }

static const struct growth_case cases[] = {
    {"bpe/word", 4000, make_bpe_word, run_encode},
    {"bpe/words", 2000, make_bpe_words, run_encode},
    {"bpe/blanks", 8000, make_blanks, run_encode},
    {"bpe/half-marks", 400, make_marks, run_encode},
    {"bpe/angles", 4000, make_angles, run_encode},
    {"wordpiece/accents", 2000, make_accents, run_encode},
    {"unigram/word", 3000, make_unigram_word, run_encode},
    {"unigram/unknown", 3000, make_unigram_unknown, run_encode},
    {"wordpiece/word", 4000, make_wordpiece_word, run_encode},
    {"wordpiece/words", 200, make_wordpiece_words, run_encode},
    {"sentencepiece/word", 700, make_sentencepiece_word, run_encode},
    {"sentencepiece/words", 300, make_sentencepiece_words, run_encode},
    {"words/sorted-marks", 4000, make_sorted_marks, run_words},
    {"words/mixed-marks", 4000, make_mixed_marks, run_words},
    {"words/phrase", 4000, make_phrase, run_phrase},
    {"words/operators", 4000, make_operators, run_operators},
    {"tokenizer.json/added", 250, make_open_bpe, run_open},
    {"tokenizer.json/merges", 250, make_open_merges, run_open},
    {"tokenizer.json/unigram", 1000, make_open_unigram, run_open},
};
const struct growth_table text_growth = GROWTH_TABLE(cases);
