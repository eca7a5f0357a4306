/* retrieval/extract/pdf/pdf_child.c: reads pages and writes them down, in the sandbox. See
 * pdf_child.h. */
#include "retrieval/extract/pdf/pdf_child.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retrieval/extract/page/page_record.h"
#include "retrieval/extract/pdf/pdf_fields.h"
#include "retrieval/extract/pdf/pdf_structure.h"
#include "retrieval/extract/pdf/pdf_words.h"

enum { MOST_PIXELS = 2400 }; /* a side, of the picture in which lines are looked for */

static struct error missing; /* why the library is not there */

void pdf_child_prepare(const struct sandbox_call *call) {
    const struct pdf_child_options *options = call->options;
    pdf_open_library(options->name, &missing);
}

static void write_piece(int fd, enum pdf_piece_kind kind, const struct buffer *piece) {
    struct pdf_piece_head head = {.kind = kind, .size = piece->size};
    sandbox_write(fd, &head, sizeof head);
    sandbox_write(fd, piece->data, piece->size);
}

static void write_error(int fd, enum pdf_piece_kind kind, const struct error *why) {
    struct pdf_piece_head head = {.kind = kind, .status = why->status, .size = strlen(why->text)};
    sandbox_write(fd, &head, sizeof head);
    sandbox_write(fd, why->text, (size_t)head.size);
}

static void take_bookmark(void *context, struct text_span title, int page, int level) {
    if (page > 0 && level > 0) record_add_bookmark(context, title, (uint32_t)page, (uint32_t)level);
}

static void write_facts(int fd, const struct pdf *pdf, bool first) {
    struct buffer piece = {0}, title = {0};
    if (first) pdf_title(pdf, &title);
    struct pdf_facts_piece facts = {.n_pages = (uint32_t)pdf_page_count(pdf),
                                    .title = (uint32_t)title.size};
    buffer_append(&piece, &facts, sizeof facts);
    buffer_append(&piece, title.data, title.size);
    if (first) pdf_walk_bookmarks(pdf, take_bookmark, &piece);
    write_piece(fd, PIECE_FACTS, &piece);
    buffer_free(&piece);
    buffer_free(&title);
}

/* Words come first: a page whose drawing takes too long keeps them. */
struct page_reading_child {
    int fd;
    struct page page;
    struct pdf_letters letters;
    bool reads_tags;            /* they are still to be opened */
    struct pdf_structure *tags; /* NULL: there are none */
    struct buffer tagged;       /* records of those of the page */
    struct pdf_fields fields;
    struct buffer boxes, record;
};

static void take_tag(void *context, struct text_span text, int page, int level) {
    record_add_bookmark(context, text, (uint32_t)page, (uint32_t)level);
}

static void take_pictures(struct page_reading_child *reader, const struct pdf_page *page) {
    buffer_clear(&reader->boxes);
    pdf_page_pictures(page, &reader->boxes);
    const struct page_rect *boxes = (const void *)reader->boxes.data;
    for (size_t i = 0; i < reader->boxes.size / sizeof *boxes; i++)
        page_add_picture(&reader->page, &boxes[i]);
}

static void write_page(struct page_reading_child *reader, enum pdf_piece_kind kind) {
    buffer_clear(&reader->record);
    record_add_page(&reader->record, &reader->page);
    buffer_append(&reader->record, reader->tagged.data, reader->tagged.size);
    write_piece(reader->fd, kind, &reader->record);
}

static void read_page(struct page_reading_child *reader, struct pdf *pdf, int i) {
    struct error why = {0};
    struct pdf_page *page;
    struct pdf_pixels pixels = {0};
    page_clear(&reader->page);
    buffer_clear(&reader->tagged);
    reader->page.number = i + 1;
    if (pdf_page_open(pdf, i, &page, &why)) {
        write_error(reader->fd, PIECE_LOST, &why);
        return;
    }
    pdf_page_size(page, &reader->page.width, &reader->page.height);
    pdf_page_letters(page, &reader->letters);
    pdf_words_add(&reader->letters, &reader->page);
    write_page(reader, PIECE_WORDS);
    if (reader->reads_tags) reader->tags = pdf_structure_open(pdf);
    reader->reads_tags = false;
    if (reader->tags) pdf_structure_walk(reader->tags, i, take_tag, &reader->tagged);
    take_pictures(reader, page);
    pdf_fields_read(page, &reader->fields);
    if (pdf_page_draw(page, 1, MOST_PIXELS, &pixels, &why)) {
        write_error(reader->fd, PIECE_LOST, &why);
    } else {
        pdf_fields_clear_ink(&reader->fields, &pixels);
        pdf_ink_add(&pixels, &reader->page);
        pdf_fields_add_words(&reader->fields, &reader->page);
        write_page(reader, PIECE_PAGE);
    }
    free(pixels.grey);
    pdf_page_close(page);
}

void pdf_child_work(const struct sandbox_call *call) {
    const struct pdf_child_options *options = call->options;
    struct page_reading_child reader = {.fd = call->output};
    struct error e = missing;
    struct pdf *pdf = NULL;
    if (e.status || pdf_open(&pdf, options->name, call->input, options->passwords, &e)) {
        write_error(reader.fd, PIECE_FAILED, &e);
        return;
    }
    write_facts(reader.fd, pdf, options->first == 0);
    /* Behind the first words: a tree that ends the process ends no page but one, and the process
     * behind it is told to leave it. */
    reader.reads_tags = options->tags != 0;
    for (int i = options->first; i < pdf_page_count(pdf); i += options->step)
        read_page(&reader, pdf, i);
    /* The process ends here: what it holds goes with it. */
}
