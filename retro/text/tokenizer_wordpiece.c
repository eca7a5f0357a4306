/* retro/text/tokenizer_wordpiece.c: WordPiece with BERT's pre-tokenisation: words between white
 * space, punctuation alone, and in each word the longest known piece first. From vocab.txt or a
 * tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/text/tokenizer_private.h"

enum { WORDPIECE_MAX_PREFIX = 16 };

struct wordpiece {
    struct piece_table table;
    int32_t unknown;
    int max_characters; /* longer words are unknown */
    char prefix[WORDPIECE_MAX_PREFIX + 1];
    size_t prefix_size;
    size_t longest; /* bytes of the longest piece */
    bool cleanup;   /* decoding puts no space before punctuation */
};

/* A buffer for "##" and a word. */
struct wordpiece_call {
    char *bytes;
    size_t capacity;
};

static void *wordpiece_begin(const struct tokenizer *tokenizer, size_t size) {
    (void)tokenizer;
    (void)size;
    return xcalloc(1, sizeof(struct wordpiece_call));
}

static void wordpiece_end(void *call) {
    struct wordpiece_call *wordpiece_call = call;
    free(wordpiece_call->bytes);
    free(wordpiece_call);
}

/* The longest piece at bytes[at), at most to `size`; its length goes to *length. */
static int32_t longest_piece(const struct tokenizer *tokenizer, struct wordpiece_call *call,
                             const struct mapped_text *word, size_t at, size_t *length) {
    const struct wordpiece *wordpiece = tokenizer->model;
    size_t prefix = at > 0 ? wordpiece->prefix_size : 0, n = word->size - at;
    if (prefix + n > wordpiece->longest)
        n = wordpiece->longest > prefix ? wordpiece->longest - prefix : 0;
    memcpy(call->bytes, wordpiece->prefix, prefix);
    memcpy(call->bytes + prefix, word->text + at, n);
    for (; n > 0; n--) {
        /* Cutting inside a character finds nothing: pieces are whole characters. */
        if (at + n < word->size && ((uint8_t)word->text[at + n] & 0xC0) == 0x80) continue;
        int32_t id = piece_table_find(&wordpiece->table, tokenizer, call->bytes, prefix + n);
        if (id >= 0) {
            *length = n;
            return id;
        }
    }
    return -1;
}

static void encode_word(const struct tokenizer *tokenizer, struct wordpiece_call *call,
                        const struct mapped_text *word, struct tokens *out) {
    const struct wordpiece *wordpiece = tokenizer->model;
    size_t length;
    int before = out->n;
    bool known = utf8_count(word->text, word->size) <= (size_t)wordpiece->max_characters;
    if (word->size + WORDPIECE_MAX_PREFIX > call->capacity) {
        call->capacity = word->size * 2 + WORDPIECE_MAX_PREFIX;
        call->bytes = xrealloc(call->bytes, call->capacity);
    }
    for (size_t at = 0; known && at < word->size; at += length) {
        length = 0;
        int32_t id = longest_piece(tokenizer, call, word, at, &length);
        known = id >= 0;
        if (known) tokens_append(out, id, mapped_origin(word, at));
    }
    if (known) return;
    out->n = before;
    tokens_append(out, wordpiece->unknown, mapped_origin(word, 0));
}

static enum status wordpiece_encode(const struct tokenizer *tokenizer, void *call,
                                    const struct mapped_text *text, struct tokens *out,
                                    struct error *e) {
    (void)e;
    size_t start = 0;
    for (size_t i = 0; i <= text->size;) {
        int32_t c = ' ';
        int length = i < text->size ? utf8_read(text->text + i, text->size - i, &c) : 1;
        bool punctuation = unicode_is_punctuation(c);
        if (punctuation || unicode_is_space(c)) {
            struct mapped_text word = mapped_slice(text, start, i);
            if (word.size > 0) encode_word(tokenizer, call, &word, out);
            struct mapped_text alone =
                punctuation ? mapped_slice(text, i, i + (size_t)length) : word;
            if (punctuation) encode_word(tokenizer, call, &alone, out);
            start = i + (size_t)length;
        }
        i += (size_t)length;
    }
    return STATUS_OK;
}

/* Whether the reference's clean-up joins this piece to the word before it. */
static bool joins_previous(const struct piece *piece) {
    static const char *const joining[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    for (size_t i = 0; i < ARRAY_COUNT(joining); i++)
        if (strncmp(piece->bytes, joining[i], strlen(joining[i])) == 0) return true;
    return false;
}

static void wordpiece_piece(const struct tokenizer *tokenizer, int32_t id, bool *started,
                            struct buffer *out) {
    const struct wordpiece *wordpiece = tokenizer->model;
    const struct piece *piece = &tokenizer->pieces[id];
    bool continues = piece->size >= wordpiece->prefix_size &&
                     memcmp(piece->bytes, wordpiece->prefix, wordpiece->prefix_size) == 0;
    if (!*started) {
        buffer_append(out, piece->bytes, piece->size);
    } else if (continues) {
        buffer_append(out, piece->bytes + wordpiece->prefix_size,
                      piece->size - wordpiece->prefix_size);
    } else {
        if (!wordpiece->cleanup || !joins_previous(piece)) buffer_append(out, " ", 1);
        buffer_append(out, piece->bytes, piece->size);
    }
    *started = true;
}

static void wordpiece_close(void *model) {
    struct wordpiece *wordpiece = model;
    free(wordpiece->table.slots);
    free(wordpiece);
}

static const struct model_ops wordpiece_ops = {wordpiece_encode, wordpiece_begin, wordpiece_end,
                                               wordpiece_piece, wordpiece_close};

static struct wordpiece *wordpiece_begin_open(struct tokenizer *tokenizer) {
    struct wordpiece *wordpiece = xcalloc(1, sizeof *wordpiece);
    wordpiece->max_characters = 100;
    wordpiece->prefix_size = 2;
    memcpy(wordpiece->prefix, "##", 2);
    wordpiece->cleanup = true;
    tokenizer->model = wordpiece;
    tokenizer->ops = &wordpiece_ops;
    return wordpiece;
}

static enum status wordpiece_finish_open(struct tokenizer *tokenizer, const char *unknown,
                                         struct error *e) {
    struct wordpiece *wordpiece = tokenizer->model;
    piece_table_open(&wordpiece->table, tokenizer, NULL);
    for (int id = 0; id < tokenizer->vocab_size; id++)
        if (tokenizer->pieces[id].bytes != NULL && tokenizer->pieces[id].size > wordpiece->longest)
            wordpiece->longest = tokenizer->pieces[id].size;
    wordpiece->unknown = piece_table_find(&wordpiece->table, tokenizer, unknown, strlen(unknown));
    if (wordpiece->unknown < 0)
        return error_set(e, STATUS_INVALID, "the unknown token \"%.60s\" is not in the vocabulary",
                         unknown);
    return STATUS_OK;
}

static enum status open_pieces(struct tokenizer *tokenizer, const struct json *vocab,
                               struct error *e) {
    if (json_kind(vocab) != JSON_KIND_OBJECT || json_count(vocab) == 0)
        return error_set(e, STATUS_INVALID, "model.vocab: expected an object of tokens");
    for (struct json_entry it = {0}; json_next(vocab, &it);) {
        if (!json_is_int(it.value))
            return error_set(e, STATUS_INVALID, "model.vocab: \"%.60s\": expected an integer",
                             it.name.text);
        enum status status = pieces_set(tokenizer, json_int(it.value), it.name, e);
        if (status != STATUS_OK) return error_prefix(e, "model.vocab");
    }
    return STATUS_OK;
}

enum status wordpiece_open_json(struct tokenizer *tokenizer, const struct json *root,
                                struct error *e) {
    const struct json *model = json_member(root, "model"), *decoder = json_member(root, "decoder");
    const struct json *prefix = json_member(model, "continuing_subword_prefix");
    const struct json *characters = json_member(model, "max_input_chars_per_word");
    const struct json *unknown = json_member(model, "unk_token");
    const char *pre = json_type_name(json_member(root, "pre_tokenizer"));
    if (strcmp(pre, "BertPreTokenizer") != 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "pre_tokenizer: type \"%.40s\": expected BertPreTokenizer", pre);
    struct wordpiece *wordpiece = wordpiece_begin_open(tokenizer);
    if (json_is_text(prefix)) {
        if (json_text(prefix).size > WORDPIECE_MAX_PREFIX)
            return error_set(e, STATUS_UNSUPPORTED,
                             "model.continuing_subword_prefix: over %d bytes",
                             WORDPIECE_MAX_PREFIX);
        wordpiece->prefix_size = json_text(prefix).size;
        memcpy(wordpiece->prefix, json_text(prefix).text, wordpiece->prefix_size);
    }
    if (json_is_int(characters)) {
        if (json_int(characters) < 1 || json_int(characters) > 10000)
            return error_set(e, STATUS_UNSUPPORTED,
                             "model.max_input_chars_per_word: expected 1 to 10000");
        wordpiece->max_characters = (int)json_int(characters);
    }
    enum status status = json_get_bool(decoder, "cleanup", true, &wordpiece->cleanup, e);
    if (status == STATUS_OK) status = open_pieces(tokenizer, json_member(model, "vocab"), e);
    if (status != STATUS_OK) return status;
    return wordpiece_finish_open(tokenizer,
                                 json_is_text(unknown) ? json_text(unknown).text : "[UNK]", e);
}

/* One piece a line; the line's number is the id. */
static enum status open_lines(struct tokenizer *tokenizer, struct text_span vocab,
                              struct error *e) {
    int64_t id = 0;
    for (size_t i = 0; i < vocab.size; id++) {
        const char *line = vocab.text + i, *newline = memchr(line, '\n', vocab.size - i);
        size_t n = newline ? (size_t)(newline - line) : vocab.size - i;
        i += n + 1;
        while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == ' ' || line[n - 1] == '\t')) n--;
        enum status status = pieces_set(tokenizer, id, (struct text_span){line, n}, e);
        if (status != STATUS_OK) return error_prefix(e, "line %lld", (long long)id + 1);
    }
    return STATUS_OK;
}

/* [CLS], [SEP] and their like are found in texts; [CLS] text [SEP] is what a model expects. */
static void add_bert_tokens(struct tokenizer *tokenizer, int32_t *cls, int32_t *sep) {
    static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        int32_t id = pieces_find(tokenizer, names[i], strlen(names[i]));
        if (i == 2) *cls = id;
        if (i == 3) *sep = id;
        if (id < 0) continue;
        tokenizer->pieces[id].special = true;
        added_set_append(&tokenizer->added_raw, (struct text_span){names[i], strlen(names[i])},
                         (struct added_token){.id = id, .special = true});
    }
}

enum status wordpiece_open_vocab(struct tokenizer *tokenizer, struct text_span vocab,
                                 const struct json *options, struct error *e) {
    struct normalizer_step *step = &tokenizer->normalizers[tokenizer->n_normalizers];
    tokenizer->n_normalizers++;
    step->kind = NORMALIZER_BERT;
    step->bert.clean_text = true;
    wordpiece_begin_open(tokenizer);
    enum status status = json_get_bool(options, "do_lower_case", true, &step->bert.lowercase, e);
    if (status == STATUS_OK)
        status = json_get_bool(options, "tokenize_chinese_chars", true,
                               &step->bert.handle_chinese_chars, e);
    if (status == STATUS_OK)
        status = json_get_bool(options, "strip_accents", step->bert.lowercase,
                               &step->bert.strip_accents, e);
    if (status == STATUS_OK) status = open_lines(tokenizer, vocab, e);
    if (status == STATUS_OK) status = wordpiece_finish_open(tokenizer, "[UNK]", e);
    if (status != STATUS_OK) return status;
    int32_t cls = -1, sep = -1;
    add_bert_tokens(tokenizer, &cls, &sep);
    if (cls < 0 || sep < 0)
        return error_set(e, STATUS_INVALID,
                         "the vocabulary lacks [CLS] or [SEP]: expected one of BERT's kind");
    tokenizer->prefix = (struct affix){{cls}, 1};
    tokenizer->suffix = (struct affix){{sep}, 1};
    return added_set_sort(&tokenizer->added_raw, e);
}
