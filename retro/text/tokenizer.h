/* retro/text/tokenizer.h: text to token ids and back. Byte-level BPE and Unigram (tokenizer.json),
 * WordPiece (vocab.txt, BERT normalisation) and SentencePiece (.model) behind one struct. A
 * tokenizer is immutable after opening and safe to use from several threads at once. Text is bytes
 * with a length: NUL is a character like any other. */
#pragma once

#include "config/base/buffer.h"

struct tokenizer;

/* Token ids of one text, and where each token starts in the text's bytes. Zero-initialise; grows;
 * free when done. */
struct tokens {
    int32_t *ids;
    uint32_t
        *starts; /* byte offset in the text where token i begins; token i ends where i + 1 begins */
    int n, capacity;
};
void tokens_append(struct tokens *tokens, int32_t id, uint32_t start);
void tokens_free(struct tokens *tokens);

enum tokenizer_flags {
    TOKENIZER_PLAIN =
        0, /* text is text: marks in it, as <|endoftext|> or <tool_call>, are characters */
    TOKENIZER_PARSE_SPECIAL = 1, /* added tokens in the text, marks too, become their ids */
    TOKENIZER_ADD_SPECIAL = 2,   /* what the post-processor adds: BOS, or [CLS] ... [SEP] */
    TOKENIZER_NO_ADDED = 4       /* added tokens that are no marks are ordinary characters too */
};

/* Opens a model folder: tokenizer.json, else vocab.txt, else tokenizer.model, else spiece.model,
 * else tekken.json; or one of these files itself. tokenizer_config.json, special_tokens_map.json
 * and the model_type of config.json are read beside it. */
enum status tokenizer_open(struct tokenizer **out, const char *path, struct error *e);
/* tokenizer.json from memory, for tests and the fuzzer. */
enum status tokenizer_open_json(struct tokenizer **out, const char *text, size_t size,
                                struct error *e);
void tokenizer_close(struct tokenizer *tokenizer);

int tokenizer_vocab_size(const struct tokenizer *tokenizer); /* largest id + 1 */
int tokenizer_eod(const struct tokenizer *tokenizer); /* end of document / end of text id, or -1 */
int tokenizer_bos(const struct tokenizer *tokenizer); /* beginning of text id, or -1 */
int tokenizer_suffix(
    const struct tokenizer *tokenizer); /* tokens that TOKENIZER_ADD_SPECIAL puts after a text */
bool tokenizer_lowercases(
    const struct tokenizer *tokenizer); /* whether its normalisers lowercase a text */
int tokenizer_pad(const struct tokenizer
                      *tokenizer); /* padding id, or -1; Hugging Face's T5 decoders start with it */
/* Id of the sentinel <extra_id_N> that marks gap N of a text for T5, or -1. */
int tokenizer_sentinel(const struct tokenizer *tokenizer, int number);
uint64_t tokenizer_hash(
    const struct tokenizer *tokenizer); /* identifies the vocabulary file: XXH3 of its bytes */

/* Appends the ids of text[0, size) to *out. Any bytes are accepted: invalid UTF-8 follows the
 * reference libraries, which see U+FFFD in its place. STATUS_TOO_LARGE over 2^31 tokens. */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                             int flags, struct tokens *out, struct error *e);
/* Appends the text of ids to *out; ids outside the vocabulary are skipped. Special tokens are
 * written as their text unless skip_special. */
void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int n,
                      bool skip_special, struct buffer *out);
/* Appends the bytes that one token adds to a text (half a character possible for byte-level BPE).
 */
void tokenizer_piece(const struct tokenizer *tokenizer, int32_t id, struct buffer *out);
/* Added token i, counted from 0: tokens that are cut out of a text before the model reads it; false
 * beyond the last. *mark: it is special, or reads as a mark that steers the model
 * (docs/chat-templates.md). */
bool tokenizer_added(const struct tokenizer *tokenizer, int i, struct text_span *content,
                     bool *mark);
int tokenizer_added_count(const struct tokenizer *tokenizer);
/* The longest of the added tokens i with counts[i] that the text begins with: its bytes, or 0. */
size_t tokenizer_added_at(const struct tokenizer *tokenizer, struct text_span text,
                          const bool *counts);
/* The id of the added token with this content, or -1. */
int32_t tokenizer_added_id(const struct tokenizer *tokenizer, struct text_span content);
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);
/* Whether an id says nothing of a text: its cls_token, eos_token, pad_token or unk_token. */
bool tokenizer_is_filler(const struct tokenizer *tokenizer, int32_t id);

/* Streaming: bytes of tokens come in, whole characters go out. Zero-initialise. An incomplete UTF-8
 * tail waits; bytes that can never become a character come out as U+FFFD, so the output is always
 * valid UTF-8. */
struct detokenizer {
    uint8_t tail[4];
    int n_tail;
    bool started; /* SentencePiece drops the first word's space */
};
void detokenizer_push(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      int32_t id, struct buffer *out);
void detokenizer_finish(struct detokenizer *detokenizer, struct buffer *out);
