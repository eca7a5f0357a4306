/* retro/text/open/tokenizer_gguf.h: the tokenizer in a GGUF file's metadata, written as the files
 * of a Hugging Face folder that say the same: the tokenizer itself, and tokenizer_config.json. */
#pragma once

#include "retro/text/tokenizer.h"
#include "retro/weights/gguf.h"

struct gguf_tokenizer {
    const char *name; /* of the file: tokenizer.json, or tokenizer.model (SentencePiece) */
    struct buffer file;
};

/* The caller frees out->file, after an error too. STATUS_UNSUPPORTED names a kind of tokenizer that
 * is not known. */
enum status gguf_write_tokenizer(struct gguf_tokenizer *out, const struct gguf *gguf,
                                 struct error *e);

/* Appends tokenizer_config.json: bos_token, eos_token, unk_token and pad_token as texts,
 * add_bos_token, add_eos_token, and chat_template. */
enum status gguf_write_options(const struct gguf *gguf, struct buffer *json, struct error *e);

/* tokenizer_open.c: through these files. */
enum status tokenizer_open_gguf(struct tokenizer **out, const struct gguf *gguf, struct error *e);

/* tokenizer_gguf_pre.c: how a text is cut into words before byte-level BPE: the name in
 * tokenizer.ggml.pre. */
enum { GGUF_PRE_STEPS = 6 };
struct gguf_pre {
    const char *name;
    const char *const *steps; /* regular expressions, one after another; NULL behind the last */
    bool whole_words;         /* a word that is a token stays whole, whatever the merges say */
    bool adds_bos;            /* where tokenizer.ggml.add_bos_token does not decide */
};
int gguf_pre_count(void);
const struct gguf_pre *gguf_pre_at(int i);
/* NULL when the name is unknown. */
const struct gguf_pre *gguf_pre_find(struct text_span name);
