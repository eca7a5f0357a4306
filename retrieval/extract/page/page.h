/* retrieval/extract/page/page.h: one page as its reader found it: words, rules and pictures with
 * their places, in any order. Readers of PDF fill it from the file, OCR from pixels; the layout
 * (page_layout.h) makes text and marks of it, the same way for both.
 *
 * All places are in points from the left top corner of the page as a viewer shows it: cropped and
 * turned. */
#pragma once

#include "retrieval/extract/extract.h"

struct page_word {
    uint32_t text, size; /* bytes of page.text */
    struct page_rect box;
    float font_size;    /* points; of a word that OCR read: its line's height */
    float baseline;     /* from the top; 0: not known */
    uint8_t confidence; /* 1 .. 100 by OCR; 100: it stands in the file */
    bool bold, italic;
    bool fixed_pitch; /* of a typewriter's font */
    bool hidden;      /* drawn so that nobody sees it: a layer of OCR under a scan */
    bool glued;       /* no blank stands between the word before and this one */
    uint8_t turned;   /* quarter turns clockwise against the page */
};

/* A thin line or a thin filled rectangle, horizontal or vertical. */
struct page_rule {
    struct page_rect box;
};

/* A picture, or a shape, that covers a part of the page. */
struct page_picture {
    struct page_rect box;
};

/* Zero-initialise; free when done. */
struct page {
    int number; /* from 1 */
    float width, height;
    struct buffer text;     /* the words' bytes, UTF-8 */
    struct buffer words;    /* struct page_word */
    struct buffer rules;    /* struct page_rule */
    struct buffer pictures; /* struct page_picture */
    int confidence;         /* 1 .. 100, the mean of its words by OCR; 0: it was not read by OCR */
};

static inline struct page_word *page_words(const struct page *page, size_t *n) {
    *n = page->words.size / sizeof(struct page_word);
    return (struct page_word *)(void *)page->words.data;
}
static inline struct text_span page_word_text(const struct page *page,
                                              const struct page_word *word) {
    return (struct text_span){page->text.data + word->text, word->size};
}
void page_clear(struct page *page);
void page_free(struct page *page);
/* Adds a word, whose text is copied: word->text and word->size are set. A word of blanks is not
 * added. */
void page_add_word(struct page *page, struct text_span text, const struct page_word *word);
void page_add_rule(struct page *page, const struct page_rect *box);
void page_add_picture(struct page *page, const struct page_rect *box);
