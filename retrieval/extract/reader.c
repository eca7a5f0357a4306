/* retrieval/extract/reader.c: see reader.h. */
#include "retrieval/extract/reader.h"

#include <string.h>

#include "retrieval/extract/extract_private.h"

/* Of each reader; 1 .. 65535. */
static const uint16_t versions[READER_COUNT] = {
    [READER_TEXT] = 1,    [READER_HTML] = 2,    [READER_MAN] = 1,    [READER_PDF] = 2,
    [READER_OFFICE] = 2,  [READER_SHEET] = 1,   [READER_LEGACY] = 1, [READER_NOTEBOOK] = 1,
    [READER_XML] = 1,     [READER_RECORDS] = 2, [READER_MAIL] = 1,   [READER_OCR] = 1,
    [READER_PICTURE] = 1,
};

/* The mark's value: the reader's version in the lower half; in the upper half OCR's, 0: it was not
 * needed. Its column: languages in the upper byte, this bit in the lower. */
enum { SHEETS_WERE_HIDDEN = 1, MOST_COUNTED = 255 };

void reader_sign_as(struct document_text *text, enum document_reader reader) {
    struct buffer marks = {0};
    bool by_ocr = text->wants_ocr || reader == READER_OCR;
    struct mark mark = {
        .kind = MARK_READER,
        .level = (uint8_t)reader,
        .column = (uint16_t)(text->n_languages << 8 | (text->has_hidden ? SHEETS_WERE_HIDDEN : 0)),
        .value = versions[reader] | (by_ocr ? (uint32_t)versions[READER_OCR] << 16 : 0)};
    buffer_append(&marks, &mark, sizeof mark);
    buffer_append(&marks, text->marks.data, text->marks.size);
    buffer_free(&text->marks);
    text->marks = marks;
}

void reader_sign(struct document_text *text, enum document_kind kind) {
    enum document_reader reader = document_form_of(kind)->reader;
    if (reader != READER_NONE) reader_sign_as(text, reader);
}

static struct mark find_mark(struct mark_span marks) {
    struct mark mark = {0};
    if (marks.n > 0) mark = mark_read(marks, 0);
    bool known = mark.kind == MARK_READER && mark.level < READER_COUNT;
    return known ? mark : (struct mark){0};
}

enum document_reader reader_of(struct mark_span marks) {
    return (enum document_reader)find_mark(marks).level;
}

enum reread_reason reader_judges(struct mark_span marks, const struct reader_means *means) {
    struct mark mark = find_mark(marks);
    uint32_t version = mark.value & 0xffff, by_ocr = mark.value >> 16;
    if (mark.kind != MARK_READER) return REREAD_UNKNOWN;
    if (version < versions[mark.level] || (by_ocr > 0 && by_ocr < versions[READER_OCR]))
        return REREAD_NEWER;
    if (by_ocr > 0 && mark.column >> 8 < means->n_languages) return REREAD_OCR;
    return mark.column & SHEETS_WERE_HIDDEN && means->hidden_sheets ? REREAD_HIDDEN : REREAD_NOT;
}
