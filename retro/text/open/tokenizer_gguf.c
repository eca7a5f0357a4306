/* retro/text/open/tokenizer_gguf.c: the tokenizers of GGUF files in Hugging Face's files:
 * byte-level BPE and WordPiece as tokenizer.json, SentencePiece as tokenizer.model. Whoever reads
 * these files checks what is in them. See tokenizer_gguf.h. */
#include "retro/text/open/tokenizer_gguf.h"

#include <stdlib.h>
#include <string.h>

#include "retro/text/open/gguf_vocabulary.h"
#include "retro/text/open/tokenizer_writing.h"
#include "retro/weights/gguf_tower.h"

/* Parts of tokenizer.json. */

static void put_span(struct json_writer *w, const char *key, struct text_span text) {
    put_key_string_n(w, key, text.text, text.size);
}

/* Tokens that are found in a text as it comes: control tokens where special tokens are parsed, the
 * others always. */
static void put_added_tokens(struct json_writer *w, const struct vocabulary *vocabulary) {
    put_key_array(w, "added_tokens");
    for (int i = 0; i < vocabulary->n; i++) {
        const struct gguf_token *token = &vocabulary->tokens[i];
        if ((token->kind != GGUF_TOKEN_CONTROL && token->kind != GGUF_TOKEN_USER_DEFINED) ||
            token->text.size == 0)
            continue;
        put_added_token(w, i, token->text, token->kind == GGUF_TOKEN_CONTROL);
    }
    put_array_end(w);
}

/* Byte-level BPE. */

static enum status put_merges(struct json_writer *w, const struct gguf *gguf, struct error *e) {
    const struct gguf_value *merges = gguf_mark_find(gguf, "merges");
    struct gguf_items it = gguf_items_of(merges);
    struct gguf_value item;
    struct text_span text;
    if (merges == NULL || it.item != GGUF_TEXT)
        return gguf_mark_fail(gguf, "merges", "is missing or no list of texts", e);
    put_key_array(w, "merges");
    while (gguf_next(&it, &item)) {
        gguf_text(&item, &text);
        put_string_n(w, text.text, text.size);
    }
    put_array_end(w);
    return STATUS_OK;
}

/* `merged`: tokens that are found in a text as it comes are made by merges too. */
static enum status put_bpe_model(struct json_writer *w, const struct vocabulary *vocabulary,
                                 bool merged, struct error *e) {
    put_key_object(w, "vocab");
    for (int i = 0; i < vocabulary->n; i++) {
        const struct gguf_token *token = &vocabulary->tokens[i];
        bool found = token->kind == GGUF_TOKEN_CONTROL || token->kind == GGUF_TOKEN_USER_DEFINED;
        if ((found && !merged) || token->text.size == 0) continue;
        put_key_n(w, token->text.text, token->text.size);
        put_int(w, i);
    }
    put_object_end(w);
    return put_merges(w, vocabulary->gguf, e);
}

static enum status find_pre(const struct gguf *gguf, const struct gguf_pre **out, struct error *e) {
    const struct gguf_value *value = gguf_mark_find(gguf, "pre");
    struct text_span name = {"default", 7};
    if (value && !gguf_text(value, &name)) return gguf_mark_fail(gguf, "pre", "is no text", e);
    *out = gguf_pre_find(name);
    if (*out) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: tokenizer.ggml.pre \"%.*s\" is unknown: how it cuts texts into words",
                     gguf_name(gguf), (int)(name.size < 60 ? name.size : 60), name.text);
}

static enum status write_bpe(struct json_writer *w, const struct vocabulary *vocabulary,
                             struct error *e) {
    const struct gguf_pre *pre;
    bool adds_bos, adds_eos;
    int bos, eos;
    if (find_pre(vocabulary->gguf, &pre, e) ||
        gguf_mark_flag(vocabulary->gguf, "add_bos_token", pre->adds_bos, &adds_bos, e) ||
        gguf_mark_flag(vocabulary->gguf, "add_eos_token", false, &adds_eos, e) ||
        vocabulary_read_id(vocabulary, "bos_token_id", &bos, e) ||
        vocabulary_read_id(vocabulary, "eos_token_id", &eos, e))
        return e->status;
    put_added_tokens(w, vocabulary);
    put_splits(w, pre->steps);
    put_template(w, adds_bos ? bos : -1, adds_eos ? eos : -1);
    put_byte_decoder(w);
    put_key_object(w, "model");
    put_key_string(w, "type", "BPE");
    put_key_bool(w, "ignore_merges", pre->whole_words);
    enum status status = put_bpe_model(w, vocabulary, false, e);
    put_object_end(w);
    return status;
}

static const char space_symbol[] = "\xE2\x96\x81";

/* BPE of whole texts (Gemma 4): spaces are U+2581, and characters that are no tokens are bytes. */

static void put_replace(struct json_writer *w, const char *from, const char *to) {
    put_key_string(w, "type", "Replace");
    put_key_object(w, "pattern");
    put_key_string(w, "String", from);
    put_object_end(w);
    put_key_string(w, "content", to);
}

static void put_step(struct json_writer *w, const char *type) {
    put_object(w);
    put_key_string(w, "type", type);
    put_object_end(w);
}

static enum status write_text_bpe(struct json_writer *w, const struct vocabulary *vocabulary,
                                  struct error *e) {
    bool adds_bos, adds_eos;
    int bos, eos, unknown;
    if (gguf_mark_flag(vocabulary->gguf, "add_bos_token", true, &adds_bos, e) ||
        gguf_mark_flag(vocabulary->gguf, "add_eos_token", false, &adds_eos, e) ||
        vocabulary_read_id(vocabulary, "bos_token_id", &bos, e) ||
        vocabulary_read_id(vocabulary, "eos_token_id", &eos, e) ||
        vocabulary_read_id(vocabulary, "unknown_token_id", &unknown, e))
        return e->status;
    put_added_tokens(w, vocabulary);
    put_key_object(w, "normalizer");
    put_replace(w, " ", space_symbol);
    put_object_end(w);
    put_template(w, adds_bos ? bos : -1, adds_eos ? eos : -1);
    put_key_object(w, "decoder");
    put_key_string(w, "type", "Sequence");
    put_key_array(w, "decoders");
    put_object(w);
    put_replace(w, space_symbol, " ");
    put_object_end(w);
    put_step(w, "ByteFallback");
    put_step(w, "Fuse");
    put_array_end(w);
    put_object_end(w);
    put_key_object(w, "model");
    put_key_string(w, "type", "BPE");
    put_key_bool(w, "byte_fallback", true);
    put_key_bool(w, "fuse_unk", true);
    if (unknown >= 0) put_span(w, "unk_token", vocabulary->tokens[unknown].text);
    enum status status = put_bpe_model(w, vocabulary, true, e);
    put_object_end(w);
    return status;
}

/* WordPiece: a word's first piece begins with U+2581, the others have lost their "##". */

static void put_wordpiece_model(struct json_writer *w, const struct vocabulary *vocabulary,
                                int unknown) {
    struct buffer piece = {0};
    put_key_object(w, "model");
    put_key_string(w, "type", "WordPiece");
    put_span(w, "unk_token", vocabulary->tokens[unknown].text);
    put_key_string(w, "continuing_subword_prefix", "##");
    put_key_int(w, "max_input_chars_per_word", 100);
    put_key_object(w, "vocab");
    for (int i = 0; i < vocabulary->n; i++) {
        const struct gguf_token *token = &vocabulary->tokens[i];
        bool first = token->text.size > 3 && memcmp(token->text.text, space_symbol, 3) == 0;
        bool whole =
            token->kind == GGUF_TOKEN_CONTROL || token->kind == GGUF_TOKEN_UNKNOWN || i == unknown;
        buffer_clear(&piece);
        if (!first && !whole) buffer_append_string(&piece, "##");
        buffer_append(&piece, token->text.text + (first ? 3 : 0),
                      token->text.size - (first ? 3 : 0));
        put_key_n(w, piece.data ? piece.data : "", piece.size);
        put_int(w, i);
    }
    put_object_end(w);
    put_object_end(w);
    buffer_free(&piece);
}

static enum status write_wordpiece(struct json_writer *w, const struct vocabulary *vocabulary,
                                   struct error *e) {
    bool lowercase, strip;
    int first, last, unknown;
    if (gguf_mark_flag(vocabulary->gguf, "normalizer.lowercase", true, &lowercase, e) ||
        gguf_mark_flag(vocabulary->gguf, "normalizer.strip_accents", lowercase, &strip, e) ||
        vocabulary_read_id(vocabulary, "cls_token_id", &first, e) ||
        vocabulary_read_id(vocabulary, "seperator_token_id", &last, e) ||
        vocabulary_read_id(vocabulary, "unknown_token_id", &unknown, e))
        return e->status;
    if (first < 0 && vocabulary_read_id(vocabulary, "bos_token_id", &first, e)) return e->status;
    if (last < 0 && vocabulary_read_id(vocabulary, "eos_token_id", &last, e)) return e->status;
    if (unknown < 0) return gguf_mark_fail(vocabulary->gguf, "unknown_token_id", "is missing", e);
    put_added_tokens(w, vocabulary);
    put_key_object(w, "normalizer");
    put_key_string(w, "type", "BertNormalizer");
    put_key_bool(w, "lowercase", lowercase);
    put_key_bool(w, "strip_accents", strip);
    put_object_end(w);
    put_key_object(w, "pre_tokenizer");
    put_key_string(w, "type", "BertPreTokenizer");
    put_object_end(w);
    put_template(w, first, last);
    put_wordpiece_model(w, vocabulary, unknown);
    return STATUS_OK;
}

/* SentencePiece's ModelProto, a protocol buffer: 1 pieces, 2 TrainerSpec, 3 NormalizerSpec. */

enum { PROTO_NUMBER = 0, PROTO_BYTES = 2, PROTO_FLOAT = 5, MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

static void proto_varint(struct buffer *buffer, uint64_t v) {
    while (v >= 0x80) {
        buffer_append(buffer, &(char){(char)(v | 0x80)}, 1);
        v >>= 7;
    }
    buffer_append(buffer, &(char){(char)v}, 1);
}

static void proto_number(struct buffer *buffer, int field, int64_t v) {
    proto_varint(buffer, (uint64_t)field << 3 | PROTO_NUMBER);
    proto_varint(buffer, (uint64_t)v);
}

static void proto_bytes(struct buffer *buffer, int field, const void *bytes, size_t n) {
    proto_varint(buffer, (uint64_t)field << 3 | PROTO_BYTES);
    proto_varint(buffer, n);
    buffer_append(buffer, bytes, n);
}

static void proto_float(struct buffer *buffer, int field, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    proto_varint(buffer, (uint64_t)field << 3 | PROTO_FLOAT);
    for (int i = 0; i < 4; i++) buffer_append(buffer, &(char){(char)(bits >> 8 * i)}, 1);
}

static void proto_message(struct buffer *buffer, int field, struct buffer *message) {
    proto_bytes(buffer, field, message->data, message->size);
    buffer_clear(message);
}

static bool has_byte_tokens(const struct vocabulary *vocabulary) {
    for (int i = 0; i < vocabulary->n; i++)
        if (vocabulary->tokens[i].kind == GGUF_TOKEN_BYTE) return true;
    return false;
}

static enum status write_trainer(struct buffer *buffer, const struct vocabulary *vocabulary,
                                 int model, struct error *e) {
    int bos, eos, unknown;
    if (vocabulary_read_id(vocabulary, "bos_token_id", &bos, e) ||
        vocabulary_read_id(vocabulary, "eos_token_id", &eos, e) ||
        vocabulary_read_id(vocabulary, "unknown_token_id", &unknown, e))
        return e->status;
    proto_number(buffer, 3, model);
    proto_number(buffer, 35, has_byte_tokens(vocabulary));
    if (unknown >= 0) proto_number(buffer, 40, unknown);
    proto_number(buffer, 41, bos);
    proto_number(buffer, 42, eos);
    proto_number(buffer, 43, -1);
    /* The library finds these by their texts. */
    if (unknown >= 0)
        proto_bytes(buffer, 45, vocabulary->tokens[unknown].text.text,
                    vocabulary->tokens[unknown].text.size);
    if (bos >= 0)
        proto_bytes(buffer, 46, vocabulary->tokens[bos].text.text,
                    vocabulary->tokens[bos].text.size);
    if (eos >= 0)
        proto_bytes(buffer, 47, vocabulary->tokens[eos].text.text,
                    vocabulary->tokens[eos].text.size);
    return STATUS_OK;
}

/* add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces. */
static enum status write_normalizer(struct buffer *buffer, const struct vocabulary *vocabulary,
                                    bool unigram, struct error *e) {
    const struct gguf_value *map = gguf_mark_find(vocabulary->gguf, "precompiled_charsmap");
    bool prefix, extra;
    if (gguf_mark_flag(vocabulary->gguf, "add_space_prefix", true, &prefix, e) ||
        gguf_mark_flag(vocabulary->gguf, "remove_extra_whitespaces", false, &extra, e))
        return e->status;
    if (map && (map->type != GGUF_LIST || (map->item != GGUF_U8 && map->item != GGUF_I8) ||
                map->count > 1 << 24))
        return gguf_mark_fail(vocabulary->gguf, "precompiled_charsmap", "is no list of bytes", e);
    proto_bytes(buffer, 1, unigram ? "precompiled" : "identity", unigram ? 11 : 8);
    if (map) proto_bytes(buffer, 2, map->data, (size_t)map->count);
    proto_number(buffer, 3, prefix);
    proto_number(buffer, 4, extra);
    proto_number(buffer, 5, true);
    return STATUS_OK;
}

static enum status write_sentencepiece(struct buffer *buffer, const struct vocabulary *vocabulary,
                                       bool unigram, struct error *e) {
    struct buffer part = {0};
    for (int i = 0; i < vocabulary->n; i++) {
        const struct gguf_token *token = &vocabulary->tokens[i];
        proto_bytes(&part, 1, token->text.text, token->text.size);
        proto_float(&part, 2, token->score);
        proto_number(&part, 3, token->kind);
        proto_message(buffer, 1, &part);
    }
    enum status status = write_trainer(&part, vocabulary, unigram ? MODEL_UNIGRAM : MODEL_BPE, e);
    proto_message(buffer, 2, &part);
    if (status == STATUS_OK) status = write_normalizer(&part, vocabulary, unigram, e);
    proto_message(buffer, 3, &part);
    buffer_free(&part);
    return status;
}

/* All kinds. */

enum model_kind { KIND_BPE, KIND_TEXT_BPE, KIND_WORDPIECE, KIND_SENTENCEPIECE, KIND_UNIGRAM };

static enum status find_kind(const struct gguf *gguf, enum model_kind *out, struct error *e) {
    static const struct {
        const char *name;
        enum model_kind kind;
    } kinds[] = {{"gpt2", KIND_BPE},
                 {"gemma4", KIND_TEXT_BPE},
                 {"bert", KIND_WORDPIECE},
                 {"llama", KIND_SENTENCEPIECE},
                 {"t5", KIND_UNIGRAM}};
    struct text_span name;
    if (!gguf_text(gguf_mark_find(gguf, "model"), &name))
        return gguf_mark_fail(gguf, "model", "is missing or no text", e);
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        *out = kinds[i].kind;
        if (name.size == strlen(kinds[i].name) && memcmp(name.text, kinds[i].name, name.size) == 0)
            return STATUS_OK;
    }
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: tokenizer.ggml.model \"%.*s\" is unknown; known: gpt2, gemma4, llama, "
                     "bert, t5",
                     gguf_name(gguf), (int)(name.size < 60 ? name.size : 60), name.text);
}

static enum status write_json(struct buffer *out, const struct vocabulary *vocabulary,
                              enum model_kind kind, struct error *e) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    enum status status = kind == KIND_BPE        ? write_bpe(&w, vocabulary, e)
                         : kind == KIND_TEXT_BPE ? write_text_bpe(&w, vocabulary, e)
                                                 : write_wordpiece(&w, vocabulary, e);
    if (status == STATUS_OK) put_object_end(&w);
    return status;
}

enum status gguf_write_tokenizer(struct gguf_tokenizer *out, const struct gguf *gguf,
                                 struct error *e) {
    struct vocabulary vocabulary = {0};
    enum model_kind kind = KIND_BPE;
    *out = (struct gguf_tokenizer){.name = "tokenizer.json"};
    enum status status = find_kind(gguf, &kind, e);
    if (status == STATUS_OK) status = vocabulary_read(&vocabulary, gguf, e);
    if (status == STATUS_OK && kind >= KIND_SENTENCEPIECE) {
        out->name = "tokenizer.model";
        status = write_sentencepiece(&out->file, &vocabulary, kind == KIND_UNIGRAM, e);
    } else if (status == STATUS_OK) {
        status = write_json(&out->file, &vocabulary, kind, e);
    }
    free(vocabulary.tokens);
    return status;
}

/* "bos_token": the text of the id under "bos_token_id". */
static enum status put_mark(struct json_writer *w, const struct vocabulary *vocabulary,
                            const char *name, const char *key, struct error *e) {
    int id;
    if (vocabulary_read_id(vocabulary, key, &id, e)) return e->status;
    if (id >= 0) put_span(w, name, vocabulary->tokens[id].text);
    return STATUS_OK;
}

/* The tokens that stand around a picture, which its processor writes. */
static void put_pictures(struct json_writer *w, const struct gguf *gguf) {
    const struct tower_kind *tower = gguf_tower_kind(gguf);
    if (tower == NULL || tower_marks_of(tower).begin == NULL) return;
    struct tower_marks marks = tower_marks_of(tower);
    put_key_string(w, "boi_token", marks.begin);
    put_key_string(w, "image_token", marks.picture);
    put_key_string(w, "eoi_token", marks.end);
}

static enum status put_options(struct json_writer *w, const struct vocabulary *vocabulary,
                               enum model_kind kind, struct error *e) {
    bool adds_bos, adds_eos;
    struct text_span template;
    bool bos = kind == KIND_SENTENCEPIECE || kind == KIND_TEXT_BPE;
    if (gguf_mark_flag(vocabulary->gguf, "add_bos_token", bos, &adds_bos, e) ||
        gguf_mark_flag(vocabulary->gguf, "add_eos_token", kind == KIND_UNIGRAM, &adds_eos, e))
        return e->status;
    put_key_bool(w, "add_bos_token", adds_bos);
    put_key_bool(w, "add_eos_token", adds_eos);
    if (put_mark(w, vocabulary, "bos_token", "bos_token_id", e) ||
        put_mark(w, vocabulary, "eos_token", "eos_token_id", e) ||
        put_mark(w, vocabulary, "unk_token", "unknown_token_id", e) ||
        put_mark(w, vocabulary, "pad_token", "padding_token_id", e))
        return e->status;
    put_pictures(w, vocabulary->gguf);
    if (gguf_text(gguf_value_find(vocabulary->gguf, "tokenizer.chat_template"), &template))
        put_span(w, "chat_template", template);
    return STATUS_OK;
}

enum status gguf_write_options(const struct gguf *gguf, struct buffer *json, struct error *e) {
    struct vocabulary vocabulary = {0};
    struct json_writer w;
    enum model_kind kind = KIND_BPE;
    enum status status = find_kind(gguf, &kind, e);
    if (status == STATUS_OK) status = vocabulary_read(&vocabulary, gguf, e);
    if (status == STATUS_OK) {
        put_begin_indented(&w, json, 2);
        put_object(&w);
        status = put_options(&w, &vocabulary, kind, e);
        if (status == STATUS_OK) put_object_end(&w);
    }
    free(vocabulary.tokens);
    return status;
}
