/* retro/text/open/gguf_vocabulary.h: the tokens of a GGUF file, and its other keys that begin with
 * "tokenizer.ggml.". Private to tokenizer_gguf.c. */
#pragma once

#include "retro/weights/gguf.h"

/* The numbers of tokenizer.ggml.token_type, which are SentencePiece's too. */
enum gguf_token_kind {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN,
    GGUF_TOKEN_CONTROL,
    GGUF_TOKEN_USER_DEFINED,
    GGUF_TOKEN_UNUSED,
    GGUF_TOKEN_BYTE
};

struct gguf_token {
    struct text_span text;
    enum gguf_token_kind kind;
    float score;
};

struct vocabulary {
    const struct gguf *gguf;
    struct gguf_token *tokens; /* owned */
    int n;
};

/* A key without its beginning; NULL: it is not there. */
const struct gguf_value *gguf_mark_find(const struct gguf *gguf, const char *key);
/* STATUS_INVALID: the key `what`. */
enum status gguf_mark_fail(const struct gguf *gguf, const char *key, const char *what,
                           struct error *e);
/* A truth value that may be absent. */
enum status gguf_mark_flag(const struct gguf *gguf, const char *key, bool fallback, bool *out,
                           struct error *e);

/* On failure too the tokens are to be freed. */
enum status vocabulary_read(struct vocabulary *vocabulary, const struct gguf *gguf,
                            struct error *e);
/* The id under a key, -1 without. */
enum status vocabulary_read_id(const struct vocabulary *vocabulary, const char *key, int *out,
                               struct error *e);
