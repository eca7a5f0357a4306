/* tests/unit/test_gguf_text.c: tokenizers of GGUF files against llama.cpp's
 * (tests/reference/make_gguf_golden.py), and metadata that lie. */
#include <math.h>

#include "config/json/json_value.h"
#include "retro/text/open/tokenizer_gguf.h"
#include "tests/unit/gguf_build.h"

enum { LINE_SIZE = 4000, TEXT_SIZE = 400, MOST_IDS = 400 };

static struct tokenizer *open_file(const char *path) {
    struct tokenizer *t;
    struct error e = {0};
    if (tokenizer_open(&t, path, &e)) fail_msg("%s", e.text);
    return t;
}

static size_t read_hex(const char *hex, char *text) {
    size_t n = 0;
    unsigned byte;
    for (; n < TEXT_SIZE && sscanf(hex + 2 * n, "%2x", &byte) == 1; n++) text[n] = (char)byte;
    return n;
}

static void expect_ids(const struct tokenizer *t, struct text_span text, int flags, const char *ids,
                       const char *what) {
    struct tokens got = {0};
    struct error e;
    struct buffer line = {0};
    assert_int_equal(tokenizer_encode(t, text.text, text.size, flags, &got, &e), STATUS_OK);
    for (int i = 0; i < got.n; i++) buffer_printf(&line, "%s%d", i ? " " : "", (int)got.ids[i]);
    if (strcmp(line.data ? line.data : "", ids) != 0)
        fail_msg("%s: %.*s\n   %s, expected\n   %s", what, (int)text.size, text.text, line.data,
                 ids);
    buffer_free(&line);
    tokens_free(&got);
}

static const char mark[] = "<sep>";

static bool holds_mark(struct text_span text) {
    return memmem(text.text, text.size, mark, sizeof mark - 1) != NULL;
}

/* llama.cpp makes a user-defined token of any text. Here one that reads as a mark is characters in
 * a plain text. */
static void expect_characters(const struct tokenizer *t, struct text_span text) {
    struct tokens marked = {0}, got = {0};
    struct buffer back = {0};
    struct error e;
    assert_int_equal(
        tokenizer_encode(t, mark, sizeof mark - 1, TOKENIZER_PARSE_SPECIAL, &marked, &e),
        STATUS_OK);
    assert_int_equal(tokenizer_encode(t, text.text, text.size, TOKENIZER_PLAIN, &got, &e),
                     STATUS_OK);
    for (int i = 0; i < got.n; i++) assert_int_not_equal(got.ids[i], marked.ids[marked.n - 1]);
    tokenizer_decode(t, got.ids, got.n, false, &back);
    assert_int_equal(back.size, text.size);
    assert_memory_equal(back.data, text.text, text.size);
    buffer_free(&back);
    tokens_free(&marked);
    tokens_free(&got);
}

/* Lines of ADD PARSE HEX ID...; and every plain text decodes to itself. */
static void check_model(const char *name) {
    char path[200], line[LINE_SIZE], hex[2 * TEXT_SIZE + 1], text[TEXT_SIZE];
    int add, parse, used, lines = 0;
    snprintf(path, sizeof path, "tests/golden/gguf/%s/model.gguf", name);
    struct tokenizer *t = open_file(path);
    snprintf(path, sizeof path, "tests/golden/gguf/%s/tokens.txt", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); lines++) {
        line[strcspn(line, "\n")] = '\0';
        assert_int_equal(sscanf(line, "%d %d %800s %n", &add, &parse, hex, &used), 3);
        struct text_span span = {text, read_hex(hex, text)};
        int flags = (add ? TOKENIZER_ADD_SPECIAL : 0) | (parse ? TOKENIZER_PARSE_SPECIAL : 0);
        bool user_defined = strcmp(name, "llama") != 0; /* the mark, in the other files */
        if (user_defined && !parse && holds_mark(span))
            expect_characters(t, span);
        else
            expect_ids(t, span, flags, line + used, name);
    }
    assert_int_equal(lines, 14);
    fclose(f);
    tokenizer_close(t);
}

static void test_models(void **state) {
    (void)state;
    check_model("llama");
    check_model("qwen2");
    check_model("gpt2");
}

static void test_marks(void **state) {
    (void)state;
    struct tokenizer *t = open_file("tests/golden/gguf/llama/model.gguf");
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eod(t), 2);
    assert_true(tokenizer_is_special(t, 1));
    tokenizer_close(t);

    struct gguf *g;
    struct error e;
    struct buffer text = {0};
    struct json *options;
    assert_int_equal(gguf_open(&g, "tests/golden/gguf/qwen2/model.gguf", &e), STATUS_OK);
    assert_int_equal(gguf_write_options(g, &text, &e), STATUS_OK);
    assert_int_equal(json_parse(&options, (struct text_span){text.data, text.size}, "options", &e),
                     STATUS_OK);
    assert_true(json_text_is(json_member(options, "bos_token"), "<s>"));
    assert_true(json_text_is(json_member(options, "eos_token"), "</s>"));
    assert_true(json_text_is(json_member(options, "chat_template"), "{{ messages[0].content }}"));
    json_close(options);
    buffer_free(&text);
    gguf_close(g);
}

/* The bytes of vocabulary.gguf with another tokenizer.ggml.pre. */
static void put_pre(struct buffer *out, const struct buffer *file, const char *pre) {
    static const char key[] = "tokenizer.ggml.pre";
    char *at = memmem(file->data, file->size, key, sizeof key - 1);
    assert_non_null(at);
    size_t head = (size_t)(at - file->data) + sizeof key - 1 + 4, old = strlen("gpt-2");
    buffer_clear(out);
    buffer_append(out, file->data, head);
    draft_text(out, pre);
    buffer_append(out, file->data + head + 8 + old, file->size - head - 8 - old);
}

static struct tokenizer *open_bytes(const struct buffer *bytes) {
    struct gguf *g;
    struct tokenizer *t = NULL;
    struct error e = {0};
    if (gguf_open_memory(&g, bytes->data, bytes->size, "m", &e) || tokenizer_open_gguf(&t, g, &e))
        fail_msg("%s", e.text);
    gguf_close(g);
    return t;
}

/* A vocabulary whose merges know no words: where a text is cut shows in the ids. */
static void test_pre(void **state) {
    (void)state;
    enum { TEXTS = 7 };
    struct buffer file = {0}, patched = {0};
    struct error e;
    char line[LINE_SIZE], texts[TEXTS][TEXT_SIZE], name[40];
    size_t sizes[TEXTS];
    int number, used, lines = 0;
    FILE *f = fopen("tests/golden/gguf/texts.txt", "r");
    assert_non_null(f);
    for (int i = 0; i < TEXTS; i++) {
        assert_non_null(fgets(line, sizeof line, f));
        sizes[i] = read_hex(line, texts[i]);
    }
    fclose(f);

    assert_int_equal(file_read("tests/golden/gguf/vocabulary.gguf", 1 << 20, &file, &e), STATUS_OK);
    f = fopen("tests/golden/gguf/pre.txt", "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); lines++) {
        line[strcspn(line, "\n")] = '\0';
        assert_int_equal(sscanf(line, "%39s %d %n", name, &number, &used), 2);
        put_pre(&patched, &file, name);
        struct tokenizer *t = open_bytes(&patched);
        struct text_span text = {texts[number], sizes[number]};
        if (holds_mark(text))
            expect_characters(t, text);
        else
            expect_ids(t, text, TOKENIZER_PLAIN, line + used, name);
        tokenizer_close(t);
    }
    assert_true(lines > 40 * TEXTS);
    fclose(f);
    buffer_free(&file);
    buffer_free(&patched);
}

static void test_wordpiece(void **state) {
    (void)state;
    struct tokenizer *t = open_file("tests/golden/gguf/wordpiece.gguf");
    static const char text[] = "Hello, W\xC3\xB6rld see12345678xx!";
    struct tokens got = {0};
    struct error e;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), TOKENIZER_ADD_SPECIAL, &got, &e),
                     STATUS_OK);
    assert_int_equal(got.ids[0], 2);
    assert_int_equal(got.ids[1], 5);
    assert_int_equal(got.ids[3], 6); /* lower case, without accents */
    assert_int_equal(got.ids[4], 1); /* one word, and not all of it is known */
    assert_int_equal(got.ids[got.n - 1], 3);
    tokens_free(&got);
    tokenizer_close(t);
}

/* The likeliest pieces, as T5's Unigram has them. */
static void test_unigram(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int kind;
        float score;
    } pieces[] = {{"<unk>", 2, 0}, {"</s>", 3, 0}, {"\xE2\x96\x81", 1, -1},
                  {"a", 1, -3},    {"b", 1, -3},   {"ab", 1, -2}};
    struct gguf_draft d = {0};
    draft_word(&d, "tokenizer.ggml.model", "t5");
    draft_u32(&d, "tokenizer.ggml.unknown_token_id", 0);
    draft_u32(&d, "tokenizer.ggml.eos_token_id", 1);
    draft_list(&d, "tokenizer.ggml.tokens", GGUF_TEXT, ARRAY_COUNT(pieces));
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++) draft_text(&d.keys, pieces[i].text);
    draft_list(&d, "tokenizer.ggml.token_type", GGUF_I32, ARRAY_COUNT(pieces));
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++)
        draft_number(&d.keys, (uint64_t)pieces[i].kind, 4);
    draft_list(&d, "tokenizer.ggml.scores", GGUF_F32, ARRAY_COUNT(pieces));
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++)
        buffer_append(&d.keys, &pieces[i].score, sizeof(float));
    draft_build(&d);
    struct tokenizer *t = open_bytes(&d.file);
    expect_ids(t, (struct text_span){"ab a", 4}, TOKENIZER_ADD_SPECIAL, "2 5 2 3 1", "t5");
    assert_int_equal(tokenizer_eod(t), 1);
    tokenizer_close(t);
    draft_free(&d);
}

/* BPE of whole texts: spaces are pieces of words, other characters bytes; marks are found in a text
 * and made by merges. */
static void test_text_bpe(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int kind;
    } pieces[] = {{"<pad>", 3},
                  {"<bos>", 3},
                  {"<unk>", 2},
                  {"<0xC3>", 6},
                  {"<0xA4>", 6},
                  {"a", 1},
                  {"b", 1},
                  {"\xE2\x96\x81", 1},
                  {"\xE2\x96\x81"
                   "a",
                   1},
                  {"\n", 1},
                  {"\n\n", 4},
                  {"<|\"|>", 4},
                  {"<turn|>", 3}};
    static const char *const merges[] = {"\xE2\x96\x81 a", "\n \n"};
    struct gguf_draft d = {0};
    draft_word(&d, "tokenizer.ggml.model", "gemma4");
    draft_u32(&d, "tokenizer.ggml.bos_token_id", 1);
    draft_u32(&d, "tokenizer.ggml.unknown_token_id", 2);
    draft_u32(&d, "tokenizer.ggml.eos_token_id", 12);
    draft_list(&d, "tokenizer.ggml.tokens", GGUF_TEXT, ARRAY_COUNT(pieces));
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++) draft_text(&d.keys, pieces[i].text);
    draft_list(&d, "tokenizer.ggml.token_type", GGUF_I32, ARRAY_COUNT(pieces));
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++)
        draft_number(&d.keys, (uint64_t)pieces[i].kind, 4);
    draft_list(&d, "tokenizer.ggml.merges", GGUF_TEXT, ARRAY_COUNT(merges));
    for (size_t i = 0; i < ARRAY_COUNT(merges); i++) draft_text(&d.keys, merges[i]);
    draft_build(&d);
    struct tokenizer *t = open_bytes(&d.file);
    expect_ids(t, (struct text_span){"a b a", 5}, TOKENIZER_ADD_SPECIAL, "1 5 7 6 8", "spaces");
    expect_ids(t, (struct text_span){"\xC3\xA4\n\na", 5}, 0, "3 4 10 5", "bytes and lines");
    expect_ids(t, (struct text_span){"a<|\"|>b<turn|>", 14}, TOKENIZER_PARSE_SPECIAL, "5 11 6 12",
               "marks");
    struct buffer text = {0};
    for (int id = 3; id <= 8; id++) tokenizer_piece(t, id, &text);
    assert_int_equal(text.size, 7);
    assert_memory_equal(text.data,
                        "\xC3\xA4"
                        "ab  a",
                        7);
    buffer_free(&text);
    tokenizer_close(t);
    draft_free(&d);
}

static void expect_refusal(struct gguf_draft *d, const char *words) {
    struct gguf *g;
    struct tokenizer *t;
    struct error e = {0};
    draft_build(d);
    if (gguf_open_memory(&g, d->file.data, d->file.size, "m", &e)) fail_msg("%s", e.text);
    assert_int_not_equal(tokenizer_open_gguf(&t, g, &e), STATUS_OK);
    assert_null(t);
    if (strstr(e.text, words) == NULL) fail_msg("expected \"%s\" in: %s", words, e.text);
    gguf_close(g);
    draft_free(d);
}

/* A tokenizer of two bytes and no merges. */
static void draft_bytes(struct gguf_draft *d, const char *model, const char *pre) {
    draft_word(d, "tokenizer.ggml.model", model);
    draft_word(d, "tokenizer.ggml.pre", pre);
    draft_list(d, "tokenizer.ggml.tokens", GGUF_TEXT, 2);
    draft_text(&d->keys, "a");
    draft_text(&d->keys, "b");
}

static void test_refusals(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    expect_refusal(&d, "tokenizer.ggml.model is missing");
    draft_bytes(&d, "rwkv", "gpt-2");
    expect_refusal(&d, "tokenizer.ggml.model \"rwkv\" is unknown");
    d = (struct gguf_draft){0};
    draft_bytes(&d, "gpt2", "superbpe");
    expect_refusal(&d, "tokenizer.ggml.pre \"superbpe\" is unknown");
    d = (struct gguf_draft){0};
    draft_bytes(&d, "gpt2", "gpt-2");
    expect_refusal(&d, "tokenizer.ggml.merges is missing");
    d = (struct gguf_draft){0};
    draft_bytes(&d, "gpt2", "gpt-2");
    draft_u32(&d, "tokenizer.ggml.bos_token_id", 2);
    expect_refusal(&d, "tokenizer.ggml.bos_token_id is not in the vocabulary");
    d = (struct gguf_draft){0};
    draft_bytes(&d, "gpt2", "gpt-2");
    draft_list(&d, "tokenizer.ggml.token_type", GGUF_I32, 1);
    draft_number(&d.keys, 1, 4);
    expect_refusal(&d, "tokenizer.ggml.token_type is not a list as long as tokenizer.ggml.tokens");
    d = (struct gguf_draft){0};
    draft_bytes(&d, "llama", "default");
    draft_list(&d, "tokenizer.ggml.token_type", GGUF_I32, 2);
    draft_number(&d.keys, 1, 4);
    draft_number(&d.keys, 9, 4);
    expect_refusal(&d, "tokenizer.ggml.token_type holds a type that is not 1 .. 6");
    for (float bad = NAN;; bad = INFINITY) {
        d = (struct gguf_draft){0};
        draft_bytes(&d, "llama", "default");
        draft_list(&d, "tokenizer.ggml.scores", GGUF_F32, 2);
        draft_number(&d.keys, 0, 4);
        buffer_append(&d.keys, &bad, sizeof bad);
        expect_refusal(&d, "tokenizer.ggml.scores holds what is no finite number");
        if (!isnan(bad)) break;
    }
    d = (struct gguf_draft){0};
    draft_bytes(&d, "llama", "default");
    expect_refusal(&d, "SentencePiece"); /* no unknown token */
    d = (struct gguf_draft){0};
    draft_bytes(&d, "bert", "default");
    expect_refusal(&d, "tokenizer.ggml.unknown_token_id is missing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),   cmocka_unit_test(test_marks),
        cmocka_unit_test(test_pre),      cmocka_unit_test(test_wordpiece),
        cmocka_unit_test(test_unigram),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_text_bpe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
