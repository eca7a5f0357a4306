/* retrieval/extract/office/xml_text.c: XML as text. Elements of known schemas of prose (DocBook,
 * JATS, TEI, DITA) are paragraphs, headings and items; of all others an element that holds a text
 * alone is a line "name: text". Attributes, comments and what a document type declares are not
 * read. */
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/office/office.h"
#include "retrieval/extract/office/xml.h"

enum { MOST_DEPTH = 300 };

enum xml_role {
    XML_OTHER,
    XML_PROSE,
    XML_HEADING,
    XML_INLINE,
    XML_SECTION,
    XML_ITEM,
    XML_SKIPPED,
    XML_TABLE,
    XML_ROW,
    XML_CELL
};

static const struct {
    const char *names;
    enum xml_role role;
} roles[] = {
    {" p para simpara formalpara ab l shortdesc cmd pd def abstract-p ", XML_PROSE},
    {" programlisting screen literallayout pre codeblock code-block eg ", XML_PROSE},
    {" title head article-title book-title subtitle ", XML_HEADING},
    {" emphasis em i b strong code literal link ulink xref sub sup italic bold hi ref term ph "
     "filename command option quote q abbrev acronym footnote monospace sc name-inline uicontrol ",
     XML_INLINE},
    {" section sect1 sect2 sect3 sect4 sect5 sec chapter article book part appendix div topic body "
     "front back text ",
     XML_SECTION},
    {" listitem list-item item li step ", XML_ITEM},
    {" style script mml:math math graphic ", XML_SKIPPED},
    {" tgroup table-wrap informaltable table ", XML_TABLE},
    {" row tr ", XML_ROW},
    {" entry td th cell ", XML_CELL}};

static enum xml_role role_of(const char *name) {
    char padded[64];
    size_t size = strlen(name);
    if (size + 3 > sizeof padded) return XML_OTHER;
    padded[0] = ' ';
    memcpy(padded + 1, name, size);
    memcpy(padded + 1 + size, " ", 2);
    for (size_t i = 0; i < ARRAY_COUNT(roles); i++)
        if (strstr(roles[i].names, padded)) return roles[i].role;
    return XML_OTHER;
}

struct xml_level {
    char name[64];
    enum xml_role role;
    bool has_text;     /* of its own */
    bool has_elements; /* other than those within a line */
};

struct xml_text_reader {
    struct office_writer writer;
    struct xml_level levels[MOST_DEPTH]; /* [depth] */
    int depth, sections, skipped, table_depth;
    bool item_due;
    bool is_prose; /* an element of a known schema was seen */
};

static struct xml_level *open_level(struct xml_text_reader *reader) {
    return reader->depth > 0 && reader->depth <= MOST_DEPTH ? &reader->levels[reader->depth - 1]
                                                            : NULL;
}

static void end_line(struct xml_text_reader *reader) {
    struct office_writer *writer = &reader->writer;
    bool has_text = writer->paragraph.size > 0 &&
                    strspn(writer->paragraph.data, " \t\r\n") < writer->paragraph.size;
    if (has_text && reader->item_due) {
        buffer_append_string(&writer->label, "- ");
        reader->item_due = false;
    }
    office_end_paragraph(writer);
}

/* The table begins with its first row: schemas have two elements around the rows. */
static void open_row(struct xml_text_reader *reader) {
    if (reader->writer.tables == 0) {
        reader->table_depth = reader->depth - 1;
        for (int i = reader->table_depth; i > 0 && i <= MOST_DEPTH; i--)
            if (reader->levels[i - 1].role == XML_TABLE) reader->table_depth = i;
        office_open_table(&reader->writer);
    }
    office_open_row(&reader->writer);
}

static void open_element(struct xml_text_reader *reader, const char *name) {
    enum xml_role role = role_of(name);
    struct xml_level *above = open_level(reader);
    reader->depth++;
    struct xml_level *level = open_level(reader);
    reader->skipped += role == XML_SKIPPED;
    if (level) {
        *level = (struct xml_level){.role = role};
        size_t size = strlen(name);
        memcpy(level->name, name, size < sizeof level->name ? size : sizeof level->name - 1);
    }
    bool prose = role == XML_PROSE || role == XML_SECTION;
    reader->is_prose = reader->is_prose || prose;
    bool within_line = role == XML_INLINE || (above && above->has_text && role == XML_OTHER);
    if (within_line && level) level->role = XML_INLINE;
    if (above && !within_line) above->has_elements = true;
    if (!within_line) end_line(reader);
    reader->sections += role == XML_SECTION;
    if (role == XML_ITEM) reader->item_due = true;
    if (role == XML_ROW) open_row(reader);
    if (role == XML_CELL) office_open_cell(&reader->writer);
}

/* Runs of white space are one blank. */
static void add_text(struct xml_text_reader *reader, const char *text) {
    struct buffer *out = &reader->writer.paragraph;
    for (; *text; text++) {
        bool blank = strchr(" \t\r\n", *text) != NULL;
        if (blank && (out->size == 0 || out->data[out->size - 1] == ' ')) continue;
        buffer_append(out, blank ? " " : text, 1);
    }
}

static void take_xml_text(struct xml_text_reader *reader, const char *text) {
    struct xml_level *level = open_level(reader);
    if (reader->skipped > 0 || level == NULL) return;
    bool blank = strspn(text, " \t\r\n") == strlen(text);
    if (!blank && !level->has_text && level->role == XML_OTHER && !reader->is_prose &&
        !level->has_elements) {
        buffer_append_string(&reader->writer.paragraph, level->name);
        buffer_append_string(&reader->writer.paragraph, ": ");
    }
    level->has_text = level->has_text || !blank;
    if (!blank || reader->writer.paragraph.size > 0) add_text(reader, text);
}

static void close_element(struct xml_text_reader *reader, const char *name) {
    struct office_writer *writer = &reader->writer;
    struct xml_level *level = open_level(reader);
    enum xml_role role = level ? level->role : role_of(name);
    reader->skipped -= role_of(name) == XML_SKIPPED;
    if (role == XML_HEADING && writer->paragraph.size > 0) {
        struct xml_level *above = reader->depth > 1 && reader->depth <= MOST_DEPTH
                                      ? &reader->levels[reader->depth - 2]
                                      : NULL;
        bool of_table = above && above->role == XML_TABLE;
        writer->level = of_table ? 0 : max_int(1, min_int(reader->sections, MARK_LEVELS));
        if (writer->out->title.size == 0)
            buffer_append(&writer->out->title, writer->paragraph.data, writer->paragraph.size);
    }
    if (role != XML_INLINE) end_line(reader);
    reader->sections -= role == XML_SECTION;
    if (role == XML_CELL) office_close_cell(writer);
    if (role == XML_ROW) office_close_row(writer);
    if (reader->depth == reader->table_depth && writer->tables > 0) office_close_table(writer);
    reader->depth--;
}

static void take_xml(void *context, const struct xml_event *event) {
    struct xml_text_reader *reader = context;
    if (event->kind == XML_EVENT_TEXT) take_xml_text(reader, event->text);
    if (event->kind == XML_EVENT_OPEN) open_element(reader, event->name);
    if (event->kind == XML_EVENT_CLOSE) close_element(reader, event->name);
}

enum status extract_xml(const struct extract_file *file, struct document_text *out,
                        struct error *e) {
    struct xml_text_reader *reader = xcalloc(1, sizeof *reader);
    reader->writer.out = out;
    enum status status = xml_read_any(file->name, file->bytes, take_xml, reader, e);
    office_end_paragraph(&reader->writer);
    while (reader->writer.tables > 0) office_close_table(&reader->writer);
    office_writer_free(&reader->writer);
    free(reader);
    return status;
}
