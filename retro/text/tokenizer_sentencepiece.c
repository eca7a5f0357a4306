/* retro/text/tokenizer_sentencepiece.c: SentencePiece models: the library encodes, we decode,
 * because decoding streams.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/text/canonical.h"
#include "retro/text/sentencepiece.h"
#include "retro/text/tokenizer_private.h"

/* U+2581, which stands for a space in pieces. */
static const char space_symbol[] = "\xE2\x96\x81";

struct spm {
    struct sentencepiece_model *library;
    bool drop_first_space, drop_leading_spaces; /* of a text's beginning */
    bool canonical;                             /* texts are read in the form of canonical.h */
    char *unknown_text;
    size_t unknown_size;
    uint8_t *kinds; /* enum sentencepiece_kind of every id of the model; added tokens lie above */
    int n_kinds;
};

/* Reads a protocol buffer varint; false at the end of the bytes. */
static bool read_varint(struct text_span *span, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && span->size > 0; shift += 7) {
        uint8_t byte = (uint8_t)*span->text;
        span->text++;
        span->size--;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Reads one field: its number, and its varint or its bytes. false at the end. */
static bool read_field(struct text_span *span, uint64_t *number, uint64_t *value,
                       struct text_span *bytes) {
    uint64_t key;
    *bytes = (struct text_span){NULL, 0};
    *value = 0;
    if (span->size == 0 || !read_varint(span, &key)) return false;
    *number = key >> 3;
    if ((key & 7) == 0) return read_varint(span, value);
    uint64_t size = (key & 7) == 1 ? 8 : 4;
    if ((key & 7) == 2 && !read_varint(span, &size)) return false;
    if (((key & 7) != 1 && (key & 7) != 2 && (key & 7) != 5) || size > span->size) return false;
    *bytes = (struct text_span){span->text, (size_t)size};
    span->text += size;
    span->size -= (size_t)size;
    return true;
}

/* The library does not tell the normaliser's options, which decide what happens to leading spaces:
 * ModelProto field 3 is NormalizerSpec, and there 3 is add_dummy_prefix and 4
 * remove_extra_whitespaces, both true by default. */
static void read_space_rules(struct spm *spm, struct text_span file) {
    uint64_t number, value;
    struct text_span bytes, spec = {NULL, 0};
    bool dummy_prefix = true, remove_extra = true;
    while (read_field(&file, &number, &value, &bytes))
        if (number == 3 && bytes.text != NULL) spec = bytes;
    while (read_field(&spec, &number, &value, &bytes)) {
        if (number == 3) dummy_prefix = value != 0;
        if (number == 4) remove_extra = value != 0;
    }
    spm->drop_first_space = dummy_prefix || remove_extra;
    spm->drop_leading_spaces = remove_extra;
}

struct take_context {
    const struct mapped_text *text;
    struct tokens *out;
};

static void take_id(void *context, int id, uint32_t start) {
    const struct take_context *take_context = context;
    size_t at = start < take_context->text->size ? start : take_context->text->size - 1;
    tokens_append(take_context->out, id, mapped_origin(take_context->text, at));
}

static enum status spm_encode(const struct tokenizer *tokenizer, void *call,
                              const struct mapped_text *text, struct tokens *out, struct error *e) {
    (void)call;
    const struct spm *spm = tokenizer->model;
    struct sentencepiece_message message = {""};
    struct mapped_buffer store = {0};
    struct mapped_text read = *text;
    if (spm->canonical) {
        canonical_text(text, &store);
        read = mapped_view(&store);
    }
    struct take_context context = {&read, out};
    bool ok = read.size == 0 ||
              sentencepiece_encode(spm->library, read.text, read.size, take_id, &context, &message);
    mapped_free(&store);
    return ok ? STATUS_OK : error_set(e, STATUS_INTERNAL, "SentencePiece: %s", message.text);
}

static int hex_digit(char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

static void spm_piece(const struct tokenizer *tokenizer, int32_t id, bool *started,
                      struct buffer *out) {
    const struct spm *spm = tokenizer->model;
    const struct piece *piece = &tokenizer->pieces[id];
    struct text_span rest = {piece->bytes, piece->size};
    if (id >= spm->n_kinds) {
        buffer_append(out, piece->bytes, piece->size);
        *started = true;
        return;
    }
    if (spm->kinds[id] == SENTENCEPIECE_CONTROL) return;
    if (spm->kinds[id] == SENTENCEPIECE_UNKNOWN)
        rest = (struct text_span){spm->unknown_text, spm->unknown_size};
    if (spm->kinds[id] == SENTENCEPIECE_BYTE) {
        /* "<0xE2>" */
        char byte = (char)(hex_digit(piece->bytes[3]) << 4 | hex_digit(piece->bytes[4]));
        buffer_append(out, &byte, 1);
        *started = true;
        return;
    }
    if (!*started && spm->drop_first_space && spm->kinds[id] == SENTENCEPIECE_NORMAL &&
        rest.size >= 3 && memcmp(rest.text, space_symbol, 3) == 0) {
        rest = (struct text_span){rest.text + 3, rest.size - 3};
        *started = !spm->drop_leading_spaces;
    }
    if (rest.size > 0) *started = true;
    while (rest.size > 0) {
        bool space = rest.size >= 3 && memcmp(rest.text, space_symbol, 3) == 0;
        buffer_append(out, space ? " " : rest.text, 1);
        rest = (struct text_span){rest.text + (space ? 3 : 1), rest.size - (space ? 3 : 1)};
    }
}

static void spm_close(void *model) {
    struct spm *spm = model;
    if (spm->library != NULL) sentencepiece_free(spm->library);
    free(spm->unknown_text);
    free(spm->kinds);
    free(spm);
}

static const struct model_ops spm_ops = {spm_encode, NULL, NULL, spm_piece, spm_close};

/* t5: the text of the unknown token in a prompt is that token, as Hugging Face has it. */
static enum status open_pieces(struct tokenizer *tokenizer, struct spm *spm, bool t5,
                               struct error *e) {
    int n = sentencepiece_size(spm->library);
    if (n < 1 || n > TOKENIZER_MAX_ID)
        return error_set(e, STATUS_INVALID, "SentencePiece: a vocabulary of %d", n);
    spm->kinds = xcalloc((size_t)n, 1);
    spm->n_kinds = n;
    for (int id = 0; id < n; id++) {
        enum sentencepiece_kind kind;
        struct text_span piece;
        piece.text = sentencepiece_piece(spm->library, id, &piece.size, &kind);
        enum status status = pieces_set(tokenizer, id, piece, e);
        if (status != STATUS_OK) return status;
        spm->kinds[id] = (uint8_t)kind;
        if (kind == SENTENCEPIECE_BYTE && piece.size != 6)
            return error_set(e, STATUS_INVALID,
                             "SentencePiece: byte piece %d is \"%.20s\", expected <0xNN>", id,
                             piece.text);
        bool special = kind == SENTENCEPIECE_CONTROL || (t5 && kind == SENTENCEPIECE_UNKNOWN);
        tokenizer->pieces[id].special = special;
        if (special && piece.size > 0 && piece.size <= TOKENIZER_MAX_ADDED_BYTES)
            added_set_append(&tokenizer->added_raw, piece,
                             (struct added_token){.id = id, .special = true});
        if (kind == SENTENCEPIECE_UNKNOWN && spm->unknown_text == NULL)
            spm->unknown_text = sentencepiece_unknown_text(spm->library, id, &spm->unknown_size);
    }
    return STATUS_OK;
}

/* Whether the files beside the model say one of these: old folders have no word about the tokenizer
 * but the model's type. */
static bool config_names(const struct tokenizer_config *config, const char *const *names,
                         size_t n) {
    const struct json *name = json_member(config->options, "tokenizer_class");
    if (!json_is_text(name)) name = json_member(config->model, "model_type");
    for (size_t i = 0; i < n; i++)
        if (json_text_is(name, names[i])) return true;
    return false;
}

/* T5's tokens are left unsaid by every folder of it. */
static bool config_is_t5(const struct tokenizer_config *config) {
    static const char *const names[] = {
        "T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer", "MT5TokenizerFast", "t5", "mt5", "umt5"};
    return config_names(config, names, ARRAY_COUNT(names));
}

/* SigLIP's texts end as T5's do. */
static bool config_is_siglip(const struct tokenizer_config *config) {
    static const char *const names[] = {"SiglipTokenizer", "siglip"};
    return config_names(config, names, ARRAY_COUNT(names));
}

/* How many sentinels T5 adds above the model's pieces: `extra_ids`, else as many as the list of
 * special tokens names, else T5's 100. */
static enum status count_sentinels(const struct tokenizer_config *config, int *n, struct error *e) {
    enum { T5_SENTINELS = 100 };
    const struct json *count = json_member(config->options, "extra_ids");
    const struct json *list = config_mark(config, "additional_special_tokens");
    *n = T5_SENTINELS;
    if (!json_is_absent(count)) {
        if (!json_is_int(count) || json_int(count) < 0 || json_int(count) > TOKENIZER_MAX_SENTINELS)
            return error_set(e, STATUS_INVALID,
                             "tokenizer_config.json: extra_ids: expected 0 to %d",
                             TOKENIZER_MAX_SENTINELS);
        *n = (int)json_int(count);
    } else if (json_is_list(list)) {
        *n = 0;
        for (size_t i = 0; i < json_count(list); i++) {
            const struct json *name = json_item(list, i);
            if (json_kind(name) == JSON_KIND_OBJECT) name = json_member(name, "content");
            if (json_is_text(name) && strncmp(json_text(name).text, "<extra_id_", 10) == 0) (*n)++;
        }
    }
    return STATUS_OK;
}

/* T5 counts its sentinels down from the end: <extra_id_0> is the last id. White space around them
 * goes, as in T5Tokenizer. added_tokens_decoder, where it is there, lists them itself. */
static enum status open_sentinels(struct tokenizer *tokenizer,
                                  const struct tokenizer_config *config, struct error *e) {
    int n;
    if (json_member(config->options, "added_tokens_decoder") != NULL) return STATUS_OK;
    if (count_sentinels(config, &n, e) != STATUS_OK) return e->status;
    int last = tokenizer->vocab_size + n - 1;
    for (int number = 0; number < n; number++) {
        char name[32];
        int length = snprintf(name, sizeof name, "<extra_id_%d>", number);
        struct text_span content = {name, (size_t)length};
        struct added_token token = {
            .id = last - number, .special = true, .lstrip = true, .rstrip = true};
        if (pieces_set(tokenizer, token.id, content, e) != STATUS_OK) return e->status;
        tokenizer->pieces[token.id].special = true;
        added_set_append(&tokenizer->added_raw, content, token);
    }
    return STATUS_OK;
}

enum status sentencepiece_open(struct tokenizer *tokenizer, struct text_span file,
                               const struct tokenizer_config *config, struct error *e) {
    struct spm *spm = xcalloc(1, sizeof *spm);
    struct sentencepiece_message message = {""};
    tokenizer->model = spm;
    tokenizer->ops = &spm_ops;
    spm->library = sentencepiece_load(file.text, file.size, &message);
    if (spm->library == NULL)
        return error_set(e, STATUS_INVALID, "not a SentencePiece model: %s", message.text);
    read_space_rules(spm, file);

    spm->canonical = config_is_siglip(config);
    bool t5 = config_is_t5(config), ends = t5 || spm->canonical, bos, eos;
    if (open_pieces(tokenizer, spm, t5, e) != STATUS_OK ||
        (t5 && open_sentinels(tokenizer, config, e) != STATUS_OK) ||
        added_set_sort(&tokenizer->added_raw, e) != STATUS_OK ||
        json_get_bool(config->options, "add_bos_token", !ends, &bos, e) ||
        json_get_bool(config->options, "add_eos_token", ends, &eos, e))
        return e->status;
    int bos_id = sentencepiece_bos(spm->library), eos_id = sentencepiece_eos(spm->library);
    if (bos && bos_id >= 0) tokenizer->prefix = (struct affix){{bos_id}, 1};
    if (eos && eos_id >= 0) tokenizer->suffix = (struct affix){{eos_id}, 1};
    return STATUS_OK;
}
