/* retro/text/open/tokenizer_tekken.c: byte-level BPE without a list of merges: of two neighbours
 * those are joined first whose bytes are the word of the lowest rank. So each way to cut a word
 * into two words is a merge, and the merges of a word stand in the order of the words' ranks. The
 * ids of words stand behind those of special tokens. See tokenizer_tekken.h. */
#include "retro/text/open/tokenizer_tekken.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/base64.h"
#include "retro/text/open/tokenizer_writing.h"
#include "retro/text/tokenizer_bpe.h"

enum { TEKKEN_MAX_WORD = 256 }; /* bytes */

struct tekken {
    struct text_span pattern;
    int specials, n; /* special tokens, and words behind them */
    const struct json *words, *marks;
    struct tokenizer *pieces; /* the words by rank */
    struct piece_table table;
};

/* The special tokens of files that list none, from before November 2024. */
static const char *const usual_marks[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

static enum status read_size(const struct json *config, const char *key, int *out,
                             struct error *e) {
    const struct json *value = json_member(config, key);
    int64_t size = json_is_int(value) ? json_int(value) : -1;
    if (size < 0 || size > TOKENIZER_MAX_ID)
        return error_set(e, STATUS_INVALID, "config.%s: expected a number from 0 to %d", key,
                         TOKENIZER_MAX_ID);
    *out = (int)size;
    return STATUS_OK;
}

static enum status read_config(struct tekken *tekken, const struct json *root, struct error *e) {
    const struct json *config = json_member(root, "config");
    int all;
    if (read_size(config, "default_vocab_size", &all, e) ||
        read_size(config, "default_num_special_tokens", &tekken->specials, e))
        return e->status;
    tekken->pattern = json_text(json_member(config, "pattern"));
    tekken->words = json_member(root, "vocab");
    tekken->marks = json_member(root, "special_tokens");
    tekken->n = all - tekken->specials;
    if (tekken->pattern.size == 0)
        return error_set(e, STATUS_INVALID, "config.pattern: expected a regular expression");
    if (tekken->n < 256 || json_count(tekken->words) < (size_t)tekken->n)
        return error_set(e, STATUS_INVALID,
                         "vocab: %zu words, and config asks for %d; 256 are needed at least",
                         json_count(tekken->words), tekken->n);
    return STATUS_OK;
}

/* Words stand in the order of their ranks, and the first 256 are the bytes. */
static enum status read_words(struct tekken *tekken, struct error *e) {
    struct buffer bytes = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < tekken->n && status == STATUS_OK; i++) {
        const struct json *word = json_item(tekken->words, (size_t)i),
                          *rank = json_member(word, "rank"),
                          *text = json_member(word, "token_bytes");
        buffer_clear(&bytes);
        bool read = json_is_int(rank) && json_int(rank) == i && json_is_text(text) &&
                    base64_decode(json_text(text), &bytes);
        bool fits = bytes.size >= 1 && bytes.size <= TEKKEN_MAX_WORD;
        if (!read || !fits || (i < 256 && (bytes.size != 1 || (uint8_t)bytes.data[0] != i)))
            status =
                error_set(e, STATUS_INVALID,
                          "vocab[%d]: expected the rank %d, and in \"token_bytes\" %s in base64", i,
                          i, i < 256 ? "the byte of that number" : "1 to 256 bytes");
        else
            status = pieces_set(tekken->pieces, i, (struct text_span){bytes.data, bytes.size}, e);
    }
    buffer_free(&bytes);
    return status;
}

static int32_t find_word(const struct tekken *tekken, const char *bytes, size_t n) {
    return piece_table_find(&tekken->table, tekken->pieces, bytes, n);
}

static enum status check_words(const struct tekken *tekken, struct error *e) {
    for (int i = 0; i < tekken->n; i++) {
        const struct piece *word = &tekken->pieces->pieces[i];
        int32_t same = find_word(tekken, word->bytes, word->size);
        if (same != i)
            return error_set(e, STATUS_INVALID, "vocab[%d]: the same bytes as vocab[%d]", i, same);
    }
    return STATUS_OK;
}

/* The ids of all special tokens; those behind the list have names of their numbers. */
static enum status put_marks(struct json_writer *w, const struct tekken *tekken, int *start,
                             struct error *e) {
    bool listed = !json_is_absent(tekken->marks);
    size_t n = listed ? json_count(tekken->marks) : ARRAY_COUNT(usual_marks);
    *start = -1;
    put_key_array(w, "added_tokens");
    for (size_t i = 0; i < (size_t)tekken->specials; i++) {
        const struct json *mark = listed ? json_item(tekken->marks, i) : NULL,
                          *rank = json_member(mark, "rank");
        char filler[32];
        int size = snprintf(filler, sizeof filler, "<SPECIAL_%zu>", i);
        struct text_span text = {filler, (size_t)size};
        if (i < n && !listed) text = (struct text_span){usual_marks[i], strlen(usual_marks[i])};
        if (i < n && listed) text = json_text(json_member(mark, "token_str"));
        int64_t id = i < n && listed && json_is_int(rank) ? json_int(rank) : (int64_t)i;
        if (id < 0 || id >= tekken->specials || text.size == 0)
            return error_set(
                e, STATUS_INVALID,
                "special_tokens[%zu]: expected a \"rank\" below %d and a \"token_str\"", i,
                tekken->specials);
        put_added_token(w, (int)id, text, true);
        if (text.size == 3 && memcmp(text.text, "<s>", 3) == 0) *start = (int)id;
    }
    put_array_end(w);
    return STATUS_OK;
}

static void put_characters(struct buffer *out, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) bpe_append_character(out, (uint8_t)bytes[i]);
}

static void put_words(struct json_writer *w, const struct tekken *tekken) {
    struct buffer text = {0};
    put_key_object(w, "vocab");
    for (int i = 0; i < tekken->n; i++) {
        const struct piece *word = &tekken->pieces->pieces[i];
        buffer_clear(&text);
        put_characters(&text, word->bytes, word->size);
        put_key_n(w, text.data, text.size);
        put_int(w, tekken->specials + i);
    }
    put_object_end(w);
    buffer_free(&text);
}

struct word_cut {
    int32_t left, right;
    uint32_t at;
};

/* By the rank of the left part: no two cuts of a word have the same. */
static int compare_cuts(const void *a, const void *b) {
    int32_t x = ((const struct word_cut *)a)->left, y = ((const struct word_cut *)b)->left;
    return (x > y) - (x < y);
}

static void put_merges(struct json_writer *w, const struct tekken *tekken) {
    struct buffer text = {0};
    put_key_array(w, "merges");
    for (int i = 0; i < tekken->n; i++) {
        const struct piece *word = &tekken->pieces->pieces[i];
        struct word_cut cuts[TEKKEN_MAX_WORD];
        size_t n = 0;
        for (uint32_t at = 1; at < word->size; at++) {
            cuts[n] = (struct word_cut){find_word(tekken, word->bytes, at),
                                        find_word(tekken, word->bytes + at, word->size - at), at};
            if (cuts[n].left >= 0 && cuts[n].right >= 0) n++;
        }
        qsort(cuts, n, sizeof *cuts, compare_cuts);
        for (size_t k = 0; k < n; k++) {
            buffer_clear(&text);
            put_characters(&text, word->bytes, cuts[k].at);
            buffer_append(&text, " ", 1);
            put_characters(&text, word->bytes + cuts[k].at, word->size - cuts[k].at);
            put_string_n(w, text.data, text.size);
        }
    }
    put_array_end(w);
    buffer_free(&text);
}

static enum status write_json(struct json_writer *w, const struct tekken *tekken, struct error *e) {
    struct buffer pattern = {0};
    int start;
    put_object(w);
    if (put_marks(w, tekken, &start, e)) return e->status;
    buffer_append(&pattern, tekken->pattern.text, tekken->pattern.size);
    put_splits(w, (const char *const[]){pattern.data, NULL});
    put_template(w, start, -1);
    put_byte_decoder(w);
    put_key_object(w, "model");
    put_key_string(w, "type", "BPE");
    put_key_bool(w, "ignore_merges", true);
    put_words(w, tekken);
    put_merges(w, tekken);
    put_object_end(w);
    put_object_end(w);
    buffer_free(&pattern);
    return STATUS_OK;
}

enum status tekken_write_tokenizer(struct buffer *out, const struct json *root, struct error *e) {
    struct tekken tekken = {.pieces = xcalloc(1, sizeof *tekken.pieces)};
    struct json_writer w;
    enum status status = read_config(&tekken, root, e);
    if (status == STATUS_OK) status = read_words(&tekken, e);
    if (status == STATUS_OK) {
        piece_table_open(&tekken.table, tekken.pieces, NULL);
        status = check_words(&tekken, e);
    }
    if (status == STATUS_OK) {
        put_begin(&w, out);
        status = write_json(&w, &tekken, e);
    }
    free(tekken.table.slots);
    tokenizer_close(tekken.pieces);
    return status;
}
