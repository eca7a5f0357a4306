/* tests/grammars.h: a vocabulary for tests of grammars: every byte, and texts that cross the
 * borders of whatever a grammar tells apart; and a walk that compares masks, token by token, with
 * what they stand for. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/grammar.h"

/* Ids behind those of the bytes. */
enum { TEST_END = 256, TEST_CALL, TEST_CALL_END, TEST_THINK, TEST_THINK_END, TEST_CHANNELS };
enum { TEST_CHANNEL_MARKS = 6, TEST_WORDS = TEST_CHANNELS + TEST_CHANNEL_MARKS };

static const char *const test_words[] = {
    "\"",        "\": ",    "\", \"",   "\":\"",    "\"}",      "},",       "}]",     "{\"",
    "{\"a\":",   "\"a\"",   "null",     "true",     "fals",     "12",       "-1",     "0.",
    "1e",        ", ",      "  ",       "\n",       "\n  ",     "abc",      "a b",    "ab",
    "c",         "\xC3",    "\xC3\xA4", "\xF0\x9F", "\x98\x80", "aaaaaaaa", "\"b",    "b\"",
    "\",\"b\":", "\":\"\"", "}}}",      "[[",       "]]",       "2020-",    "-01",    "T1",
    ":00",       "00Z",     "+",        "foo",      "bar",      "\"foo",    "foo\":", "\\u00",
    "\\",        "\\n",     "1, 2",     "[{\"",     "\"], \"",  "e\": \"",  "\" "};

/* A byte as byte-level vocabularies write it. */
static inline void put_test_byte(struct buffer *out, int byte) {
    bool shown = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    int c = byte, hidden = 0;
    for (int b = 0; b < byte; b++) hidden += !((b > 32 && b < 127) || (b > 160 && b != 173));
    if (!shown) c = 256 + hidden;
    if (c < 128)
        buffer_printf(out, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    else
        buffer_printf(out, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 0x3F));
}

static inline struct tokenizer *open_test_tokenizer(void) {
    static const char *const marks[] = {
        "<end>",       "<tool_call>", "</tool_call>",  "<think>", "</think>", "<|start|>",
        "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>"};
    struct buffer json = {0};
    struct tokenizer *t;
    struct error e;
    buffer_append_string(&json, "{\"added_tokens\": [");
    for (int i = 0; i < TEST_WORDS - TEST_END; i++)
        buffer_printf(
            &json,
            "%s{\"id\": %d, \"content\": \"%s\", \"special\": true, \"lstrip\": false, \"rstrip\": "
            "false, \"single_word\": false, \"normalized\": false}",
            i ? ", " : "", TEST_END + i, marks[i]);
    buffer_append_string(&json,
                         "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                         "\"add_prefix_space\": false, \"use_regex\": true}, \"decoder\": "
                         "{\"type\": \"ByteLevel\"}, "
                         "\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    for (int b = 0; b < 256; b++) {
        buffer_append_string(&json, b ? ", \"" : "\"");
        put_test_byte(&json, b);
        buffer_printf(&json, "\": %d", b);
    }
    for (size_t i = 0, n = 0; i < ARRAY_COUNT(test_words); i++) {
        const char *word = test_words[i];
        if (strlen(word) < 2) continue; /* it is a byte */
        buffer_append_string(&json, ", \"");
        for (size_t j = 0; j < strlen(word); j++) put_test_byte(&json, (unsigned char)word[j]);
        buffer_printf(&json, "\": %d", TEST_WORDS + (int)n);
        n++;
    }
    buffer_append_string(&json, "}}}");
    if (tokenizer_open_json(&t, json.data, json.size, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    buffer_free(&json);
    return t;
}

static inline void open_test_vocab(struct vocab *v, const struct tokenizer *t) {
    static const int32_t ends[] = {TEST_END};
    vocab_open(v, t, tokenizer_vocab_size(t), ends, 1);
}

static inline bool mask_has(const uint32_t *mask, int32_t id) {
    return mask[id / 32] >> (id % 32) & 1;
}

/* The result of a walk. */
struct test_walk {
    struct buffer text;
    bool whole; /* the text was ended where the grammar allows it */
};

/* Fails, saying which token, unless the mask has exactly the tokens whose text goes on with the
 * walk's. */
static inline bool mask_is_exact(struct grammar *g, const struct tokenizer *t, const uint32_t *mask,
                                 struct buffer *text) {
    struct error e;
    enum grammar_match match;
    size_t size = text->size;
    for (int32_t id = 0; id < tokenizer_vocab_size(t); id++) {
        if (id >= TEST_END && id < TEST_WORDS) continue;
        tokenizer_piece(t, id, text);
        enum status status = grammar_try(g, text->data, text->size, &match, &e);
        text->size = size;
        if (status == STATUS_OK && (match != MATCH_NONE) == mask_has(mask, id)) continue;
        fprintf(stderr, "after \"%.*s\": token %d is %s\n", (int)size, text->data ? text->data : "",
                id,
                status               ? e.text
                : mask_has(mask, id) ? "allowed"
                                     : "not allowed");
        return false;
    }
    return true;
}

static inline void ids_add(int32_t *ids, int *n, int32_t id) {
    ids[*n] = id;
    (*n)++;
}

/* Writes at most `most` tokens, drawn at random from those allowed; `check` every mask. False after
 * an error, which is printed. */
static inline bool walk_grammar(struct grammar *g, const struct tokenizer *t, int most, bool check,
                                struct test_walk *out) {
    static const struct matcher_begin at_once = {.after = -1, .optional = -1};
    static const int32_t ends[] = {TEST_END};
    struct matcher m;
    struct error e = {0};
    int vocab = tokenizer_vocab_size(t);
    bool ok = true;
    int32_t *allowed = xcalloc((size_t)vocab, sizeof *allowed);
    matcher_open(&m, g, &at_once, vocab, ends, 1);
    for (int i = 0; ok && i < most && !out->whole; i++) {
        const uint32_t *mask;
        int n = 0;
        ok = matcher_mask(&m, &mask, &e) == STATUS_OK &&
             (!check || mask_is_exact(g, t, mask, &out->text));
        for (int32_t id = 0; ok && id < vocab; id++)
            if (mask_has(mask, id)) ids_add(allowed, &n, id);
        if (!ok || n == 0) break;
        int32_t token = allowed[rand() % n];
        if (mask_has(mask, TEST_END) && rand() % 4 == 0) token = TEST_END;
        out->whole = token == TEST_END;
        if (out->whole) break;
        tokenizer_piece(t, token, &out->text);
        ok = matcher_note(&m, token, &e) == STATUS_OK;
    }
    if (e.status) fprintf(stderr, "%s\n", e.text);
    matcher_close(&m);
    free(allowed);
    return ok;
}
