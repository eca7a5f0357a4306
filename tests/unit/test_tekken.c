/* tests/unit/test_tekken.c: tekken.json as a tokenizer: ids, special tokens of files that list them
 * and that do not, and what is refused. */
#include <string.h>

#include "config/base/base64.h"
#include "retro/text/tokenizer.h"
#include "tests/folder.h"

#define CONFIG(words, marks) \
    "\"config\":{\"pattern\":\"\\\\S+|\\\\s+\",\"default_vocab_size\":" words \
    ",\"default_num_special_tokens\":" marks "}"

static char folder[FOLDER_SIZE];

static int set_up(void **state) {
    (void)state;
    folder_make(folder);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    folder_remove(folder);
    return 0;
}

/* The 256 bytes, and behind them "ab", "abc", "bc" and what is given. */
static void put_words(struct buffer *out, const char *more) {
    buffer_append_string(out, "\"vocab\":[");
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        buffer_printf(out, "{\"rank\":%d,\"token_bytes\":\"", i);
        base64_encode((struct text_span){&byte, 1}, out);
        buffer_append_string(out, "\"},");
    }
    buffer_append_string(out,
                         "{\"rank\":256,\"token_bytes\":\"YWI=\"},"
                         "{\"rank\":257,\"token_bytes\":\"YWJj\"},"
                         "{\"rank\":258,\"token_bytes\":\"YmM=\"}");
    buffer_append_string(out, more);
    buffer_append_string(out, "]");
}

static enum status open_file(struct tokenizer **out, const char *config, const char *words,
                             const char *marks, struct error *e) {
    struct buffer text = {0};
    buffer_printf(&text, "{%s,", config);
    put_words(&text, words);
    buffer_printf(&text, "%s}", marks);
    folder_write(folder, "tekken.json", text.data, text.size);
    buffer_free(&text);
    return tokenizer_open(out, folder, e);
}

static void expect_ids(const struct tokenizer *t, const char *text, int flags, const int *ids,
                       int n) {
    struct tokens out = {0};
    struct error e;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &out, &e), STATUS_OK);
    assert_int_equal(out.n, n);
    for (int i = 0; i < n; i++) assert_int_equal(out.ids[i], ids[i]);
    tokens_free(&out);
}

/* "abc" is a word; in "xabc" "ab" is joined first, and then "abc"; in "xbc" "bc". */
static void test_ids(void **state) {
    (void)state;
    struct tokenizer *t;
    struct error e = {0};
    assert_int_equal(open_file(&t, CONFIG("282", "23"), "", "", &e), STATUS_OK);
    assert_int_equal(tokenizer_vocab_size(t), 282);
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eod(t), 2);
    assert_int_equal(tokenizer_pad(t), 11);
    expect_ids(t, "abc xabc xbc", TOKENIZER_PLAIN,
               (int[]){23 + 257, 23 + ' ', 23 + 'x', 23 + 257, 23 + ' ', 23 + 'x', 23 + 258}, 7);
    expect_ids(t, "a", TOKENIZER_ADD_SPECIAL, (int[]){1, 23 + 'a'}, 2);
    expect_ids(t, "[INST]a<SPECIAL_22>", TOKENIZER_PARSE_SPECIAL, (int[]){3, 23 + 'a', 22}, 3);
    tokenizer_close(t);
}

/* The words behind those that count are left out, and the file's own names are those of its special
 * tokens. */
static void test_listed_marks(void **state) {
    (void)state;
    static const char marks[] =
        ",\"special_tokens\":[{\"rank\":0,\"token_str\":\"<pad>\"},"
        "{\"rank\":1,\"token_str\":\"</s>\"},"
        "{\"rank\":2,\"token_str\":\"<s>\"}]";
    struct tokenizer *t;
    struct error e = {0};
    assert_int_equal(open_file(&t, CONFIG("261", "4"), "", marks, &e), STATUS_OK);
    assert_int_equal(tokenizer_bos(t), 2);
    assert_int_equal(tokenizer_eod(t), 1);
    expect_ids(t, "xabc", TOKENIZER_ADD_SPECIAL, (int[]){2, 4 + 'x', 4 + 256, 4 + 'c'}, 4);
    expect_ids(t, "<SPECIAL_3>", TOKENIZER_PARSE_SPECIAL, (int[]){3}, 1);
    tokenizer_close(t);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *config, *words, *marks, *message;
    } cases[] = {
        {"\"config\":{}", "", "", "config.default_vocab_size: expected a number"},
        {CONFIG("-1", "3"), "", "", "config.default_vocab_size: expected a number"},
        {CONFIG("279", "true"), "", "", "config.default_num_special_tokens: expected a number"},
        {CONFIG("200", "20"), "", "", "256 are needed"},
        {CONFIG("280", "20"), "", "", "vocab: 259 words, and config asks for 260"},
        {CONFIG("280", "20"), ",{\"rank\":7,\"token_bytes\":\"YQ==\"}", "",
         "expected the rank 259"},
        {CONFIG("280", "20"), ",{\"rank\":259,\"token_bytes\":\"?\"}", "", "1 to 256 bytes"},
        {CONFIG("280", "20"), ",{\"rank\":259,\"token_bytes\":\"\"}", "", "1 to 256 bytes"},
        {CONFIG("280", "20"), ",{\"rank\":259,\"token_bytes\":\"YWI=\"}", "", "as vocab[256]"},
        {CONFIG("262", "3"), "", ",\"special_tokens\":[{\"rank\":3,\"token_str\":\"x\"}]",
         "special_tokens[0]"},
        {CONFIG("262", "3"), "", ",\"special_tokens\":[{\"rank\":0}]", "special_tokens[0]"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct tokenizer *t;
        struct error e = {0};
        assert_int_equal(open_file(&t, cases[i].config, cases[i].words, cases[i].marks, &e),
                         STATUS_INVALID);
        if (strstr(e.text, cases[i].message) == NULL || strstr(e.text, "tekken.json") == NULL)
            fail_msg("case %zu: %s", i, e.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ids, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_listed_marks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
