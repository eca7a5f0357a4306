/* retrieval/extract/reader.h: which reader a document was read by, so that a newer one can read it
 * again. It is the document's first mark (retrieval/marks.h), and goes wherever the document goes.
 *
 * A change that makes a reader read files differently raises its number in reader.c. */
#pragma once

#include "retrieval/extract/extract.h"

/* As it is stored: a number is never used for another reader. */
enum document_reader {
    READER_NONE,
    READER_TEXT = 1, /* of Markdown and reStructuredText too */
    READER_HTML = 2,
    READER_MAN = 3,
    READER_PDF = 4,
    READER_OFFICE = 5, /* texts and slides */
    READER_SHEET = 6,
    READER_LEGACY = 7, /* Office before 2007 */
    READER_NOTEBOOK = 8,
    READER_XML = 9,
    READER_RECORDS = 10,
    READER_MAIL = 11,
    READER_OCR = 12,
    READER_PICTURE = 13, /* kept as it is */
    READER_COUNT
};

/* Puts the mark of the reader of that kind before the document's other marks. */
void reader_sign(struct document_text *text, enum document_kind kind);
void reader_sign_as(struct document_text *text, enum document_reader reader);

/* Why a document is to be read again. */
enum reread_reason {
    REREAD_NOT,
    REREAD_UNKNOWN, /* nothing says what read it */
    REREAD_NEWER,   /* its reader, or the OCR that read pages of it, reads differently now */
    REREAD_OCR,     /* OCR has languages now that were missing, or was off */
    REREAD_HIDDEN,  /* sheets were hidden, and are to be read now */
    REREAD_REASONS
};
/* The means that files would be read by now. */
struct reader_means {
    int n_languages;    /* that OCR has (ocr_count_ready); 0: it is off, or not installed */
    bool hidden_sheets; /* are read too */
};
enum reread_reason reader_judges(struct mark_span marks, const struct reader_means *means);
enum document_reader reader_of(struct mark_span marks);
