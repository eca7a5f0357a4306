/* retrieval/extract/page/layout_text.c: blocks to text and marks. See layout_private.h. */
#include <math.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/page/layout_private.h"

struct text_writer {
    struct page_layout *layout;
    struct document_text *out;
    const struct layout_line *lines;
    struct layout_block *blocks;
    int n_blocks;
    int page; /* index of the page that is marked; -1: none */
    enum block_kind last;
    size_t next;   /* of pages.bookmarks: those before it are written, where they are pictures */
    int next_page; /* the index of its page, or less */
};

static void begin_page(struct text_writer *writer, int index) {
    const struct page *page = &writer->layout->pages->list[index];
    struct buffer *marks = &writer->out->marks;
    size_t at = writer->out->text.size;
    if (writer->page == index) return;
    writer->page = index;
    marks_add(marks, MARK_PAGE, 0, at, (size_t)page->number);
    marks_add(marks, MARK_PAGE_SIZE, 0, at, mark_point(page->width, page->height));
    if (page->confidence > 0) marks_add(marks, MARK_CONFIDENCE, 0, at, (size_t)page->confidence);
}

/* Items of a list and rows stand in lines, other blocks have an empty one between them. */
static void begin_block(struct text_writer *writer, enum block_kind kind) {
    struct buffer *text = &writer->out->text;
    bool close = kind == writer->last &&
                 (kind == BLOCK_LIST_ITEM || kind == BLOCK_CONTENTS || kind == BLOCK_TABLE_ROW);
    if (text->size > 0 && !close) buffer_append(text, "\n", 1);
    writer->last = kind;
}

/* Prose. */

static const struct layout_word *first_word(const struct text_writer *writer, int line) {
    const struct layout_line *next = &writer->lines[line];
    return next->n > 0 ? &next->words[0] : NULL;
}

/* The lines of one part of a paragraph; `next` is the part's that goes on, or NULL. */
static void write_lines(struct text_writer *writer, const struct layout_block *block,
                        const struct layout_word *next) {
    struct text_sink sink = {.text = &writer->out->text,
                             .marks = &writer->out->marks,
                             .vocabulary = &writer->layout->vocabulary,
                             .drops_raised = true};
    for (int i = block->first; i < block->first + block->n; i++) {
        const struct layout_line *line = &writer->lines[i];
        bool last = i == block->first + block->n - 1;
        const struct layout_word *following = last ? next : first_word(writer, i + 1);
        begin_page(writer, line->page);
        bool blank = layout_write_words(&sink, line->words, line->n, following);
        bool lines = block->kind == BLOCK_CONTENTS;
        if (following && blank) buffer_append(&writer->out->text, lines ? "\n" : " ", 1);
    }
}

static void write_prose(struct text_writer *writer, const struct layout_block *block) {
    struct buffer *marks = &writer->out->marks;
    size_t start = writer->out->text.size, place = marks->size;
    marks_add_block(marks, block->kind, start);
    if (block->kind == BLOCK_HEADING) marks_add(marks, MARK_HEADING, block->level, start, 0);
    for (const struct layout_block *part = block; part;) {
        const struct layout_block *next =
            part->goes_on >= 0 ? &writer->blocks[part->goes_on] : NULL;
        write_lines(writer, part, next ? first_word(writer, next->first) : NULL);
        part = next;
    }
    if (block->kind == BLOCK_HEADING) {
        struct mark heading;
        place += sizeof heading;
        memcpy(&heading, marks->data + place, sizeof heading);
        heading.value = (uint32_t)(writer->out->text.size - start);
        memcpy(marks->data + place, &heading, sizeof heading);
    }
    buffer_append(&writer->out->text, "\n", 1);
}

/* Code. */

static int count_letters(struct text_span text) { return (int)utf8_count(text.text, text.size); }

/* The width of a letter: the font's pitch. */
static float find_advance(const struct text_writer *writer, const struct layout_block *block) {
    float width = 0;
    int letters = 0;
    for (int i = block->first; i < block->first + block->n; i++)
        for (int j = 0; j < writer->lines[i].n; j++) {
            const struct layout_word *word = &writer->lines[i].words[j];
            width += rect_width(&word->box);
            letters += count_letters(word->text);
        }
    return letters > 0 && width > 0 ? width / (float)letters : 1;
}

static void append_blanks(struct buffer *text, float n) {
    enum { MOST = 120 };
    for (int i = 0; i < MOST && (float)i + 0.5F < n; i++) buffer_append(text, " ", 1);
}

static void write_code(struct text_writer *writer, const struct layout_block *block) {
    struct text_sink sink = {.text = &writer->out->text,
                             .marks = &writer->out->marks,
                             .vocabulary = &writer->layout->vocabulary};
    float advance = find_advance(writer, block), left = INFINITY;
    for (int i = block->first; i < block->first + block->n; i++)
        left = fminf(left, writer->lines[i].box.left);
    marks_add_block(sink.marks, BLOCK_CODE, sink.text->size);
    for (int i = block->first; i < block->first + block->n; i++) {
        const struct layout_line *line = &writer->lines[i];
        float at = left;
        begin_page(writer, line->page);
        for (int j = 0; j < line->n; j++) {
            const struct layout_word *word = &line->words[j];
            append_blanks(sink.text, (word->box.left - at) / advance);
            layout_write_words(&sink, word, 1, NULL);
            at = word->box.right;
        }
        buffer_append(sink.text, "\n", 1);
    }
}

/* Blocks. */

static void write_one(struct text_writer *writer, struct layout_block *block) {
    begin_block(writer, block->kind);
    block->written = true;
    if (block->table >= 0) {
        begin_page(writer, writer->lines[block->first].page);
        const struct layout_table *table = layout_table(writer->layout, block->table);
        if (!table->goes_on) table_write_head(&table->table, writer->out);
        table_write_rows(&table->table, writer->out);
    } else if (block->kind == BLOCK_CODE) {
        write_code(writer, block);
    } else {
        write_prose(writer, block);
    }
    for (int part = block->goes_on; part >= 0; part = writer->blocks[part].goes_on)
        writer->blocks[part].written = true;
}

/* A block and the notes behind it. */
static void write_block(struct text_writer *writer, struct layout_block *block) {
    write_one(writer, block);
    for (int note = block->first_behind; note >= 0; note = writer->blocks[note].next_behind)
        if (!writer->blocks[note].written) write_one(writer, &writer->blocks[note]);
}

/* Pictures. */

static void write_picture(struct text_writer *writer, int index, struct text_span shown) {
    struct buffer *text = &writer->out->text;
    begin_block(writer, BLOCK_CAPTION);
    if (writer->page < index) begin_page(writer, index);
    marks_add_block(&writer->out->marks, BLOCK_CAPTION, text->size);
    buffer_append_string(text, "[Picture: ");
    buffer_append(text, shown.text, shown.size);
    buffer_append_string(text, "]\n");
}

/* Puts the descriptions of pictures behind the text of their pages: of those before page `end` (an
 * index). */
static void write_pictures(struct text_writer *writer, int end) {
    const struct pages *pages = writer->layout->pages;
    const struct page_bookmark *list = (const void *)pages->bookmarks.data;
    size_t n = pages->bookmarks.size / sizeof *list;
    for (; writer->next < n; writer->next++) {
        const struct page_bookmark *at = &list[writer->next];
        int *index = &writer->next_page;
        if (at->level > 0) continue;
        while (*index < pages->n && pages->list[*index].number < (int)at->page) (*index)++;
        if (*index >= end) return;
        if (pages->list[*index].number == (int)at->page)
            write_picture(writer, *index,
                          (struct text_span){pages->titles.data + at->title, at->size});
    }
}

void layout_write(struct page_layout *layout) {
    struct text_writer writer = {.layout = layout, .out = layout->out, .page = -1};
    int n_lines;
    writer.lines = layout_lines(layout, &n_lines);
    writer.blocks = layout_blocks(layout, &writer.n_blocks);
    for (int i = 0; i < writer.n_blocks; i++) {
        if (writer.blocks[i].written || writer.blocks[i].behind >= 0) continue;
        write_pictures(&writer, writer.lines[writer.blocks[i].first].page);
        write_block(&writer, &writer.blocks[i]);
    }
    write_pictures(&writer, layout->pages->n);
}
