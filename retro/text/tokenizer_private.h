/* retro/text/tokenizer_private.h: what the tokenizer files share. A tokenizer is a vocabulary
 * (pieces), the added tokens that are cut out of a text first, normalisers, and a model that turns
 * what is left into ids. */
#pragma once

#include "config/json/json_value.h"
#include "retro/text/pretokenize.h"
#include "retro/text/tokenizer.h"
#include "retro/text/tokenizer_decoder.h"

enum {
    TOKENIZER_MAX_ID = 1 << 22, /* ids are below this: a small file cannot claim a large table */
    TOKENIZER_MAX_ADDED_BYTES = 1024, /* length of one added token */
    TOKENIZER_MAX_AFFIX = 16,         /* tokens the post-processor may put before or after a text */
    TOKENIZER_MAX_NORMALIZERS = 16,
    TOKENIZER_MAX_SENTINELS = 1024 /* tokens <extra_id_N> */
};

/* The bytes of one id. A hole in the vocabulary has bytes == NULL. */
struct piece {
    char *bytes;
    uint32_t size;
    bool special;
    bool mark; /* of an added token that is a mark: never made of plain text */
};

struct added_token {
    const char *content; /* owned; normalised when `normalized` */
    uint32_t size;
    int32_t id;
    bool special, lstrip, rstrip, single_word;
    bool mark; /* special, or it reads as a mark: set by added_set_append */
};
/* Sorted by content, so that the tokens beginning with a prefix are a range. */
struct added_set {
    struct added_token *tokens;
    int n, capacity;
    bool first[256]; /* whether a token begins with this byte */
};

enum normalizer_kind {
    NORMALIZER_FORM,
    NORMALIZER_LOWERCASE,
    NORMALIZER_REPLACE,
    NORMALIZER_PREPEND,
    NORMALIZER_STRIP,
    NORMALIZER_CHARSMAP,
    NORMALIZER_BERT
};
struct normalizer_step {
    enum normalizer_kind kind;
    enum unicode_form form;
    struct bert_normalizer bert;
    struct regex *regex;
    char *content; /* what NORMALIZER_REPLACE and NORMALIZER_PREPEND put in */
    size_t content_size;
    bool strip_left, strip_right;
    struct charsmap *charsmap; /* owned */
};

/* Open addressing from bytes to the id whose piece they are. */
struct piece_table {
    int32_t *slots; /* -1: free */
    size_t mask;
};

struct affix {
    int32_t ids[TOKENIZER_MAX_AFFIX];
    int n;
};

struct model_ops {
    /* Appends the ids of one stretch of normalised text without added tokens. call: what begin
     * returned. */
    enum status (*encode)(const struct tokenizer *tokenizer, void *call,
                          const struct mapped_text *text, struct tokens *out, struct error *e);
    /* State of one tokenizer_encode for a text of `size` bytes; may be NULL. */
    void *(*begin)(const struct tokenizer *tokenizer, size_t size);
    void (*end)(void *call);
    /* Appends what a token adds to a text; *started says whether there is text before, and is
     * updated. */
    void (*piece)(const struct tokenizer *tokenizer, int32_t id, bool *started, struct buffer *out);
    void (*close)(void *model);
};

struct tokenizer {
    struct piece *pieces;
    int vocab_size, piece_capacity;
    int32_t eod, bos, pad;                      /* -1: none */
    int32_t cls, unknown;                       /* the same: cls_token and unk_token */
    int32_t sentinels[TOKENIZER_MAX_SENTINELS]; /* id of <extra_id_N>, or -1 */
    uint64_t hash;
    struct added_set added_raw;        /* found in the text as it comes */
    struct added_set added_normalised; /* found in normalised text */
    struct normalizer_step normalizers[TOKENIZER_MAX_NORMALIZERS];
    int n_normalizers;
    struct affix prefix, suffix;
    const struct model_ops *ops;
    void *model;
};

/* Gives id its bytes. STATUS_INVALID when id is out of range or taken. */
enum status pieces_set(struct tokenizer *tokenizer, int64_t id, struct text_span bytes,
                       struct error *e);
/* A table of the ids for which include[id] holds (include NULL: all). */
void piece_table_open(struct piece_table *table, const struct tokenizer *tokenizer,
                      const bool *include);
int32_t piece_table_find(const struct piece_table *table, const struct tokenizer *tokenizer,
                         const char *bytes, size_t n);
/* The id of a piece by search through all of them, or -1: for opening only. */
int32_t pieces_find(const struct tokenizer *tokenizer, const char *bytes, size_t n);

void added_set_append(struct added_set *set, struct text_span content, struct added_token flags);
enum status added_set_sort(struct added_set *set, struct error *e);
/* The token of this content in a sorted set, or NULL. */
struct added_token *added_set_get(const struct added_set *set, struct text_span content);
void added_set_free(struct added_set *set);
/* The next token at or after *at: its bytes with the white space that lstrip and rstrip take. *at
 * moves on. */
struct added_match {
    size_t start, end;
    int32_t id;
};
/* skip_marks: marks are passed over. */
bool added_set_find(const struct added_set *set, struct text_span text, size_t *at, bool skip_marks,
                    struct added_match *out);
/* The longest of the tokens i with counts[i] that the text begins with: its bytes, or 0. */
size_t added_set_at(const struct added_set *set, struct text_span text, const bool *counts);
/* Whether an added token of this content steers a model, as <tool_call>, <|user|> and [INST] do,
 * where nothing but its looks tells: it stands in brackets, holds no blanks, and is no tag of HTML.
 */
bool added_reads_as_mark(struct text_span content);

enum status normalizers_run(const struct tokenizer *tokenizer, struct mapped_text *text,
                            struct mapped_buffer *store, struct error *e);

/* tokenizer_json.c: parts of tokenizer.json that every model has. */
enum status json_open_normalizer(struct tokenizer *tokenizer, const struct json *normalizer,
                                 struct error *e);
enum status json_open_added(struct tokenizer *tokenizer, const struct json *added, struct error *e);
/* `added_tokens_decoder` of tokenizer_config.json: added tokens by id. Tokens the tokenizer already
 * has get its flags.
 */
enum status json_open_decoder_tokens(struct tokenizer *tokenizer, const struct json *tokens,
                                     struct error *e);
enum status json_open_postprocessor(struct tokenizer *tokenizer, const struct json *post,
                                    struct error *e);
/* *byte_level: ByteLevel comes last, so that the model takes bytes. NULL: the model takes text,
 * ByteLevel is an error.
 */
enum status json_open_pretokenizer(struct pretokenizer *pretokenizer, const struct json *pre,
                                   bool *byte_level, struct error *e);
/* The pattern and the content of a Replace, normalizer or decoder; what is set belongs to the
 * caller, after an error too. */
enum status json_read_replace(const struct json *json, struct regex **pattern, char **content,
                              size_t *size, struct error *e);
/* The symbol and `prepend` of a Metaspace, pre-tokenizer or decoder. */
enum status json_read_metaspace(const struct json *json, struct pretokenizer_step *out,
                                struct error *e);
/* obj[key] as a boolean; `fallback` when absent or null, STATUS_INVALID when something else. */
enum status json_get_bool(const struct json *obj, const char *key, bool fallback, bool *out,
                          struct error *e);
/* The "type" of an object, "" when it has none. */
const char *json_type_name(const struct json *obj);

/* charsmap.c: the table of replacements that SentencePiece compiles into a model, as tokenizer.json
 * carries it. */
enum status charsmap_open(struct charsmap **out, const struct json *base64, struct error *e);
void charsmap_close(struct charsmap *charsmap);
/* Appends in, which is valid UTF-8, with its replacements: the Precompiled normalizer of the
 * tokenizers library. */
void charsmap_normalise(const struct charsmap *charsmap, const struct mapped_text *in,
                        struct mapped_buffer *out);

enum status bpe_open(struct tokenizer *tokenizer, const struct json *root, struct error *e);
enum status unigram_open(struct tokenizer *tokenizer, const struct json *root, struct error *e);
enum status wordpiece_open_json(struct tokenizer *tokenizer, const struct json *root,
                                struct error *e);

/* Files beside a tokenizer that say something about it; NULL: not there. They are objects. */
struct tokenizer_config {
    struct json *options; /* tokenizer_config.json */
    struct json *marks;   /* special_tokens_map.json */
    struct json *model;   /* config.json */
};
/* tokenizer_open.c: the value of a key that tokenizer_config.json has, or else
 * special_tokens_map.json. */
const struct json *config_mark(const struct tokenizer_config *config, const char *key);

/* options: tokenizer_config.json beside vocab.txt, or NULL. */
enum status wordpiece_open_vocab(struct tokenizer *tokenizer, struct text_span vocab,
                                 const struct json *options, struct error *e);
/* For T5 the configuration decides the sentinels and the end token. */
enum status sentencepiece_open(struct tokenizer *tokenizer, struct text_span file,
                               const struct tokenizer_config *config, struct error *e);
