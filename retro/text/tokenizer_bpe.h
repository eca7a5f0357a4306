/* retro/text/tokenizer_bpe.h: the BPE model of tokenizer.json, as tokenizer_bpe_open.c reads it and
 * tokenizer_bpe.c uses it. Byte-level BPE (GPT-2, Llama 3, Qwen2) merges bytes; text BPE (Llama 2,
 * Mistral, Gemma) merges characters, and writes a character that its vocabulary lacks as the bytes
 * <0xNN>, or as the unknown token. */
#pragma once

#include "retro/text/tokenizer_private.h"

struct merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free slot */
    uint32_t rank;
    int32_t id;
};

struct bpe {
    struct pretokenizer pre;
    bool byte_level;
    int32_t byte_ids[256];  /* of a byte (text BPE: of <0xNN> where bytes are a way out); -1: the
                               vocabulary lacks it */
    int32_t ascii_ids[128]; /* of a character, text BPE only; -1: likewise */
    int32_t last_ids[256];  /* of a word's last byte, byte-level BPE only: its mark behind it where
                               there is one */
    char word_end[8];       /* the mark, as CLIP has "</w>"; "" without */
    int32_t unknown;        /* -1: what the vocabulary lacks vanishes, as in the reference */
    bool fuse_unknown, ignore_merges;
    struct merge *merges;
    size_t mask;
    struct piece_table words; /* of all pieces that text can become */
    struct decoder
        decoder; /* of text BPE; the pieces of byte-level BPE are the bytes that they stand for */
};

/* The slot of a pair, or the free one where it belongs. */
static inline size_t picture_rows_slot(const struct bpe *bpe, uint64_t pair) {
    size_t at = (pair * 0x9E3779B97F4A7C15u) >> 20 & bpe->mask;
    while (bpe->merges[at].pair != UINT64_MAX && bpe->merges[at].pair != pair)
        at = (at + 1) & bpe->mask;
    return at;
}

/* Appends the printable character that byte-level vocabularies have for a byte, in UTF-8. */
void bpe_append_character(struct buffer *out, uint8_t byte);

/* Fills in what bpe_open (tokenizer_private.h) allocated. */
enum status bpe_read(struct tokenizer *tokenizer, struct bpe *bpe, const struct json *root,
                     struct error *e);
