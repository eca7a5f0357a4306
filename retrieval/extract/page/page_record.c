/* retrieval/extract/page/page_record.c: see page_record.h. */
#include "retrieval/extract/page/page_record.h"

#include <math.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

enum record_kind { RECORD_PAGE = 0x50414731, RECORD_BOOKMARK };

struct record_head {
    uint32_t kind, number; /* of a page: its number; of a bookmark: that of its page */
    uint32_t text, words, rules, pictures; /* bytes; of a bookmark: of its title, its level */
    uint32_t confidence;
    float width, height, tilt;
};

void record_add_page(struct buffer *records, const struct page *page) {
    struct record_head head = {.kind = RECORD_PAGE,
                               .number = (uint32_t)page->number,
                               .text = (uint32_t)page->text.size,
                               .words = (uint32_t)page->words.size,
                               .rules = (uint32_t)page->rules.size,
                               .pictures = (uint32_t)page->pictures.size,
                               .confidence = (uint32_t)page->confidence,
                               .width = page->width,
                               .height = page->height,
                               .tilt = page->tilt};
    buffer_append(records, &head, sizeof head);
    buffer_append(records, page->text.data, page->text.size);
    buffer_append(records, page->words.data, page->words.size);
    buffer_append(records, page->rules.data, page->rules.size);
    buffer_append(records, page->pictures.data, page->pictures.size);
}

void record_add_bookmark(struct buffer *records, struct text_span title, uint32_t page,
                         uint32_t level) {
    struct record_head head = {
        .kind = RECORD_BOOKMARK, .number = page, .text = (uint32_t)title.size, .words = level};
    buffer_append(records, &head, sizeof head);
    buffer_append(records, title.text, title.size);
}

/* Reading. */

struct record_reader {
    const char *at, *end;
};

/* False: so many bytes are not there. */
static bool take_bytes(struct record_reader *reader, struct buffer *out, uint32_t size) {
    if (size > (size_t)(reader->end - reader->at)) return false;
    buffer_append(out, reader->at, size);
    reader->at += size;
    return true;
}

static bool is_text(const struct buffer *text) {
    return text->size == 0 ||
           (utf8_is_valid(text->data, text->size) && memchr(text->data, '\0', text->size) == NULL);
}

/* A truth that is neither of the two may not even be looked at. */
static bool has_sound_flags(const struct page_word *word) {
    const unsigned char *bytes = (const unsigned char *)word;
    static const size_t flags[] = {
        offsetof(struct page_word, bold), offsetof(struct page_word, italic),
        offsetof(struct page_word, fixed_pitch), offsetof(struct page_word, hidden),
        offsetof(struct page_word, glued)};
    for (size_t i = 0; i < ARRAY_COUNT(flags); i++)
        if (bytes[flags[i]] > 1) return false;
    return true;
}

static bool words_are_sound(const struct page *page) {
    size_t n;
    const struct page_word *words = page_words(page, &n);
    for (size_t i = 0; i < n; i++) {
        struct text_span text = {NULL, words[i].size};
        bool inside = words[i].text <= page->text.size && text.size > 0 &&
                      text.size <= page->text.size - words[i].text;
        if (!inside || !has_sound_flags(&words[i]) ||
            !utf8_is_valid(page->text.data + words[i].text, text.size))
            return false;
    }
    return true;
}

static bool read_page(struct record_reader *reader, const struct record_head *head,
                      struct pages *pages) {
    struct page *page = pages_add(pages, (int)head->number);
    bool sound = head->number > 0 && head->number <= INT32_MAX && head->confidence <= 100 &&
                 isfinite(head->width) && isfinite(head->height) && fabsf(head->tilt) <= 45 &&
                 head->width > 0 && head->height > 0 &&
                 head->words % sizeof(struct page_word) == 0 &&
                 head->rules % sizeof(struct page_rule) == 0 &&
                 head->pictures % sizeof(struct page_picture) == 0;
    page->width = head->width;
    page->height = head->height;
    page->tilt = head->tilt;
    page->confidence = (int)head->confidence;
    return sound && take_bytes(reader, &page->text, head->text) &&
           take_bytes(reader, &page->words, head->words) &&
           take_bytes(reader, &page->rules, head->rules) &&
           take_bytes(reader, &page->pictures, head->pictures) && is_text(&page->text) &&
           words_are_sound(page);
}

static bool read_bookmark(struct record_reader *reader, const struct record_head *head,
                          struct pages *pages) {
    struct buffer title = {0};
    bool sound = take_bytes(reader, &title, head->text) && is_text(&title);
    if (sound && title.size > 0)
        pages_add_bookmark(pages, (struct text_span){title.data, title.size}, head->number,
                           head->words);
    buffer_free(&title);
    return sound;
}

enum status records_read(struct text_span records, struct pages *pages, struct error *e) {
    struct record_reader reader = {records.text, records.text + records.size};
    bool sound = true;
    while (sound && reader.at < reader.end) {
        struct record_head head;
        sound = (size_t)(reader.end - reader.at) >= sizeof head;
        if (!sound) break;
        memcpy(&head, reader.at, sizeof head);
        reader.at += sizeof head;
        if (head.kind == RECORD_PAGE)
            sound = read_page(&reader, &head, pages);
        else
            sound = head.kind == RECORD_BOOKMARK && read_bookmark(&reader, &head, pages);
    }
    return sound ? STATUS_OK : error_set(e, STATUS_CORRUPT, "its pages are no records of pages");
}

/* Laying out. */

enum status extract_pages(const struct extract_file *file, struct document_text *out,
                          struct error *e) {
    struct pages pages = {0};
    enum status status = records_read(file->bytes, &pages, e);
    if (status == STATUS_OK) pages_part_turns(&pages);
    if (status == STATUS_OK) pages_lay_out(&pages, out);
    pages_free(&pages);
    return status;
}

static enum status take_document(void *context, const char *part, const struct document_text *text,
                                 struct error *e) {
    struct document_text *out = context;
    (void)part;
    (void)e;
    document_text_copy(out, text);
    return STATUS_OK;
}

enum status pages_lay_out_in_child(const struct extract_file *file, struct text_span records,
                                   struct document_text *out, struct error *e) {
    struct document_taker taker = {.context = out, .take = take_document};
    struct piece_taker pieces = {.documents = &taker};
    struct extract_file pages = {
        .name = file->name, .bytes = records, .kind = DOCUMENT_PAGES, .limits = file->limits};
    /* Marks take more than the text they belong to. */
    return child_run_parser(&pages, 16 * file->limits.bytes, &pieces, e);
}
