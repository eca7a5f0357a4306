/* retrieval/extract/text/blocks.c: the blocks of texts that are kept as they are, line by line:
 * paragraphs between empty lines, items of lists, rows of tables, code. Lines are read as
 * Markdown's are; other texts have less of them. */
#include "retrieval/extract/text/blocks.h"

#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/front_matter.h"

struct block_reader {
    enum document_kind kind;
    struct text_span text;
    const struct mark *headings; /* [n_headings] of the text */
    size_t n_headings, next;
    struct buffer *blocks;
    size_t at;             /* where the next line begins */
    struct text_span line; /* without its end and the blanks around it */
    size_t start, indent;
    enum block_kind open; /* the block that the line before is part of; 0: none */
    char fence;           /* of the code that is open, else 0 */
};

static bool read_line(struct block_reader *reader) {
    if (reader->at >= reader->text.size) return false;
    const char *line = reader->text.text + reader->at;
    const char *end = memchr(line, '\n', reader->text.size - reader->at);
    size_t size = end ? (size_t)(end - line) : reader->text.size - reader->at, indent = 0;
    reader->start = reader->at;
    reader->at += size + (end != NULL);
    while (size > 0 && is_blank(line[size - 1])) size--;
    while (indent < size && is_blank(line[indent])) indent++;
    reader->line = (struct text_span){line + indent, size - indent};
    reader->indent = indent;
    return true;
}

static void begin(struct block_reader *reader, enum block_kind kind) {
    marks_add_block(reader->blocks, kind, reader->start);
    reader->open = kind;
}

/* Whether the line consists of these alone. */
static bool is_all(struct text_span line, const char *these) {
    for (size_t i = 0; i < line.size; i++)
        if (line.text[i] == '\0' || !strchr(these, line.text[i])) return false;
    return line.size > 0;
}

static bool holds_heading(struct block_reader *reader) {
    while (reader->next < reader->n_headings && reader->headings[reader->next].at < reader->start)
        reader->next++;
    return reader->next < reader->n_headings && reader->headings[reader->next].at < reader->at;
}

/* "- ", "* ", "12. ", "3) " */
static bool is_item(struct text_span line) {
    static const char *const bullets[] = {"- ", "* ", "+ ", "\u2022 ", "\u2013 "};
    size_t digits = 0;
    for (size_t i = 0; i < ARRAY_COUNT(bullets); i++)
        if (span_starts_with(line, bullets[i])) return true;
    while (digits < line.size && digits < 3 && is_digit(line.text[digits])) digits++;
    return digits > 0 && digits + 1 < line.size &&
           (line.text[digits] == '.' || line.text[digits] == ')') &&
           is_blank(line.text[digits + 1]);
}

static char fence_of(struct text_span line) {
    if (span_starts_with(line, "```")) return '`';
    return span_starts_with(line, "~~~") ? '~' : '\0';
}

/* Opens, carries on or closes code between fences; false where the line has nothing to do with it.
 */
static bool read_fence(struct block_reader *reader) {
    char fence = reader->kind == DOCUMENT_MARKDOWN ? fence_of(reader->line) : '\0';
    if (reader->fence) {
        if (fence != reader->fence) return true;
        reader->fence = '\0';
        reader->open = 0;
        return true;
    }
    if (fence == '\0') return false;
    begin(reader, BLOCK_CODE);
    reader->fence = fence;
    return true;
}

/* Whether the next line is the row "|---|:--|" that makes this one a table's head. */
static bool is_table_head(const struct block_reader *reader) {
    struct block_reader ahead = *reader;
    return read_line(&ahead) && is_all(ahead.line, "|-: \t") &&
           memchr(ahead.line.text, '-', ahead.line.size) != NULL;
}

/* A line that begins with "|". */
static void read_row(struct block_reader *reader) {
    bool rule = is_all(reader->line, "|-: \t+=");
    if (reader->open != BLOCK_TABLE_HEAD && reader->open != BLOCK_TABLE_ROW &&
        is_table_head(reader))
        begin(reader, BLOCK_TABLE_HEAD);
    else if (!rule)
        begin(reader, BLOCK_TABLE_ROW);
}

/* Text of a paragraph, of an item, or code that is indented. */
static void read_plain(struct block_reader *reader) {
    bool indented = reader->indent >= 4 || reader->text.text[reader->start] == '\t';
    bool goes_on = reader->open == BLOCK_PARAGRAPH || reader->open == BLOCK_LIST_ITEM ||
                   (reader->open == BLOCK_CODE && indented);
    if (!goes_on)
        begin(reader, indented && reader->kind != DOCUMENT_TEXT ? BLOCK_CODE : BLOCK_PARAGRAPH);
}

static void take_line(struct block_reader *reader) {
    if (read_fence(reader)) return;
    bool rule = is_all(reader->line, "=-~^*+#");
    if (reader->line.size == 0) {
        if (reader->open != BLOCK_CODE) reader->open = 0;
    } else if (holds_heading(reader)) {
        begin(reader, BLOCK_HEADING);
    } else if (reader->open == BLOCK_HEADING && rule) {
        reader->open = 0;
    } else if (reader->line.text[0] == '|') {
        read_row(reader);
    } else if (is_item(reader->line)) {
        begin(reader, BLOCK_LIST_ITEM);
    } else {
        read_plain(reader);
    }
}

/* Metadata is no passage. */
static void skip_front_matter(struct block_reader *reader) {
    size_t size = reader->kind == DOCUMENT_MARKDOWN ? front_matter_size(reader->text) : 0;
    if (size == 0) return;
    begin(reader, BLOCK_CONTENTS);
    reader->at = size;
    reader->open = 0;
}

void blocks_mark(enum document_kind kind, struct text_span text, const struct buffer *headings,
                 struct buffer *blocks) {
    struct block_reader reader = {.kind = kind,
                                  .text = text,
                                  .headings = (const struct mark *)(const void *)headings->data,
                                  .n_headings = headings->size / sizeof(struct mark),
                                  .blocks = blocks};
    skip_front_matter(&reader);
    while (read_line(&reader)) take_line(&reader);
}

/* Man pages. */

/* Whether the next line goes on with the block, further to the right: this one is the tag of an
 * item. */
static bool is_tag(const struct block_reader *reader) {
    struct block_reader ahead = *reader;
    return read_line(&ahead) && ahead.line.size > 0 && ahead.indent > reader->indent;
}

void blocks_mark_man(struct text_span text, const struct buffer *headings, struct buffer *blocks) {
    struct block_reader reader = {.kind = DOCUMENT_MAN,
                                  .text = text,
                                  .headings = (const struct mark *)(const void *)headings->data,
                                  .n_headings = headings->size / sizeof(struct mark),
                                  .blocks = blocks};
    while (read_line(&reader)) {
        if (reader.line.size == 0)
            reader.open = 0;
        else if (holds_heading(&reader))
            begin(&reader, BLOCK_HEADING);
        else if (reader.open == 0 || reader.open == BLOCK_HEADING)
            begin(&reader, is_tag(&reader) ? BLOCK_LIST_ITEM : BLOCK_PARAGRAPH);
    }
}

/* Joining. */

static const struct mark *mark_at(const struct buffer *marks, size_t i) {
    return (const struct mark *)(const void *)marks->data + i;
}

void marks_join(const struct buffer *left, const struct buffer *right, struct buffer *out) {
    size_t n_left = left->size / sizeof(struct mark), n_right = right->size / sizeof(struct mark);
    size_t i = 0, j = 0;
    while (i < n_left || j < n_right) {
        bool from_left =
            j == n_right || (i < n_left && mark_at(left, i)->at <= mark_at(right, j)->at);
        buffer_append(out, from_left ? mark_at(left, i) : mark_at(right, j), sizeof(struct mark));
        i += from_left;
        j += !from_left;
    }
}
