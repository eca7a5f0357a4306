/* tests/unit/test_quotes.c: quotes under a grammar, with tokenizers of every family: each is looked
 * for in its passage by code that knows nothing of the matcher, and masks are compared with what
 * they stand for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/json/json_value.h"
#include "retro/grammar/gbnf.h"
#include "retro/grammar/schema.h"
#include "tests/folder.h"
#include "tests/grammars.h"

#define TEXT(words) \
    { words, sizeof(words) - 1 }
#define FREE_TEXT "root ::= ([^\"] | \"\\\"\" <quote> \"\\\"\")*"

/* A tokenizer with its vocabulary, and the id that ends an answer. */
struct family {
    const char *name;
    struct tokenizer *tokenizer;
    struct vocab vocab;
    int32_t end;
};

static struct family byte_level, byte_fallback, unigram, word_piece;

/* Families. */

static struct tokenizer *open_json(const char *json) {
    struct tokenizer *t;
    struct error e = {0};
    if (tokenizer_open_json(&t, json, strlen(json), &e)) fail_msg("%s", e.text);
    return t;
}

/* Pieces that cross the borders of words, and characters. */
static const char *const pieces[] = {
    "the",    "The", " the",  "an",  " an", "fork", " fork", "er",  " a",       "a",   "ing",
    "\" the", ".\"", " \"",   "\"",  ". ",  "s a",  "e par", "ent", " pro",     "ces", "s",
    ", ",     "\n",  "\"The", "n\"", "1",   " 2",   "-",     "can", "\xC3\xA9", "'t"};

/* SentencePiece's words: a blank is U+2581. */
static void put_piece(struct buffer *out, const char *piece) {
    for (; *piece; piece++) {
        if (*piece == ' ')
            buffer_append_string(out, "\xE2\x96\x81");
        else if (*piece == '\n')
            buffer_append_string(out, "\\n");
        else
            buffer_printf(out, *piece == '"' || *piece == '\\' ? "\\%c" : "%c", *piece);
    }
}

static struct tokenizer *open_byte_fallback(void) {
    struct buffer json = {0};
    buffer_append_string(
        &json,
        "{\"added_tokens\":[{\"id\":0,\"content\":\"</s>\",\"special\":true}],"
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
        "\"\xE2\x96\x81\"},\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Sequence\","
        "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},"
        "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},\"model\":{"
        "\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[],\"vocab\":{\"</s>\":0");
    for (int b = 0; b < 256; b++) buffer_printf(&json, ",\"<0x%02X>\":%d", b, b + 1);
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++) {
        buffer_append_string(&json, ",\"");
        put_piece(&json, pieces[i]);
        buffer_printf(&json, "\":%d", 257 + (int)i);
    }
    buffer_append_string(&json, "}}}");
    struct tokenizer *t = open_json(json.data);
    buffer_free(&json);
    return t;
}

/* Without bytes: what is no piece and no printable character of ASCII cannot be written. */
static struct tokenizer *open_unigram(void) {
    struct buffer json = {0};
    buffer_append_string(
        &json,
        "{\"added_tokens\":[{\"id\":0,\"content\":\"</s>\",\"special\":true}],"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\","
        "\"prepend_scheme\":\"never\"},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":"
        "\"\xE2\x96\x81\",\"prepend_scheme\":\"never\"},\"model\":{\"type\":\"Unigram\","
        "\"unk_id\":1,\"vocab\":[[\"</s>\",0],[\"<unk>\",0]");
    for (char c = ' '; c < 127; c++) {
        buffer_append_string(&json, ",[\"");
        put_piece(&json, (char[]){c, '\0'});
        buffer_append_string(&json, "\",-9]");
    }
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++) {
        buffer_append_string(&json, ",[\"");
        put_piece(&json, pieces[i]);
        buffer_append_string(&json, "\",-5]");
    }
    buffer_append_string(&json, "]}}");
    struct tokenizer *t = open_json(json.data);
    buffer_free(&json);
    return t;
}

/* Pieces of words and punctuation, and no blank but those that pieces begin with. */
static struct tokenizer *open_word_piece(void) {
    struct buffer json = {0};
    struct tokenizer *t;
    struct error e = {0};
    char folder[FOLDER_SIZE], path[FOLDER_PATH_SIZE];
    buffer_append_string(&json, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    for (char c = '!'; c < 127; c++) buffer_printf(&json, "%c\n##%c\n", c, c);
    buffer_append_string(&json, "the\nfork\n##ing\nprocess\n##ess\nparent\n");
    folder_make(folder);
    folder_write(folder, "vocab.txt", json.data, json.size);
    folder_path(path, folder, "vocab.txt");
    if (tokenizer_open(&t, path, &e)) fail_msg("%s", e.text);
    buffer_free(&json);
    folder_remove(folder);
    return t;
}

static void open_family(struct family *f, const char *name, struct tokenizer *t, int32_t end) {
    *f = (struct family){.name = name, .tokenizer = t, .end = end};
    vocab_open(&f->vocab, t, tokenizer_vocab_size(t), &f->end, 1);
}

static int open_families(void **state) {
    (void)state;
    open_family(&byte_level, "byte-level BPE", open_test_tokenizer(), TEST_END);
    open_family(&byte_fallback, "BPE with byte fallback", open_byte_fallback(), 0);
    open_family(&unigram, "Unigram", open_unigram(), 0);
    open_family(&word_piece, "WordPiece", open_word_piece(), 3);
    return 0;
}

static int close_families(void **state) {
    struct family *const all[] = {&byte_level, &byte_fallback, &unigram, &word_piece};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        vocab_close(&all[i]->vocab);
        tokenizer_close(all[i]->tokenizer);
    }
    return 0;
}

/* Quotes are told once more and slowly, of bytes: those from 0x80 on are letters, blanks are those
 * of ASCII. */

static bool letter_at(struct text_span text, size_t at) {
    unsigned char c = (unsigned char)text.text[at];
    return c >= 0x80 || c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

static bool blank_at(struct text_span text, size_t at) {
    return text.text[at] == ' ' || (text.text[at] >= '\t' && text.text[at] <= '\r');
}

static bool stops_at(struct text_span text, size_t at, bool marks_stop) {
    return at >= text.size || (marks_stop && text.text[at] == '"');
}

/* No letter stands between a quote's border at `at` and the blank at that side of it, and one does
 * at the other. */
static bool is_border(struct text_span text, size_t at, int side, bool marks_stop) {
    bool inside = false;
    for (size_t i = at; i > 0 && !blank_at(text, i - 1) && !stops_at(text, i - 1, marks_stop); i--)
        if (letter_at(text, i - 1)) {
            if (side < 0) return false;
            inside = true;
            break;
        }
    if (side > 0 && !inside) return false;
    if (side < 0 && at > 0 && at < text.size && blank_at(text, at)) return false;
    bool ahead = false;
    for (size_t i = at; !stops_at(text, i, marks_stop) && !blank_at(text, i); i++)
        ahead = ahead || letter_at(text, i);
    return side < 0 ? ahead : !ahead;
}

static int count_words(struct text_span quote) {
    int n = 0;
    bool has = false;
    for (size_t i = 0; i <= quote.size; i++) {
        bool blank = i == quote.size || blank_at(quote, i);
        if (blank) n += has;
        has = !blank && (has || letter_at(quote, i));
    }
    return n;
}

static bool is_quote_of(struct text_span passage, struct text_span quote, int words,
                        bool marks_stop) {
    if (quote.size == 0 || count_words(quote) < words) return false;
    for (size_t at = 0; at + quote.size <= passage.size; at++) {
        if (memcmp(passage.text + at, quote.text, quote.size) != 0) continue;
        if (is_border(passage, at, -1, marks_stop) &&
            is_border(passage, at + quote.size, 1, marks_stop))
            return true;
    }
    return false;
}

/* Answers. */

struct passage_list {
    const struct text_span *list;
    int n, words;
};

static struct text_span span_of(const char *text) { return (struct text_span){text, strlen(text)}; }

static struct grammar *make_grammar(const struct family *f, const char *gbnf) {
    struct grammar_draft d = {0};
    struct grammar *g = NULL;
    struct error e;
    grammar_draft_open(&d);
    if (gbnf_parse(&d, span_of(gbnf), &e) || grammar_open(&g, &d, &f->vocab, &e))
        fail_msg("%s", e.text);
    grammar_draft_free(&d);
    return g;
}

static enum status add_text(struct matcher *m, struct text_span text, int number, struct error *e) {
    return matcher_add_passage(m, &(struct passage_text){.text = text}, number, e);
}

static void open_answer(struct matcher *m, const struct family *f, struct grammar *g,
                        const struct passage_list *passages) {
    const struct matcher_begin begin = {
        .after = -1, .optional = -1, .quote_words = passages->words};
    struct error e;
    matcher_open(m, g, &begin, tokenizer_vocab_size(f->tokenizer), &f->end, 1);
    for (int i = 0; i < passages->n; i++)
        assert_int_equal(add_text(m, passages->list[i], i, &e), STATUS_OK);
}

/* One of the tokens that are allowed, those with a quotation mark more often than others; -1: there
 * is none. */
static int32_t draw(const struct family *f, const uint32_t *mask, bool marks) {
    int n = tokenizer_vocab_size(f->tokenizer), first = rand() % n;
    for (int pass = marks ? 0 : 1; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            int32_t id = (first + i) % n;
            struct buffer piece = {0};
            if (!mask_has(mask, id) || id == f->end) continue;
            tokenizer_piece(f->tokenizer, id, &piece);
            bool has = memchr(piece.data, '"', piece.size) != NULL;
            buffer_free(&piece);
            if (pass == 1 || has) return id;
        }
    }
    return -1;
}

/* Draws an answer of at most `most` tokens; whether it was ended. */
static bool draw_answer(const struct family *f, struct matcher *m, int most, struct buffer *text) {
    for (int i = 0; i < most; i++) {
        const uint32_t *mask;
        struct error e;
        if (matcher_mask(m, &mask, &e))
            fail_msg("%s: after %.*s: %s", f->name, (int)text->size, text->data ? text->data : "",
                     e.text);
        if (mask_has(mask, f->end) && rand() % 24 == 0) return true;
        int32_t token = draw(f, mask, rand() % 6 == 0);
        if (token < 0) return mask_has(mask, f->end);
        tokenizer_piece(f->tokenizer, token, text);
        if (matcher_note(m, token, &e)) fail_msg("%s: %s", f->name, e.text);
    }
    return false;
}

/* The quotes that stand between marks in the answer, each looked for in the passages; and the
 * matcher's own list of them. An open one at the end is none. Returns how many. */
static int check_quotes(const struct family *f, const struct matcher *m,
                        const struct passage_list *passages, const struct buffer *text) {
    int n = 0, listed;
    struct matcher_quote *quotes = matcher_list_quotes(m, &listed);
    for (size_t at = 0; at < text->size;) {
        const char *open = memchr(text->data + at, '"', text->size - at);
        if (open == NULL) break;
        size_t first = (size_t)(open - text->data) + 1;
        const char *close = memchr(text->data + first, '"', text->size - first);
        if (close == NULL) break;
        struct text_span quote = {text->data + first, (size_t)(close - text->data) - first};
        bool found = false;
        for (int i = 0; i < passages->n; i++)
            found = found || is_quote_of(passages->list[i], quote, passages->words, true);
        if (!found) fail_msg("%s: \"%.*s\" is no quote", f->name, (int)quote.size, quote.text);
        assert_true(n < listed);
        struct matcher_quote told = quotes[n];
        assert_int_equal(told.start, first);
        assert_int_equal(told.end - told.start, quote.size);
        assert_int_equal(told.found.end - told.found.start, quote.size);
        assert_memory_equal(passages->list[told.found.number].text + told.found.start, quote.text,
                            quote.size);
        n++;
        at = first + quote.size + 1;
    }
    assert_true(listed == n || listed == n + 1);
    free(quotes);
    return n;
}

/* A passage of words, punctuation and whatever else comes from files. */
static void make_passage(struct buffer *out) {
    static const char *const words[] = {
        "the", "The",         "fork",    "forking", "process", "parent",   "can't",  "can",
        "a",   "caf\xC3\xA9", "fork(2)", "-O2",     "3,500",   "file.c",   "\"so\"", "x",
        "--",  "(see",        "them).",  "an",      "error",   "\xE4\xB8", "end.\n", "1"};
    int n = rand() % 40;
    for (int i = 0; i < n; i++) {
        buffer_append_string(out, words[(size_t)rand() % ARRAY_COUNT(words)]);
        buffer_append_string(out, rand() % 8 == 0 ? "\n" : rand() % 12 == 0 ? "  " : " ");
    }
    buffer_append(out, "", 0);
}

/* Ten thousand answers of random models: every quote is one. */
static void test_random_answers(void **state) {
    struct family *const all[] = {&byte_level, &byte_fallback, &unigram, &word_piece};
    int n_quotes[ARRAY_COUNT(all)] = {0}, n_answers = 0;
    (void)state;
    srand(1);
    for (size_t k = 0; k < ARRAY_COUNT(all); k++) {
        struct grammar *g = make_grammar(all[k], FREE_TEXT);
        for (int i = 0; i < 2500; i++) {
            struct buffer texts[4] = {0}, text = {0};
            struct text_span list[4];
            struct passage_list passages = {list, rand() % 5, 1 + rand() % 4};
            struct matcher m;
            for (int j = 0; j < passages.n; j++) {
                make_passage(&texts[j]);
                list[j] = (struct text_span){texts[j].data, texts[j].size};
            }
            open_answer(&m, all[k], g, &passages);
            draw_answer(all[k], &m, 60, &text);
            n_quotes[k] += check_quotes(all[k], &m, &passages, &text);
            n_answers++;
            matcher_close(&m);
            buffer_free(&text);
            for (int j = 0; j < 4; j++) buffer_free(&texts[j]);
        }
        grammar_release(g);
    }
    assert_int_equal(n_answers, 10000);
    for (size_t k = 0; k < 3; k++) assert_true(n_quotes[k] > 500);
}

/* Masks. */

/* Whether a text is the beginning of a text with quotes, by a list of all quotes. */
static bool may_go_on(const struct buffer *quotes, int n, struct text_span text) {
    size_t at = 0;
    for (;;) {
        const char *open = text.size > at ? memchr(text.text + at, '"', text.size - at) : NULL;
        if (open == NULL) return true;
        size_t first = (size_t)(open - text.text) + 1, size = text.size - first;
        const char *close = size > 0 ? memchr(text.text + first, '"', size) : NULL;
        if (close) size = (size_t)(close - text.text) - first;
        bool fits = false;
        for (int i = 0; i < n && !fits; i++)
            fits = quotes[i].size >= size && (close == NULL || quotes[i].size == size) &&
                   (size == 0 || memcmp(quotes[i].data, text.text + first, size) == 0);
        if (!fits) return false;
        if (close == NULL) return true;
        at = first + size + 1;
    }
}

static int list_quotes(const struct passage_list *passages, struct buffer *out) {
    int n = 0;
    for (int i = 0; i < passages->n; i++) {
        struct text_span passage = passages->list[i];
        for (size_t from = 0; from < passage.size; from++)
            for (size_t to = from + 1; to <= passage.size; to++) {
                struct text_span quote = {passage.text + from, to - from};
                if (memchr(quote.text, '"', quote.size) ||
                    !is_quote_of(passage, quote, passages->words, true))
                    continue;
                buffer_append(&out[n], quote.text, quote.size);
                n++;
            }
    }
    return n;
}

/* At every step exactly the tokens are allowed with which the text can still become an answer. */
static void test_exact_masks(void **state) {
    static const struct text_span list[] = {
        TEXT("the fork can't (see) fork\nthe parent"),
        TEXT("a \"the fork, an end\" 1 -x 2"),
        TEXT("one"),
        TEXT(""),
    };
    const struct passage_list passages = {list, ARRAY_COUNT(list), 2};
    struct buffer *quotes = xcalloc(4096, sizeof *quotes);
    int n = list_quotes(&passages, quotes);
    (void)state;
    srand(2);
    struct family *const all[] = {&byte_level, &byte_fallback, &unigram};
    for (size_t k = 0; k < ARRAY_COUNT(all); k++) {
        const struct family *f = all[k];
        struct grammar *g = make_grammar(f, "root ::= ([ -!#-~\\n] | \"\\\"\" <quote> \"\\\"\")*");
        for (int i = 0; i < 120; i++) {
            struct buffer text = {0};
            struct matcher m;
            open_answer(&m, f, g, &passages);
            for (int step = 0; step < 30; step++) {
                const uint32_t *mask;
                struct error e;
                assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_OK);
                for (int32_t id = 0; id < tokenizer_vocab_size(f->tokenizer); id++) {
                    size_t size = text.size;
                    if (id == f->end || f->vocab.node_of[id] <= 0 ||
                        tokenizer_is_special(f->tokenizer, id))
                        continue;
                    tokenizer_piece(f->tokenizer, id, &text);
                    bool ascii = true;
                    for (size_t j = size; j < text.size; j++)
                        ascii = ascii && ((text.data[j] >= ' ' && text.data[j] < 127) ||
                                          text.data[j] == '\n');
                    bool wanted =
                        ascii && may_go_on(quotes, n, (struct text_span){text.data, text.size});
                    if (wanted != mask_has(mask, id))
                        fail_msg("%s: %.*s: %d should be %s", f->name, (int)text.size, text.data,
                                 id, wanted ? "allowed" : "forbidden");
                    text.size = size;
                }
                int32_t token = draw(f, mask, rand() % 3 == 0);
                tokenizer_piece(f->tokenizer, token, &text);
                assert_int_equal(matcher_note(&m, token, &e), STATUS_OK);
            }
            matcher_close(&m);
            buffer_free(&text);
        }
        grammar_release(g);
    }
    for (int i = 0; i < n; i++) buffer_free(&quotes[i]);
    free(quotes);
}

/* Whether the text can be written, byte by byte, under the grammar with these passages; and
 * whether it may end there. */
enum reach { REACH_NOT, REACH_BEGINNING, REACH_WHOLE };

static enum reach reach_of(struct matcher *m, const char *text) {
    const uint32_t *mask;
    struct error e;
    for (; *text; text++) {
        int32_t id = (unsigned char)*text;
        if (matcher_mask(m, &mask, &e) || !mask_has(mask, id)) return REACH_NOT;
        if (matcher_note(m, id, &e)) return REACH_NOT;
    }
    if (matcher_mask(m, &mask, &e)) return REACH_NOT;
    return mask_has(mask, TEST_END) ? REACH_WHOLE : REACH_BEGINNING;
}

static void expect_reach(struct grammar *g, const struct passage_list *passages,
                         const char *const *texts) {
    for (; *texts; texts++) {
        enum reach wanted = **texts == '+'   ? REACH_WHOLE
                            : **texts == '~' ? REACH_BEGINNING
                                             : REACH_NOT;
        struct matcher m;
        open_answer(&m, &byte_level, g, passages);
        if (reach_of(&m, *texts + 1) != wanted) fail_msg("%s", *texts);
        matcher_close(&m);
    }
}
#define EXPECT_REACH(g, passages, ...) \
    expect_reach(g, passages, (const char *const[]){__VA_ARGS__, NULL})

static void test_word_borders(void **state) {
    static const struct text_span list[] = {
        TEXT("You can't fork(2) 3,500 files."),
        TEXT("caf\xC3\xA9 (au lait). \xE4\xB8\xAD\xE6\x96\x87\xE5\xAD\x97"),
        TEXT("bad \xFF bytes are here")};
    const struct passage_list passages = {list, 3, 2};
    struct grammar *g = make_grammar(&byte_level, FREE_TEXT);
    (void)state;
    EXPECT_REACH(g, &passages, "+", "+no quote", "+\"You can't\"", "-\"You can\"", "-\"ou can't\"",
                 "-\"can't\"", "~\"can't", "+\"can't fork(2)\" it", "+\"can't fork(2\"",
                 "-\"2) 3\"", "-\"fork(2) 3\"", "+\"3,500 files\"", "+\"3,500 files.\"",
                 "-\"3,500 file\"", "-\"500 files\"", "-\"You  can't\"", "-\"files. caf\"",
                 "-\"you can't\"");
    EXPECT_REACH(g, &passages, "+\"(au lait\"", "+\"au lait).\"", "+\"au lait)\"",
                 "+\"caf\xC3\xA9 (au\"", "-\"caf\xC3\"", "~\"caf\xC3",
                 "+\"\xE4\xB8\xAD\xE6\x96\x87\"", "+\"\xE6\x96\x87\xE5\xAD\x97\"",
                 "-\"\xE4\xB8\xAD\"", "-\"bad \xFF\"", "-\"bad", "+\"bytes are\"");
    grammar_release(g);
}

/* Where nothing can be quoted, no quote begins; passages that come later are quoted then. */
static void test_no_passages(void **state) {
    static const struct text_span short_one[] = {TEXT("one"), TEXT(""), TEXT(" . - ")};
    const struct passage_list none = {NULL, 0, 3}, too_short = {short_one, 3, 3};
    struct grammar *g = make_grammar(&byte_level, FREE_TEXT);
    struct error e = {0};
    struct matcher m;
    const uint32_t *mask;
    (void)state;
    EXPECT_REACH(g, &none, "+a text", "-a \"");
    EXPECT_REACH(g, &too_short, "+a text", "-a \"");
    open_answer(&m, &byte_level, g, &none);
    assert_int_equal(reach_of(&m, "it is "), REACH_WHOLE);
    assert_int_equal(add_text(&m, span_of("where words are found"), 7, &e), STATUS_OK);
    assert_int_equal(reach_of(&m, "\"words are found\"."), REACH_WHOLE);
    int n;
    struct matcher_quote *quotes = matcher_list_quotes(&m, &n);
    assert_int_equal(n, 1);
    assert_int_equal(quotes[0].found.number, 7);
    assert_int_equal(quotes[0].found.start, 6);
    assert_int_equal(quotes[0].start, 7);
    free(quotes);
    matcher_close(&m);

    struct grammar *must = make_grammar(&byte_level, "root ::= \"[\" <quote> \"]\"");
    open_answer(&m, &byte_level, must, &none);
    assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "none of the passages"));
    matcher_close(&m);
    grammar_release(must);
    grammar_release(g);
}

/* Of words that a passage shows in part nothing is quoted. */
static void test_torn_words(void **state) {
    static const struct passage_text torn = {TEXT("ing of a proc"), true, true},
                                     chinese = {TEXT("\xE4\xB8\xAD\xE6\x96\x87"), true, false};
    static const char *const texts[] = {"-\"in", "+\"of a\"", "-\"a proc\"",
                                        "+\"\xE4\xB8\xAD\xE6\x96\x87\""};
    struct grammar *g = make_grammar(&byte_level, FREE_TEXT);
    struct error e;
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct matcher m;
        open_answer(&m, &byte_level, g, &(struct passage_list){NULL, 0, 2});
        assert_int_equal(matcher_add_passage(&m, &torn, 0, &e), STATUS_OK);
        assert_int_equal(matcher_add_passage(&m, &chinese, 1, &e), STATUS_OK);
        assert_int_equal(reach_of(&m, texts[i] + 1) == REACH_WHOLE, *texts[i] == '+');
        matcher_close(&m);
    }
    grammar_release(g);
}

/* Answers of one grammar at a time see their own passages alone. */
static void test_tenants(void **state) {
    static const struct text_span mine[] = {TEXT("my own three words")},
                                  yours[] = {TEXT("your secret four words")};
    const struct passage_list my = {mine, 1, 3}, your = {yours, 1, 3};
    struct grammar *g = make_grammar(&byte_level, FREE_TEXT);
    struct matcher left, right;
    (void)state;
    open_answer(&left, &byte_level, g, &my);
    open_answer(&right, &byte_level, g, &your);
    assert_int_equal(reach_of(&left, "\""), REACH_BEGINNING);
    assert_int_equal(reach_of(&right, "\""), REACH_BEGINNING);
    assert_int_equal(reach_of(&right, "your sec"), REACH_BEGINNING);
    assert_int_equal(reach_of(&left, "my own"), REACH_BEGINNING);
    assert_int_equal(reach_of(&right, "ret four\""), REACH_WHOLE);
    assert_int_equal(reach_of(&left, " three\""), REACH_WHOLE);
    matcher_close(&left);
    matcher_close(&right);
    for (int i = 0; i < 2; i++) {
        const struct passage_list *passages = i ? &your : &my;
        EXPECT_REACH(g, passages, i ? "-\"m" : "-\"yo",
                     i ? "+\"secret four words\"" : "+\"my own three\"");
    }
    grammar_release(g);
}

static struct grammar *make_schema(const char *text) {
    struct grammar_draft d = {0};
    struct json_rules rules = {.draft = &d};
    struct json *json;
    struct grammar *g;
    struct error e;
    int expr = 0;
    grammar_draft_open(&d);
    int root = draft_rule_open(&d, "root");
    if (json_parse_any(&json, span_of(text), "schema", &e) ||
        schema_compile(&rules, json, &(struct schema_options){.strict = true}, &expr, &e))
        fail_msg("%s", e.text);
    draft_rule_set(&d, root, expr);
    if (grammar_open(&g, &d, &byte_level.vocab, &e)) fail_msg("%s", e.text);
    grammar_draft_free(&d);
    json_close(json);
    return g;
}

#define JSON_PASSAGE "He said \"it is\\so\" then\nleft the\x01 room"

static void test_schema(void **state) {
    static const struct text_span list[] = {TEXT(JSON_PASSAGE)};
    const struct passage_list passages = {list, 1, 2}, none = {NULL, 0, 2};
    struct grammar *g = make_schema(
        "{\"type\":\"object\",\"properties\":{\"q\":{\"type\":\"string\",\"format\":\"quote\"}},"
        "\"required\":[\"q\"]}");
    (void)state;
    EXPECT_REACH(g, &passages, "+{\"q\":\"He said\"}", "+{\"q\":\"\"}", "-{\"q\":\"He\"}",
                 "+{\"q\":\"said \\\"it\"}", "+{\"q\":\"is\\\\so\\\" then\"}", "-{\"q\":\"is\\so",
                 "+{\"q\":\"then\\nleft\"}", "-{\"q\":\"then\\u000aleft", "-{\"q\":\"then\nleft",
                 "+{\"q\":\"left the\\u0001\"}", "+{\"q\":\"the\\u0001 room\"}");
    EXPECT_REACH(g, &none, "+{\"q\":\"\"}", "-{\"q\":\"H");
    struct matcher m;
    int n;
    open_answer(&m, &byte_level, g, &passages);
    assert_int_equal(reach_of(&m, "{\"q\":\"is\\\\so\\\" then\\nleft\"}"), REACH_WHOLE);
    struct matcher_quote *quotes = matcher_list_quotes(&m, &n);
    assert_int_equal(n, 1);
    assert_int_equal(quotes[0].found.start, 12);
    assert_int_equal(quotes[0].found.end, 28);
    assert_int_equal(quotes[0].start, 6);
    free(quotes);
    matcher_close(&m);
    grammar_release(g);

    g = make_schema(
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"quote\","
        "\"minLength\":1}}");
    EXPECT_REACH(g, &passages, "+[]", "-[\"\"]", "+[\"He said\",\"the\\u0001 room\"]");
    EXPECT_REACH(g, &none, "+[]", "-[\"");
    grammar_release(g);
}

/* Quotes beside text that may be the same, and too many ways to read one. */
static void test_ambiguous(void **state) {
    static const struct text_span list[] = {TEXT("a b c d e f")};
    const struct passage_list passages = {list, 1, 2};
    struct grammar *g = make_grammar(&byte_level, "root ::= (<quote> | [a-z ])*");
    (void)state;
    EXPECT_REACH(g, &passages, "+a b c d e f", "+b a", "+a b c a b c", "+zz a b");
    grammar_release(g);

    struct buffer nested = {0};
    struct error e = {0};
    struct matcher m;
    buffer_append_string(&nested, "root ::= r0\n");
    for (int i = 0; i < 200; i++)
        buffer_printf(&nested, "r%d ::= <quote> \" \" r%d | \"%c\" r%d | \"x\"\n", i,
                      (i * 7 + 1) % 200, i % 2 ? 'a' : ' ', (i * 11 + 3) % 200);
    g = make_grammar(&byte_level, nested.data);
    char text[400];
    for (size_t i = 0; i < sizeof text; i++) text[i] = i % 2 ? ' ' : 'a';
    struct text_span long_one[] = {{text, sizeof text}};
    const struct passage_list one = {long_one, 1, 1};
    open_answer(&m, &byte_level, g, &one);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof text && status == STATUS_OK; i++) {
        const uint32_t *mask;
        status = matcher_mask(&m, &mask, &e);
        if (status == STATUS_OK) status = matcher_note(&m, (unsigned char)text[i], &e);
    }
    assert_int_equal(status, STATUS_TOO_LARGE);
    assert_non_null(strstr(e.text, "ambiguous"));
    matcher_close(&m);
    grammar_release(g);
    buffer_free(&nested);
}

/* More than may be quoted from is an error, in time. */
static void test_limits(void **state) {
    struct grammar *g = make_grammar(&byte_level, FREE_TEXT);
    const struct passage_list none = {NULL, 0, 3};
    struct matcher m;
    struct error e = {0};
    size_t size = 5 << 20;
    char *text = xmalloc(size);
    (void)state;
    memset(text, '-', size);
    open_answer(&m, &byte_level, g, &none);
    for (int i = 0; i < 3; i++)
        assert_int_equal(add_text(&m, (struct text_span){text, size}, i, &e), STATUS_OK);
    assert_int_equal(add_text(&m, (struct text_span){text, size}, 3, &e), STATUS_TOO_LARGE);
    assert_non_null(strstr(e.text, "16 MiB"));
    assert_int_equal(reach_of(&m, "-\""), REACH_NOT);
    matcher_close(&m);
    grammar_release(g);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_word_borders),   cmocka_unit_test(test_no_passages),
        cmocka_unit_test(test_torn_words),     cmocka_unit_test(test_tenants),
        cmocka_unit_test(test_schema),         cmocka_unit_test(test_ambiguous),
        cmocka_unit_test(test_limits),         cmocka_unit_test(test_exact_masks),
        cmocka_unit_test(test_random_answers),
    };
    return cmocka_run_group_tests(tests, open_families, close_families);
}
