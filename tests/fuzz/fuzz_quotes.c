/* tests/fuzz/fuzz_quotes.c: bytes as passages, and as the choice of tokens of an answer that quotes
 * them: whatever stands between its marks stands in a passage, where the matcher says. */
#include <string.h>

#include "retro/grammar/gbnf.h"
#include "retro/grammar/quote_text.h"
#include "tests/grammars.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tokenizer *tokenizer;
static struct vocab vocab;

static struct grammar *open_grammar(bool free_text) {
    static const char lines[] = "root ::= (\"> \" <quote> \"\\n\" | [a-z ]*)*";
    struct grammar_draft d = {0};
    struct grammar *g;
    struct error e;
    grammar_draft_open(&d);
    CHECK((free_text
               ? quote_text_draft(&d, &e)
               : gbnf_parse(&d, (struct text_span){lines, sizeof lines - 1}, &e)) == STATUS_OK);
    CHECK(grammar_open(&g, &d, &vocab, &e) == STATUS_OK);
    grammar_draft_free(&d);
    return g;
}

/* The input up to a zero byte is a passage, and so on; the last one is torn. */
static int add_passages(struct matcher *m, struct text_span *passages, int most,
                        struct text_span input) {
    int n = 0;
    for (size_t at = 0; at <= input.size && n < most; n++) {
        const char *end = at < input.size ? memchr(input.text + at, '\0', input.size - at) : NULL;
        size_t size = end ? (size_t)(end - input.text) - at : input.size - at;
        passages[n] = (struct text_span){input.text + at, size};
        const struct passage_text passage = {passages[n], n % 3 == 2, end == NULL};
        struct error e;
        CHECK(matcher_add_passage(m, &passage, n, &e) == STATUS_OK);
        at += size + 1;
    }
    return n;
}

static void check_quotes(const struct matcher *m, const struct text_span *passages,
                         const struct buffer *text) {
    int n;
    struct matcher_quote *quotes = matcher_list_quotes(m, &n);
    for (int i = 0; i < n; i++) {
        const struct quote_found *found = &quotes[i].found;
        size_t quoted = quotes[i].end - quotes[i].start;
        CHECK(quotes[i].end <= text->size && found->end - found->start == quoted);
        CHECK(found->end <= passages[found->number].size);
        CHECK(memcmp(passages[found->number].text + found->start, text->data + quotes[i].start,
                     quoted) == 0);
    }
    free(quotes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { PASSAGES = 8, TOKENS = 24 };
    struct text_span passages[PASSAGES];
    struct matcher m;
    struct buffer text = {0};
    struct error e = {0};
    const uint32_t *mask;
    if (tokenizer == NULL) {
        tokenizer = open_test_tokenizer();
        open_test_vocab(&vocab, tokenizer);
    }
    if (size < 2 || size > 4096) return 0;
    struct grammar *g = open_grammar(data[0] % 2 == 0);
    const struct matcher_begin begin = {
        .after = -1, .optional = -1, .quote_words = 1 + data[1] % 3};
    int n = tokenizer_vocab_size(tokenizer);
    matcher_open(&m, g, &begin, n, NULL, 0);
    add_passages(&m, passages, PASSAGES, (struct text_span){(const char *)data + 2, size - 2});
    for (size_t i = 0; i < TOKENS && matcher_mask(&m, &mask, &e) == STATUS_OK; i++) {
        int32_t token = data[size - 1 - i % size] * 7 % n, tried = 0;
        while (tried < n && !mask_has(mask, token)) {
            token = (token + 1) % n;
            tried++;
        }
        if (tried == n) break;
        tokenizer_piece(tokenizer, token, &text);
        if (matcher_note(&m, token, &e)) break;
    }
    CHECK(e.status == STATUS_OK || e.status == STATUS_TOO_LARGE);
    if (e.status == STATUS_OK) check_quotes(&m, passages, &text);
    matcher_close(&m);
    grammar_release(g);
    buffer_free(&text);
    return 0;
}
