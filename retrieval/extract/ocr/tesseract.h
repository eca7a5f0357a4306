/* retrieval/extract/ocr/tesseract.h: the door to libtesseract, which is opened with dlopen in the
 * process that reads pages, and nowhere else. */
#pragma once

#include "retrieval/extract/ocr/grey.h"
#include "retrieval/extract/page/page.h"

enum { OCR_MOST_LANGUAGES = 6, OCR_LANGUAGE_SIZE = 24 };

struct ocr_languages {
    char names[OCR_MOST_LANGUAGES][OCR_LANGUAGE_SIZE]; /* [n], as tesseract has them: "eng" */
    int n;
};
/* Reads "eng+deu"; "" leaves *languages empty. STATUS_INVALID for what is no such list. */
enum status ocr_languages_parse(struct ocr_languages *languages, const char *list, struct error *e);

/* How many languages OCR would read by: those that are asked for whose models are there, else those
 * that are installed. 0: it is off. */
int ocr_count_languages(const struct extract_ocr *ocr);
/* In a process of the sandbox: whether the library is there, which it opens. */
bool ocr_library_opens(void);

/* Models, and what the last reading found. */
struct ocr_engine;
/* Opens the library, and reads the models of these languages, else of those that are installed,
 * English first. STATUS_UNSUPPORTED names the Debian package that is missing. `library` is the
 * file's name; NULL: libtesseract.so.5. */
enum status ocr_engine_open(struct ocr_engine **out, const struct ocr_languages *languages,
                            const char *library, struct error *e);
void ocr_engine_close(struct ocr_engine *engine); /* NULL: nothing */
const struct ocr_languages *ocr_engine_languages(const struct ocr_engine *engine);
/* The language of the page before, which its reader sets; 0 at first. */
int *ocr_engine_recent(struct ocr_engine *engine);

/* Seconds of the processor that this process took: a page's time does not run out while others have
 * the machine. */
double ocr_clock(void);
/* How the picture is cut into lines: as a page of columns and blocks, or as one block. */
enum ocr_mode { OCR_PAGE = 3, OCR_BLOCK = 6, OCR_SPARSE = 11 };
/* One reading of a picture. */
struct ocr_reading {
    const struct grey *picture;
    int language; /* of the engine's, from 0 */
    enum ocr_mode mode;
    int dpi;      /* pixels an inch, about */
    double until; /* ocr_clock() when it is broken off */
};
/* A word as it was read. */
struct ocr_word {
    uint32_t text, size;  /* bytes of engine's text */
    struct page_rect box; /* pixels of the picture */
    float baseline;       /* at the word's middle */
    float height;         /* of its line */
    float confidence;     /* 0 .. 100 */
};
struct ocr_words {
    struct buffer text;
    struct buffer list; /* struct ocr_word, in the order of reading */
};
static inline struct ocr_word *ocr_words_list(const struct ocr_words *words, size_t *n) {
    *n = words->list.size / sizeof(struct ocr_word);
    return (struct ocr_word *)(void *)words->list.data;
}
void ocr_words_free(struct ocr_words *words);
/* Clears *words and reads. STATUS_TOO_LARGE: the time is over; what was read until then is there.
 */
enum status ocr_engine_read(struct ocr_engine *engine, const struct ocr_reading *reading,
                            struct ocr_words *words, struct error *e);
/* The mean of the confidences, of which a word has as many as bytes; 0 where there are none. */
float ocr_words_confidence(const struct ocr_words *words);
