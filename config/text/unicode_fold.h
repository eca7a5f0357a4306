/* config/text/unicode_fold.h: a text as it folds, character by character, for comparing words. */
#pragma once

#include "config/text/unicode.h"

/* Folding is NFKC and full case folding (Unicode 3.13, NFKC_Casefold), so that "ŁÓDŹ", "łódź" and
 * full-width letters are the same. Bytes that are no UTF-8, and U+200B, which parts words, become
 * blanks.
 *
 * The words of a folded text are runs of letters, marks, numbers and connectors. Beyond U+FFFF
 * signs are words too, as pictures of ships are. Chinese, Japanese and Korean are written without
 * blanks: there a character is a word. */
enum fold_place { FOLD_BETWEEN, FOLD_WITHIN, FOLD_ALONE, FOLD_END };

struct fold_entry;
struct fold_reader {
    /* The current character of the folded text; FOLD_END: there is none. */
    const char *bytes;
    size_t length;
    enum fold_place place;

    const char *at, *end;        /* what is still to be folded */
    const char *settled;         /* characters before this fold each as it does alone */
    const char *rest, *rest_end; /* what is folded and still to be read */
    const char *latest;          /* a character of more than two bytes, or NULL, ... */
    size_t latest_length;        /* ... its bytes ... */
    const struct fold_entry *latest_entry;
    struct stretch stretch;        /* for what the tables do not fold, ... */
    struct mapped_buffer computed; /* ... and that, folded */
};

/* Stands before the first character: fold_reader_next goes there. `text` is borrowed. */
void fold_reader_open(struct fold_reader *reader, struct text_span text);
void fold_reader_next(struct fold_reader *reader);
void fold_reader_close(struct fold_reader *reader);

/* Folded characters within a word: FOLD_RUN bytes; those that find no room are left out. */
enum { FOLD_RUN = 64, FOLD_ENTRY = 8 };
struct fold_run {
    char bytes[FOLD_RUN + FOLD_ENTRY]; /* behind the run: undefined */
    size_t size;
    bool joined; /* by a '_', maybe one that was left out */
};
/* Adds the current character and all behind it that are within the same word; the first that is
 * not is the current one then. */
void fold_reader_run(struct fold_reader *reader, struct fold_run *run);
