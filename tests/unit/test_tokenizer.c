/* tests/unit/test_tokenizer.c: by hand: merges of bytes and of characters, added tokens, offsets,
 * WordPiece, streaming at every split, bad files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "retro/text/tokenizer.h"

#define BPE(pre, rest) \
    "{\"pre_tokenizer\":" pre \
    ",\"decoder\":{\"type\":\"ByteLevel\"}," \
    "\"added_tokens\":[{\"id\":9,\"content\":\"<|endoftext|>\",\"special\":true}]," rest "}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define MODEL(vocab, merges) \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"
/* 4, 5 and 6 are the bytes E2 82 AC of the euro sign; 7 is NUL. */
#define VOCAB \
    "\"a\":0,\"b\":1,\"\\u0120\":2,\"ab\":3,\"\\u00e2\":4,\"\\u0124\":5,\"\\u00ac\":6," \
    "\"\\u0100\":7,\"aba\":8"

static struct tokenizer *open_text(const char *json) {
    struct tokenizer *t;
    struct error e = {0};
    if (tokenizer_open_json(&t, json, strlen(json), &e) != STATUS_OK) fail_msg("%s", e.text);
    return t;
}

static void assert_encodes(const struct tokenizer *t, struct text_span text, int flags,
                           const int *expected, const uint32_t *starts, int n) {
    struct tokens out = {0};
    struct error e;
    assert_int_equal(tokenizer_encode(t, text.text, text.size, flags, &out, &e), STATUS_OK);
    assert_int_equal(out.n, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(out.ids[i], expected[i]);
        assert_int_equal(out.starts[i], starts[i]);
    }
    tokens_free(&out);
}

static void test_bpe(void **state) {
    (void)state;
    struct tokenizer *t = open_text(BPE(BYTES, MODEL(VOCAB, "\"a b\",[\"ab\",\"a\"]")));
    assert_int_equal(tokenizer_vocab_size(t), 10);
    assert_int_equal(tokenizer_eod(t), 9);
    assert_true(tokenizer_is_special(t, 9));
    assert_encodes(t, (struct text_span){"abab aba", 8}, TOKENIZER_PLAIN, (int[]){3, 3, 2, 8},
                   (uint32_t[]){0, 2, 4, 5}, 4);
    assert_encodes(t, (struct text_span){"a\0\xE2\x82\xAC", 5}, TOKENIZER_PLAIN,
                   (int[]){0, 7, 4, 5, 6}, (uint32_t[]){0, 1, 2, 3, 4}, 5);
    assert_encodes(t, (struct text_span){"a<|endoftext|>b", 15}, TOKENIZER_PARSE_SPECIAL,
                   (int[]){0, 9, 1}, (uint32_t[]){0, 1, 14}, 3);
    /* Only a and b of the plain text are in this vocabulary: no end of text appears. */
    assert_encodes(t, (struct text_span){"a<|endoftext|>b", 15}, TOKENIZER_PLAIN, (int[]){0, 1},
                   (uint32_t[]){0, 14}, 2);
    assert_encodes(t, (struct text_span){"", 0}, TOKENIZER_PLAIN, NULL, NULL, 0);
    tokenizer_close(t);
}

/* Marks of Qwen, DeepSeek and Mistral that no file calls special; and tokens that are text: a run
 * of blanks, a word, a tag. */
static const char *const marks[] = {
    "<tool_call>",  "</tool_call>", "<think>",      "<|user|>", "<\xEF\xBD\x9CUser\xEF\xBD\x9C>",
    "[TOOL_CALLS]", "<s>",          "{{assistant}}"};
static const char *const words[] = {"    ",  "\\n\\n", "word", "<table>",
                                    "</h1>", "<a b>",  "<",    "[]"};

static struct tokenizer *open_marked(bool normalized) {
    struct buffer json = {0};
    const char *flag = normalized ? "true" : "false";
    buffer_append_string(&json, "{\"pre_tokenizer\":" BYTES
                                ",\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":[");
    for (size_t i = 0; i < ARRAY_COUNT(marks) + ARRAY_COUNT(words); i++)
        buffer_printf(&json,
                      "%s{\"id\":%zu,\"content\":\"%s\",\"special\":false,\"normalized\":%s}",
                      i ? "," : "", 100 + i,
                      i < ARRAY_COUNT(marks) ? marks[i] : words[i - ARRAY_COUNT(marks)], flag);
    buffer_append_string(&json, "]," MODEL(VOCAB, "") "}");
    buffer_append(&json, "", 1);
    struct tokenizer *t = open_text(json.data);
    buffer_free(&json);
    return t;
}

static bool makes(const struct tokenizer *t, const char *content, int flags, int32_t id) {
    struct tokens ids = {0};
    struct error e;
    bool made = false;
    assert_int_equal(tokenizer_encode(t, content, strlen(content), flags, &ids, &e), STATUS_OK);
    for (int i = 0; i < ids.n; i++) made = made || ids.ids[i] == id;
    tokens_free(&ids);
    return made;
}

static void test_marks(void **state) {
    (void)state;
    for (int normalized = 0; normalized < 2; normalized++) {
        struct tokenizer *t = open_marked(normalized);
        for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
            int32_t id = 100 + (int32_t)i;
            if (makes(t, marks[i], TOKENIZER_PLAIN, id))
                fail_msg("%s is made of plain text", marks[i]);
            if (!makes(t, marks[i], TOKENIZER_PARSE_SPECIAL, id))
                fail_msg("%s of a prompt is no token", marks[i]);
        }
        for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
            const char *text = words[i][0] == '\\' ? "\n\n" : words[i];
            int32_t id = 100 + (int32_t)(ARRAY_COUNT(marks) + i);
            if (!makes(t, text, TOKENIZER_PLAIN, id))
                fail_msg("%s of a text is no token", words[i]);
        }
        tokenizer_close(t);
    }
}

static void test_wordpiece(void **state) {
    (void)state;
    struct tokenizer *t = open_text(
        "{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"
        "\"BertPreTokenizer\"},"
        "\"decoder\":{\"type\":\"WordPiece\"},\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]"
        "\":0,\"cafe\":1,"
        "\"##s\":2,\".\":3,\"[SEP]\":4}}}");
    assert_encodes(t, (struct text_span){"Caf\xC3\xA9S. x", 9}, TOKENIZER_PLAIN,
                   (int[]){1, 2, 3, 0}, (uint32_t[]){0, 5, 6, 8}, 4);
    struct buffer b = {0};
    tokenizer_decode(t, (int32_t[]){1, 2, 3, 1}, 4, true, &b);
    assert_string_equal(b.data, "cafes. cafe");
    assert_int_equal(tokenizer_eod(t), 4);
    buffer_free(&b);
    tokenizer_close(t);
}

/* Every sequence of four ids: what streams is what decoding the whole gives, and always whole
 * characters. */
#define SPACE "\xE2\x96\x81" /* U+2581 */
#define TEXT_BPE(options, vocab, merges, rest) \
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":" \
    "\"" SPACE \
    "\"}," \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SPACE \
    "\"}]},\"decoder\":{\"type\":\"Sequence\"," \
    "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" SPACE \
    "\"},\"content\":\" \"}," \
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" " \
    "\",\"start\":1,\"stop\":0}]}" rest ",\"model\":{\"type\":\"BPE\"," options \
    "\"vocab\":{" vocab "},\"merges\":[" merges "]}}"
/* 1, 2 and 3 are the bytes E2 82 AC of the euro sign. */
#define TEXT_VOCAB \
    "\"<unk>\":0,\"<0xE2>\":1,\"<0x82>\":2,\"<0xAC>\":3,\"" SPACE "\":4,\"a\":5,\"b\":6,\"" SPACE \
    "a\":7,\"\xC3\xA9\":8," \
    "\"<s>\":9"
#define TEXT_MERGES "[\"" SPACE "\",\"a\"]"

static void assert_decodes(const struct tokenizer *t, const int32_t *ids, int n,
                           const char *expected) {
    struct buffer b = {0};
    tokenizer_decode(t, ids, n, true, &b);
    assert_string_equal(b.data ? b.data : "", expected);
    buffer_free(&b);
}

/* Llama 2's kind: merges of characters, bytes for the rest, a space before the text that decoding
 * takes back. */
static void test_text_bpe(void **state) {
    (void)state;
    struct tokenizer *t =
        open_text(TEXT_BPE("\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"fuse_unk\":true,",
                           TEXT_VOCAB, TEXT_MERGES, ""));
    assert_encodes(t, (struct text_span){"a b\xC3\xA9\xE2\x82\xAC", 8}, TOKENIZER_PLAIN,
                   (int[]){7, 4, 6, 8, 1, 2, 3}, (uint32_t[]){0, 1, 2, 3, 5, 6, 7}, 7);
    /* x and y have no bytes here: one unknown token for both. */
    assert_encodes(t, (struct text_span){"xya", 3}, TOKENIZER_PLAIN, (int[]){4, 0, 5},
                   (uint32_t[]){0, 0, 2}, 3);
    assert_decodes(t, (int32_t[]){7, 4, 6, 8, 1, 2, 3}, 7, "a b\xC3\xA9\xE2\x82\xAC");
    assert_decodes(t, (int32_t[]){4, 4, 6}, 3, " b");
    assert_decodes(t, (int32_t[]){6, 4, 6, 1, 2}, 5, "b b\xEF\xBF\xBD");
    tokenizer_close(t);

    t = open_text(TEXT_BPE("\"unk_token\":\"<unk>\",\"ignore_merges\":true,", TEXT_VOCAB, "", ""));
    assert_encodes(t, (struct text_span){"xya", 3}, TOKENIZER_PLAIN, (int[]){4, 0, 0, 5},
                   (uint32_t[]){0, 0, 1, 2}, 4);
    assert_encodes(t, (struct text_span){"a", 1}, TOKENIZER_PLAIN, (int[]){7}, (uint32_t[]){0}, 1);
    tokenizer_close(t);
}

static void test_streaming(void **state) {
    (void)state;
    struct tokenizer *t = open_text(BPE(BYTES, MODEL(VOCAB, "\"a b\",\"ab a\"")));
    for (int code = 0; code < 10000; code++) {
        int32_t ids[] = {code % 10, code / 10 % 10, code / 100 % 10, code / 1000};
        struct detokenizer d = {0};
        struct buffer whole = {0}, parts = {0};
        tokenizer_decode(t, ids, 4, false, &whole);
        for (int i = 0; i < 4; i++) {
            detokenizer_push(&d, t, ids[i], &parts);
            /* A euro sign comes out whole or not at all: never its first byte last. */
            if (parts.size > 0) assert_true(parts.data[parts.size - 1] != '\xE2');
        }
        detokenizer_finish(&d, &parts);
        assert_int_equal(parts.size, whole.size);
        assert_memory_equal(parts.data, whole.data, whole.size);
        buffer_free(&whole);
        buffer_free(&parts);
    }
    struct buffer b = {0};
    tokenizer_decode(t, (int32_t[]){4, 5, 6, 4, 5, 0, 6, -1, 1000}, 9, false, &b);
    assert_string_equal(b.data,
                        "\xE2\x82\xAC\xEF\xBF\xBD"
                        "a\xEF\xBF\xBD");
    buffer_free(&b);
    tokenizer_close(t);
}

static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"", "not JSON"},
        {"[]", "model"},
        {BPE(BYTES, MODEL("\"a\":4000000000", "")), "4000000000"},
        {BPE(BYTES, MODEL("\"a\":-1", "")), "-1"},
        {BPE(BYTES, MODEL("\"a\":0,\"b\":0", "")), "two tokens"},
        {BPE(BYTES, MODEL("\"a\":\"x\"", "")), "integer"},
        {BPE(BYTES, MODEL("\"a\":0,\"b\":1", "\"a b\"")), "result"},
        {BPE(BYTES, MODEL("\"a\":0", "7")), "merges[0]"},
        {BPE("null", MODEL("\"a\":0", "")), "ByteLevel"},
        {BPE("{\"type\":\"Metaspace\"}", MODEL("\"a\":0", "")), "Metaspace"},
        {"{\"decoder\":{\"type\":\"BPEDecoder\"}," MODEL("\"a\":0", "") "}",
         "decoder: type \"BPEDecoder\""},
        {"{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":1}," MODEL(
             "\"a\":0", "") "}",
         "Strip: expected start 0 or 1 and stop 0"},
        {"{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}," MODEL(
             "\"a\":0", "") "}",
         "Strip: expected once, after Fuse"},
        {"{" MODEL("\"a\":0", "") "}", "decoder: there is none"},
        {BPE("{\"type\":\"UnicodeScripts\"}", MODEL("\"a\":0", "")), "UnicodeScripts"},
        {BPE("{\"type\":\"Punctuation\",\"behavior\":\"Never\"}", MODEL("\"a\":0", "")),
         "behavior \"Never\""},
        {BPE(BYTES, "\"normalizer\":{\"type\":\"Prepend\"}," MODEL("\"a\":0", "")), "prepend"},
        {BPE(BYTES, "\"normalizer\":{\"type\":\"Nmt\"}," MODEL("\"a\":0", "")), "Nmt"},
        {BPE(BYTES, "\"post_processor\":{\"type\":\"X\"}," MODEL("\"a\":0", "")), "post_processor"},
        {BPE(BYTES,
             "\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}"),
         "dropout"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct tokenizer *t;
        struct error e = {0};
        assert_int_not_equal(tokenizer_open_json(&t, cases[i].json, strlen(cases[i].json), &e),
                             STATUS_OK);
        assert_null(t);
        if (strstr(e.text, cases[i].says) == NULL)
            fail_msg("%s: expected %s", e.text, cases[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe),       cmocka_unit_test(test_text_bpe),
        cmocka_unit_test(test_marks),     cmocka_unit_test(test_wordpiece),
        cmocka_unit_test(test_streaming), cmocka_unit_test(test_bad_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
