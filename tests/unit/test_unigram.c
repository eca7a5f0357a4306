/* tests/unit/test_unigram.c: Unigram by hand: scores, unknown characters and bytes, spaces,
 * sentinels, the charsmap, bad files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "retro/text/tokenizer.h"

#define METASPACE \
    "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}"
#define FILE_OF(rest, model) \
    "{\"pre_tokenizer\":" METASPACE ",\"decoder\":" METASPACE "," rest \
    "\"model\":{\"type\":\"Unigram\"," model "}}"
#define VOCAB \
    "\"unk_id\":2,\"vocab\":[[\"<pad>\",0],[\"</" \
    "s>\",0],[\"<unk>\",0],[\"\xE2\x96\x81\",-3],[\"a\",-1],[\"b\",-2]," \
    "[\"ab\",-2.5],[\"\xE2\x96\x81" \
    "a\",-4.5],[\"<extra_id_1>\",0],[\"<extra_id_0>\",0]]"
#define SPECIAL(id, content) "{\"id\":" #id ",\"content\":\"" content "\",\"special\":true}"
#define ADDED \
    "\"added_tokens\":[" SPECIAL(0, "<pad>") "," SPECIAL(1, "</s>") "," SPECIAL(2, "<unk>") "," \
    SPECIAL(8, "<extra_id_1>") "," SPECIAL(9, "<extra_id_0>") "]," \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}," \
    "{\"SpecialToken\":{\"id\":\"</s>\"}}],\"special_tokens\":{\"</s>\":{\"ids\":[1]}}},"

static struct tokenizer *open_text(const char *json) {
    struct tokenizer *t;
    struct error e = {0};
    if (tokenizer_open_json(&t, json, strlen(json), &e) != STATUS_OK) fail_msg("%s", e.text);
    return t;
}

static void assert_encodes(const struct tokenizer *t, const char *text, int flags,
                           const int *expected, int n) {
    struct tokens out = {0};
    struct error e;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &out, &e), STATUS_OK);
    assert_int_equal(out.n, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(out.ids[i], expected[i]);
        assert_true(out.starts[i] <= strlen(text));
    }
    tokens_free(&out);
}

static void test_scores(void **state) {
    (void)state;
    struct tokenizer *t = open_text(FILE_OF(ADDED, VOCAB));
    /* "_" + "ab" is -5.5; "_a" + "b" is -6.5; "_" + "a" + "b" is -6. */
    assert_encodes(t, "ab", TOKENIZER_PLAIN, (int[]){3, 6}, 2);
    assert_encodes(t, "a  b", TOKENIZER_PLAIN, (int[]){3, 4, 3, 3, 5}, 5);
    /* Characters side by side that no piece has are one unknown token. */
    assert_encodes(t, "xyzb", TOKENIZER_PLAIN, (int[]){3, 2, 5}, 3);
    tokenizer_close(t);
}

static void test_marks(void **state) {
    (void)state;
    struct tokenizer *t = open_text(FILE_OF(ADDED, VOCAB));
    assert_int_equal(tokenizer_eod(t), 1);
    assert_int_equal(tokenizer_pad(t), 0);
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_sentinel(t, 0), 9);
    assert_int_equal(tokenizer_sentinel(t, 1), 8);
    assert_int_equal(tokenizer_sentinel(t, 2), -1);
    assert_int_equal(tokenizer_sentinel(t, -1), -1);
    assert_int_equal(tokenizer_sentinel(t, 1 << 30), -1);
    assert_encodes(t, "ab<extra_id_0>a", TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL,
                   (int[]){3, 6, 9, 3, 4, 1}, 6);
    /* In a plain text these are characters. */
    assert_encodes(t, "</s>", TOKENIZER_PLAIN, (int[]){3, 2}, 2);

    struct buffer b = {0};
    tokenizer_decode(t, (int32_t[]){9, 7, 5, 3, 6, 1}, 6, true, &b);
    assert_string_equal(b.data, "ab ab");
    buffer_clear(&b);
    tokenizer_decode(t, (int32_t[]){9, 7, 5, 1}, 4, false, &b);
    assert_string_equal(b.data, "<extra_id_0> ab</s>");
    buffer_free(&b);
    tokenizer_close(t);
}

/* Pieces for all bytes, ids 3 to 258. */
static void append_bytes(struct buffer *b) {
    buffer_append_string(b, "[\"<unk>\",0],[\"\xE2\x96\x81\",-3],[\"a\",-1]");
    for (int k = 0; k < 256; k++) buffer_printf(b, ",[\"<0x%02X>\",-9]", k);
}

static void test_bytes(void **state) {
    (void)state;
    struct buffer json = {0}, b = {0};
    buffer_append_string(&json, "{\"pre_tokenizer\":" METASPACE
                                ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
                                "{\"type\":\"ByteFallback\"}," METASPACE
                                "]},\"model\":{\"type\":\"Unigram\","
                                "\"byte_fallback\":true,\"unk_id\":0,\"vocab\":[");
    append_bytes(&json);
    buffer_append_string(&json, "]}}");
    struct tokenizer *t = open_text(json.data);
    const int expected[] = {1, 2, 3 + 0xC3, 3 + 0xA9, 3 + 0xC3, 3 + 0xA9, 2};
    assert_encodes(t,
                   "a\xC3\xA9\xC3\xA9"
                   "a",
                   TOKENIZER_PLAIN, expected, 7);
    tokenizer_decode(t, expected, 7, true, &b);
    assert_string_equal(b.data,
                        "a\xC3\xA9\xC3\xA9"
                        "a");
    buffer_free(&json);
    buffer_free(&b);
    tokenizer_close(t);
}

enum { TRIE_UNITS = 256 };
/* A charsmap that writes "b" for "A": root -> 0xC1 by 'A' -> value at 0xC0. */
struct charsmap_bytes {
    uint32_t trie_size, units[TRIE_UNITS];
    char texts[2];
};
static const struct charsmap_bytes good_map = {
    sizeof good_map.units,
    {[0] = 0x80 << 10, [0xC1] = 'A' | 1 << 8 | 1 << 10, [0xC0] = 1u << 31},
    "b"};

/* A tokenizer.json with the first `size` bytes of a charsmap. */
static void write_json(const struct charsmap_bytes *map, size_t size, struct buffer *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = (const uint8_t *)map;
    buffer_append_string(out,
                         "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
    for (size_t i = 0; i < size; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++) bits = bits << 8 | (i + k < size ? bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            buffer_printf(out, "%c", i + k <= size ? digits[bits >> (18 - 6 * k) & 63] : '=');
    }
    buffer_append_string(out, "\"},\"pre_tokenizer\":" METASPACE ",\"decoder\":" METASPACE
                              ",\"model\":{\"type\":\"Unigram\"," VOCAB "}}");
}

static void test_charsmap(void **state) {
    (void)state;
    struct buffer json = {0};
    write_json(&good_map, sizeof good_map.trie_size + sizeof good_map.units + 2, &json);
    struct tokenizer *t = open_text(json.data);
    assert_encodes(t, "aAa", TOKENIZER_PLAIN, (int[]){3, 6, 4}, 3);
    /* "A" with an accent is one cluster, found by its shortest prefix, and goes as a whole. */
    assert_encodes(t,
                   "A\xCC\x81"
                   "b",
                   TOKENIZER_PLAIN, (int[]){3, 5, 5}, 3);
    tokenizer_close(t);
    buffer_free(&json);
}

static void assert_refused(const char *json, const char *says) {
    struct tokenizer *t;
    struct error e = {0};
    assert_int_not_equal(tokenizer_open_json(&t, json, strlen(json), &e), STATUS_OK);
    assert_null(t);
    if (strstr(e.text, says) == NULL) fail_msg("%s: expected %s", e.text, says);
}

static void test_bad_charsmaps(void **state) {
    (void)state;
    size_t whole = sizeof good_map.trie_size + sizeof good_map.units + 2;
    struct charsmap_bytes outside = good_map, no_text = good_map, root = good_map, latin = good_map;
    outside.units[7] = 1 << 20;
    no_text.units[0xC0] = 1u << 31 | 2;
    root.units[0] |= 1u << 31;
    latin.texts[0] = '\xE9';
    const struct {
        const struct charsmap_bytes *map;
        size_t size;
        const char *says;
    } cases[] = {{&good_map, 0, "0 bytes"},       {&good_map, 3, "3 bytes"},
                 {&good_map, 1000, "1000 bytes"}, {&outside, whole, "unit 7 leads to"},
                 {&no_text, whole, "byte 2"},     {&root, whole, "unit 0"},
                 {&latin, whole, "not UTF-8"}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct buffer json = {0};
        write_json(cases[i].map, cases[i].size, &json);
        assert_refused(json.data, cases[i].says);
        buffer_free(&json);
    }
}

static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        {FILE_OF("", "\"unk_id\":0,\"vocab\":{}"), "model.vocab"},
        {FILE_OF("", "\"unk_id\":0,\"vocab\":[]"), "model.vocab"},
        {FILE_OF("", "\"unk_id\":0,\"vocab\":[[\"a\"]]"), "model.vocab[0]"},
        {FILE_OF("", "\"unk_id\":0,\"vocab\":[[\"a\",\"b\"]]"), "model.vocab[0]"},
        {FILE_OF("", "\"vocab\":[[\"a\",0]]"), "unk_id"},
        {FILE_OF("", "\"unk_id\":1,\"vocab\":[[\"a\",0]]"), "unk_id"},
        {FILE_OF("", "\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"a\",0]]"), "<0x00>"},
        {FILE_OF("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A\"},",
                 VOCAB),
         "base64"},
        {FILE_OF("\"normalizer\":{\"type\":\"Precompiled\"},", VOCAB), "base64"},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":" METASPACE
         ",\"model\":{\"type\":\"Unigram\"," VOCAB "}}",
         "ByteLevel"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"},\"model\":{\"type\":"
         "\"Unigram\"," VOCAB "}}",
         "replacement"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
         "\"x\"},\"model\":{"
         "\"type\":\"Unigram\"," VOCAB "}}",
         "prepend_scheme"},
        {"{\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"Unigram\"," VOCAB "}}",
         "decoder"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) assert_refused(cases[i].json, cases[i].says);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_bytes),         cmocka_unit_test(test_charsmap),
        cmocka_unit_test(test_bad_charsmaps), cmocka_unit_test(test_bad_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
