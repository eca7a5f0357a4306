/* retro/text/tokenizer_decoder.h: the "decoder" of tokenizer.json for models whose pieces are text:
 * how a piece is written, and what happens to the beginning of a text. Byte-level BPE needs none.
 */
#pragma once

#include "config/json/json_value.h"
#include "retro/text/pretokenize.h"

enum { DECODER_STEPS = 8 };

/* Zero-initialise; decoder_close also after an error. */
struct decoder {
    struct decoder_step {
        struct regex *regex; /* what is replaced */
        char *content;       /* by what */
        size_t size;
        bool first_removes; /* in a text's first token the matches are dropped: Metaspace */
    } steps[DECODER_STEPS];
    int n;
    bool bytes;        /* "<0x0A>" is written as its byte */
    char strip[4];     /* the character that is dropped once from the beginning of a text */
    size_t strip_size; /* 0: none */
};

/* Reads Metaspace, Replace, ByteFallback, Fuse, Strip of the beginning, and a Sequence of them.
 * STATUS_UNSUPPORTED names any other: a stream of tokens could not follow it, or no model of ours
 * needs it. */
enum status decoder_open(struct decoder *decoder, const struct json *json, struct error *e);
void decoder_close(struct decoder *decoder);

/* Appends the text of one piece; *started says whether the text had a token before, and is updated.
 */
void decoder_write(const struct decoder *decoder, struct text_span piece, bool *started,
                   struct buffer *out);

/* The byte that "<0x0A>" stands for, or -1. */
int piece_byte(struct text_span piece);
