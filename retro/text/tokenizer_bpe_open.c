/* retro/text/tokenizer_bpe_open.c: reads the BPE model of tokenizer.json: vocabulary, merges,
 * options. See tokenizer_bpe.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/text/tokenizer_bpe.h"

/* GPT-2 writes the byte b as a printable character: itself, or U+0100 + how many unprintable bytes
 * come before it. */
static int32_t byte_character(int b) {
    bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    if (printable) return b;
    return 0x100 + (b <= ' ' ? b : b <= 0xA0 ? b - 0x7F + 33 : 67);
}

void bpe_append_character(struct buffer *out, uint8_t byte) {
    int32_t c = byte_character(byte); /* below 0x800: one byte of UTF-8, or two */
    if (c >= 0x80) buffer_append(out, &(char){(char)(0xC0 | c >> 6)}, 1);
    buffer_append(out, &(char){(char)(c < 0x80 ? c : 0x80 | (c & 0x3F))}, 1);
}

/* Bytes of a vocabulary entry; false when it has a character that stands for no byte (then it is
 * text as it is). */
static bool entry_bytes(struct text_span entry, struct buffer *out) {
    buffer_clear(out);
    for (size_t i = 0; i < entry.size;) {
        int32_t c;
        i += (size_t)utf8_read(entry.text + i, entry.size - i, &c);
        int byte = c >= 0 && c < 0x100 ? c
                   : c <= 0x120        ? c - 0x100
                   : c <= 0x142        ? c - 0x121 + 0x7F
                                       : 0xAD;
        if (c < 0 || byte_character(byte) != c) return false;
        char b = (char)byte;
        buffer_append(out, &b, 1);
    }
    return true;
}

/* Ids of what text is cut into: the vocabulary's single bytes, or its single ASCII characters. */
static void find_symbols(const struct tokenizer *tokenizer, struct bpe *bpe) {
    memset(bpe->byte_ids, 0xFF, sizeof bpe->byte_ids);
    memset(bpe->ascii_ids, 0xFF, sizeof bpe->ascii_ids);
    int n = bpe->byte_level ? 256 : 128;
    int32_t *ids = bpe->byte_level ? bpe->byte_ids : bpe->ascii_ids;
    for (int k = 0; k < n; k++) {
        char byte = (char)k;
        ids[k] = piece_table_find(&bpe->words, tokenizer, &byte, 1);
    }
    for (int k = 0; k < 256; k++) {
        char last[16];
        int size = snprintf(last, sizeof last, "%c%s", (char)k, bpe->word_end);
        bpe->last_ids[k] = bpe->word_end[0]
                               ? piece_table_find(&bpe->words, tokenizer, last, (size_t)size)
                               : bpe->byte_ids[k];
    }
}

static void find_fallbacks(const struct tokenizer *tokenizer, struct bpe *bpe) {
    for (int k = 0; k < 256; k++) {
        char name[8];
        int size = snprintf(name, sizeof name, "<0x%02X>", k);
        bpe->byte_ids[k] = piece_table_find(&bpe->words, tokenizer, name, (size_t)size);
    }
}

static enum status open_vocabulary(struct tokenizer *tokenizer, struct bpe *bpe,
                                   const struct json *vocab, struct error *e) {
    if (json_kind(vocab) != JSON_KIND_OBJECT || json_count(vocab) == 0)
        return error_set(e, STATUS_INVALID, "model.vocab: expected an object of tokens");
    struct buffer bytes = {0};
    bool *words = xcalloc(TOKENIZER_MAX_ID, 1);
    enum status status = STATUS_OK;
    for (struct json_entry it = {0}; json_next(vocab, &it);) {
        struct text_span key = it.name;
        const struct json *id = it.value;
        if (!json_is_int(id)) {
            status = error_set(e, STATUS_INVALID, "model.vocab: \"%.60s\": expected an integer",
                               key.text);
            break;
        }
        bool stands = bpe->byte_level && entry_bytes(key, &bytes);
        struct text_span piece =
            stands ? (struct text_span){bytes.data ? bytes.data : "", bytes.size} : key;
        status = pieces_set(tokenizer, json_int(id), piece, e);
        if (status != STATUS_OK) break;
        words[json_int(id)] = stands || !bpe->byte_level;
    }
    if (status == STATUS_OK) {
        piece_table_open(&bpe->words, tokenizer, words);
        find_symbols(tokenizer, bpe);
    }
    free(words);
    buffer_free(&bytes);
    return status;
}

static int32_t vocabulary_id(const struct json *vocab, struct text_span key) {
    const struct json *id = json_member_n(vocab, key);
    return id ? (int32_t)json_int(id) : -1;
}

/* "a b" or ["a", "b"] */
static bool merge_parts(const struct json *json, struct text_span *left, struct text_span *right) {
    if (json_is_list(json) && json_count(json) == 2 && json_is_text(json_item(json, 0)) &&
        json_is_text(json_item(json, 1))) {
        *left = json_text(json_item(json, 0));
        *right = json_text(json_item(json, 1));
        return true;
    }
    if (!json_is_text(json)) return false;
    struct text_span both = json_text(json);
    const char *space = memchr(both.text, ' ', both.size);
    if (space == NULL ||
        memchr(space + 1, ' ', (size_t)(both.text + both.size - space - 1)) != NULL)
        return false;
    *left = (struct text_span){both.text, (size_t)(space - both.text)};
    *right = (struct text_span){space + 1, both.size - left->size - 1};
    return true;
}

static enum status open_merge(struct bpe *bpe, const struct json *vocab, const struct json *json,
                              uint32_t rank, struct error *e) {
    struct text_span left, right;
    if (!merge_parts(json, &left, &right))
        return error_set(e, STATUS_INVALID, "expected \"a b\" or [\"a\", \"b\"]");
    struct buffer whole = {0};
    buffer_append(&whole, left.text, left.size);
    buffer_append(&whole, right.text, right.size);
    int32_t l = vocabulary_id(vocab, left), r = vocabulary_id(vocab, right);
    int32_t id = vocabulary_id(vocab, (struct text_span){whole.data ? whole.data : "", whole.size});
    buffer_free(&whole);
    if (l < 0 || r < 0 || id < 0)
        return error_set(e, STATUS_INVALID,
                         "\"%.60s\" + \"%.60s\": the %s is not in the vocabulary", left.text,
                         right.text,
                         l < 0   ? "left part"
                         : r < 0 ? "right part"
                                 : "result");
    uint64_t pair = (uint64_t)l << 32 | (uint32_t)r;
    bpe->merges[picture_rows_slot(bpe, pair)] =
        (struct merge){pair, rank, id}; /* of two equal merges the later counts */
    return STATUS_OK;
}

static enum status open_merges(struct bpe *bpe, const struct json *vocab, const struct json *merges,
                               struct error *e) {
    if (!json_is_list(merges)) return error_set(e, STATUS_INVALID, "model.merges: expected a list");
    size_t n = json_count(merges), slots = 64;
    if (n > TOKENIZER_MAX_ID)
        return error_set(e, STATUS_INVALID, "model.merges: more than %d", TOKENIZER_MAX_ID);
    while (slots < n * 2) slots *= 2;
    bpe->mask = slots - 1;
    bpe->merges = xmalloc(slots * sizeof *bpe->merges);
    memset(bpe->merges, 0xFF, slots * sizeof *bpe->merges);
    for (size_t i = 0; i < n; i++)
        if (open_merge(bpe, vocab, json_item(merges, i), (uint32_t)i, e) != STATUS_OK)
            return error_prefix(e, "model.merges[%zu]", i);
    return STATUS_OK;
}

/* The mark that the last piece of each word has. */
static enum status open_word_end(struct bpe *bpe, const struct json *mark, struct error *e) {
    struct text_span text = json_text(mark);
    if (json_is_absent(mark) || text.size == 0) return STATUS_OK;
    if (!bpe->byte_level || text.size >= sizeof bpe->word_end)
        return error_set(e, STATUS_UNSUPPORTED,
                         "model.end_of_word_suffix: expected null or \"\", or in byte-level BPE at "
                         "most %zu bytes",
                         sizeof bpe->word_end - 1);
    memcpy(bpe->word_end, text.text, text.size);
    return STATUS_OK;
}

/* Options that change ids and that are not supported must be off. */
static enum status open_options(struct bpe *bpe, const struct json *model, bool *byte_fallback,
                                struct error *e) {
    const struct json *dropout = json_member(model, "dropout");
    const struct json *prefix = json_member(model, "continuing_subword_prefix");
    if (!json_is_absent(dropout) && json_double(dropout) != 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "model.dropout: expected null: tokens would be random");
    if (!json_is_absent(prefix) && json_text(prefix).size != 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "model.continuing_subword_prefix: expected null or \"\"");
    if (open_word_end(bpe, json_member(model, "end_of_word_suffix"), e)) return e->status;
    if (json_get_bool(model, "byte_fallback", false, byte_fallback, e) ||
        json_get_bool(model, "fuse_unk", false, &bpe->fuse_unknown, e) ||
        json_get_bool(model, "ignore_merges", false, &bpe->ignore_merges, e))
        return e->status;
    if (*byte_fallback && bpe->byte_level)
        return error_set(e, STATUS_UNSUPPORTED,
                         "model.byte_fallback: not supported with byte-level BPE");
    return STATUS_OK;
}

static enum status open_unknown(struct bpe *bpe, const struct json *model, const struct json *vocab,
                                struct error *e) {
    const struct json *unknown = json_member(model, "unk_token");
    bpe->unknown = json_is_text(unknown) ? vocabulary_id(vocab, json_text(unknown)) : -1;
    if (json_is_text(unknown) && bpe->unknown < 0)
        return error_set(e, STATUS_INVALID, "model.unk_token: \"%.60s\" is not in the vocabulary",
                         json_text(unknown).text);
    return STATUS_OK;
}

/* Byte-level pieces are bytes already; a decoder that did anything else with them would be for
 * other pieces. */
static enum status open_decoder(struct bpe *bpe, const struct json *decoder, struct error *e) {
    if (!bpe->byte_level) return decoder_open(&bpe->decoder, decoder, e);
    const struct json *list = json_member(decoder, "decoders");
    bool single = strcmp(json_type_name(decoder), "Sequence") == 0 && json_count(list) == 1;
    const char *type = json_type_name(single ? json_item(list, 0) : decoder);
    if (strcmp(type, "ByteLevel") == 0) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED, "decoder: type \"%.40s\": expected ByteLevel", type);
}

enum status bpe_read(struct tokenizer *tokenizer, struct bpe *bpe, const struct json *root,
                     struct error *e) {
    const struct json *model = json_member(root, "model"), *vocab = json_member(model, "vocab");
    bool byte_fallback;
    if (json_open_pretokenizer(&bpe->pre, json_member(root, "pre_tokenizer"), &bpe->byte_level,
                               e) ||
        open_options(bpe, model, &byte_fallback, e) || open_vocabulary(tokenizer, bpe, vocab, e) ||
        open_merges(bpe, vocab, json_member(model, "merges"), e) ||
        open_unknown(bpe, model, vocab, e))
        return e->status;
    if (byte_fallback) find_fallbacks(tokenizer, bpe);
    return open_decoder(bpe, json_member(root, "decoder"), e);
}
