/* retrieval/extract/page/page.c: see page.h. */
#include "retrieval/extract/page/page.h"

#include <string.h>

void page_clear(struct page *page) {
    buffer_clear(&page->text);
    buffer_clear(&page->words);
    buffer_clear(&page->rules);
    buffer_clear(&page->pictures);
    page->confidence = 0;
}

void page_free(struct page *page) {
    buffer_free(&page->text);
    buffer_free(&page->words);
    buffer_free(&page->rules);
    buffer_free(&page->pictures);
}

void page_add_word(struct page *page, struct text_span text, const struct page_word *word) {
    while (text.size > 0 && strchr(" \t\r\n\f\v", text.text[0])) {
        text.text++;
        text.size--;
    }
    while (text.size > 0 && strchr(" \t\r\n\f\v", text.text[text.size - 1])) text.size--;
    if (text.size == 0 || page->text.size + text.size > UINT32_MAX) return;

    struct page_word added = *word;
    added.text = (uint32_t)page->text.size;
    added.size = (uint32_t)text.size;
    buffer_append(&page->text, text.text, text.size);
    buffer_append(&page->words, &added, sizeof added);
}

void page_add_rule(struct page *page, const struct page_rect *box) {
    struct page_rule rule = {.box = *box};
    buffer_append(&page->rules, &rule, sizeof rule);
}

void page_add_picture(struct page *page, const struct page_rect *box) {
    struct page_picture picture = {.box = *box};
    buffer_append(&page->pictures, &picture, sizeof picture);
}
