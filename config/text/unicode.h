/* config/text/unicode.h: Unicode for tokenizers and the index of words: text that remembers where
 * its bytes came from, the normalisations of the reference tokenizers, folding. utf8proc is
 * included by unicode.c only. */
#pragma once

#include "config/base/buffer.h"
#include "config/base/utf8.h"

/* Borrowed valid UTF-8, and for each byte the offset in the caller's text it came from. */
struct mapped_text {
    const char *text;
    size_t size;
    const uint32_t *origin; /* NULL: byte i comes from base + i */
    uint32_t base;
};
static inline uint32_t mapped_origin(const struct mapped_text *text, size_t i) {
    return text->origin ? text->origin[i] : text->base + (uint32_t)i;
}
struct mapped_text mapped_slice(const struct mapped_text *text, size_t from, size_t to);

/* Owns what a mapped_text borrows. Zero-initialise. */
struct mapped_buffer {
    char *text;
    uint32_t *origin;
    size_t size, capacity;
};
void mapped_append(struct mapped_buffer *buffer, const char *bytes, size_t n, uint32_t origin);
struct mapped_text mapped_view(const struct mapped_buffer *buffer);
void mapped_free(struct mapped_buffer *buffer);

/* Appends text with U+FFFD for every maximal subpart that is no UTF-8. */
void unicode_repair(const char *text, size_t size, struct mapped_buffer *out);

enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD };
void unicode_normalise(const struct mapped_text *in, enum unicode_form form,
                       struct mapped_buffer *out);
/* The parts of folding for comparing words (unicode_fold.h has the reader). A text folds stretch
 * by stretch: a character that joins no previous one, and all behind it that do. */
struct stretch {
    int32_t *c, *sorted;
    uint32_t *origin, *sorted_origin; /* of each character */
    size_t n, capacity;
};
bool unicode_joins_previous(int32_t character); /* it may combine with what stands before it */
/* Whether it may compose with the character before it: it is behind another one in a canonical
 * decomposition. */
bool unicode_is_second(int32_t character);
/* Appends the folded text, as utf8proc has it; `stretch`, zero-initialised, keeps its memory. */
void unicode_fold(struct stretch *stretch, struct text_span text, struct mapped_buffer *out);
/* The character that a character decomposes into when it folds, and its combining class; -1 where
 * there are none or several, or where the class depends on the age of the tables. */
int32_t unicode_fold_single(int32_t character, int *combining);
void stretch_free(struct stretch *stretch);
/* Character by character, without the final sigma rule, as Rust's char::to_lowercase. */
void unicode_lowercase(const struct mapped_text *in, struct mapped_buffer *out);

/* BertNormalizer of the tokenizers library. */
struct bert_normalizer {
    bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};
void unicode_normalise_bert(const struct mapped_text *in, const struct bert_normalizer *normalizer,
                            struct mapped_buffer *out);

/* The UTF-8 of a character; returns its bytes, 0 for half of a pair of UTF-16 and for none. */
size_t unicode_write(int32_t character, char bytes[4]);
bool unicode_is_space(int32_t character); /* White_Space */
bool unicode_is_word(
    int32_t character); /* regular expressions' \w: letters, marks, decimal digits, connectors */
bool unicode_is_punctuation(int32_t character); /* ASCII punctuation, or category P */
bool unicode_is_printable(int32_t character);   /* as str.isprintable of Python */
bool unicode_is_letter(int32_t character);      /* category L */
bool unicode_is_decimal(int32_t character);     /* category Nd */
bool unicode_is_digit(int32_t character);       /* Nd, superscripts, digits in circles */
bool unicode_is_numeric(int32_t character);     /* category N */
bool unicode_is_upper(int32_t character);
bool unicode_is_lower(int32_t character);
bool unicode_is_cased(int32_t character); /* upper, lower or title case */
bool unicode_is_case_ignorable(
    int32_t character); /* marks, modifiers, apostrophes: Case_Ignorable */
enum unicode_case { UNICODE_CASE_UPPER, UNICODE_CASE_TITLE, UNICODE_CASE_LOWER };
int32_t unicode_lower(int32_t character); /* one character, as Unicode's simple mapping */
/* The full mapping: up to three characters; returns how many. */
int unicode_map_case(int32_t character, enum unicode_case form, int32_t to[3]);
/* Bytes of the first extended grapheme cluster of text[0, size), valid UTF-8, size > 0. */
size_t unicode_grapheme(const char *text, size_t size);
