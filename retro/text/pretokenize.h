/* retro/text/pretokenize.h: regular expressions of tokenizer.json and the pre-tokenizers built on
 * them. PCRE2 is included by pretokenize.c only. Everything here is immutable once opened. */
#pragma once

#include "config/text/unicode.h"

struct regex;
struct span {
    size_t start, end;
};
/* Zero-initialise; free(spans) when done. */
struct span_list {
    struct span *spans;
    size_t n, capacity;
};

/* Compiles a pattern of the Oniguruma dialect as far as it means the same to PCRE2; what does not
 * is STATUS_UNSUPPORTED. literal: the pattern is plain text. */
enum status regex_open(struct regex **out, struct text_span pattern, bool literal, struct error *e);
void regex_close(struct regex *regex);
/* Appends every match in text (valid UTF-8), left to right. */
enum status regex_find(const struct regex *regex, struct text_span text, struct span_list *out,
                       struct error *e);

enum split_behaviour {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_PREVIOUS,
    SPLIT_MERGED_NEXT,
    SPLIT_CONTIGUOUS
};

enum pretokenizer_kind {
    PRETOKENIZER_SPLIT, /* cuts the text at the matches of a regular expression, or at characters of
                           a kind */
    PRETOKENIZER_PREFIX_SPACE, /* puts a space before a text that does not begin with one */
    PRETOKENIZER_METASPACE     /* writes a symbol for every space, and puts one before the text as
                                  `prepend` says */
};
/* Where Metaspace puts a symbol that the text lacks. */
enum metaspace_prepend { METASPACE_NEVER, METASPACE_FIRST, METASPACE_ALWAYS };

enum { PRETOKENIZER_STEPS = 16 };
struct pretokenizer {
    struct pretokenizer_step {
        enum pretokenizer_kind kind;
        struct regex *regex; /* of PRETOKENIZER_SPLIT; NULL: */
        bool (*is_match)(int32_t character);
        enum split_behaviour behaviour;
        bool invert;
        char symbol[4]; /* of PRETOKENIZER_METASPACE: one character */
        size_t symbol_size;
        enum metaspace_prepend prepend;
    } steps[PRETOKENIZER_STEPS];
    int n;
};
void pretokenizer_close(struct pretokenizer *pretokenizer);
/* Called for every piece, in order. */
struct piece_sink {
    enum status (*take)(void *context, const struct mapped_text *piece, struct error *e);
    void *context;
};
enum status pretokenizer_run(const struct pretokenizer *pretokenizer,
                             const struct mapped_text *text, const struct piece_sink *sink,
                             struct error *e);
