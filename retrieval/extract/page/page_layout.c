/* retrieval/extract/page/page_layout.c: the steps from pages to text. See page_layout.h. */
#include "retrieval/extract/page/page_layout.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/page/layout_private.h"

struct page *pages_add(struct pages *pages, int number) {
    pages->list = xgrow(pages->list, pages->n, &pages->capacity, sizeof *pages->list);
    pages->list[pages->n] = (struct page){.number = number};
    pages->n++;
    return &pages->list[pages->n - 1];
}

void pages_add_bookmark(struct pages *pages, struct text_span title, uint32_t page,
                        uint32_t level) {
    struct page_bookmark bookmark = {.title = (uint32_t)pages->titles.size,
                                     .size = (uint32_t)title.size,
                                     .page = page,
                                     .level = level};
    buffer_append(&pages->titles, title.text, title.size);
    buffer_append(&pages->bookmarks, &bookmark, sizeof bookmark);
}

void pages_free(struct pages *pages) {
    for (int i = 0; i < pages->n; i++) page_free(&pages->list[i]);
    free(pages->list);
    buffer_free(&pages->bookmarks);
    buffer_free(&pages->titles);
    *pages = (struct pages){0};
}

static void gather_words(struct page_layout *layout) {
    for (int i = 0; i < layout->pages->n; i++) {
        struct page_words *words = &layout->words[i];
        page_words_read(&layout->pages->list[i], words);
        for (int j = 0; j < words->n; j++) vocabulary_add(&layout->vocabulary, words->list[j].text);
    }
}

static void layout_close(struct page_layout *layout) {
    for (int i = 0; i < layout->pages->n; i++) page_words_free(&layout->words[i]);
    for (size_t i = 0; i < layout->tables.size / sizeof(struct layout_table); i++)
        table_free(&layout_table(layout, (int)i)->table);
    free(layout->words);
    vocabulary_free(&layout->vocabulary);
    buffer_free(&layout->lines);
    buffer_free(&layout->tables);
    buffer_free(&layout->blocks);
}

void pages_lay_out(const struct pages *pages, struct document_text *out) {
    struct page_layout layout = {.pages = pages, .out = out};
    layout.words = xcalloc((size_t)pages->n + 1, sizeof *layout.words);
    gather_words(&layout);
    for (int i = 0; i < pages->n; i++) layout_find_ruled(&layout, i);
    layout_drop_repeats(&layout);
    for (int i = 0; i < pages->n; i++) layout_cut_page(&layout, i);
    layout_join_tables(&layout);
    layout_find_blocks(&layout);
    layout_find_kinds(&layout);
    layout_place_notes(&layout);
    layout_write(&layout);
    layout_close(&layout);
}
