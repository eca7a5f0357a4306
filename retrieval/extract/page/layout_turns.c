/* retrieval/extract/page/layout_turns.c: a page whose words lead several ways, as one with a table
 * on its side below an upright title, becomes a page for each way. See page_layout.h. */
#include <stdlib.h>

#include "retrieval/extract/page/page_layout.h"

/* Fewer words on their side than so many are a watermark, a stamp at the margin, or the names of an
 * axis. */
enum { MANY_WORDS = 25, TURNS = 4 };

struct page_turns {
    size_t words[TURNS], letters[TURNS];
    int most; /* the turn of most letters */
};

static struct page_turns count_turns(const struct page *page) {
    struct page_turns turns = {0};
    size_t n;
    const struct page_word *words = page_words(page, &n);
    for (size_t i = 0; i < n; i++) {
        turns.words[words[i].turned & 3]++;
        turns.letters[words[i].turned & 3] += words[i].size;
    }
    for (int turned = 1; turned < TURNS; turned++)
        if (turns.letters[turned] > turns.letters[turns.most]) turns.most = turned;
    return turns;
}

/* Whether words of such a turn, beside those of most letters, are read. */
static bool is_part(const struct page_turns *turns, int turned) {
    return turned != turns->most && turns->words[turned] >= (turned == 0 ? 1 : MANY_WORDS);
}

/* Takes the words of a turn from the page; the rest of it is copied. */
static void move_words(struct page *from, int turned, struct page *to) {
    size_t n, kept = 0;
    struct page_word *words = page_words(from, &n);
    *to = (struct page){.number = from->number,
                        .width = from->width,
                        .height = from->height,
                        .confidence = from->confidence,
                        .tilt = from->tilt};
    buffer_append(&to->text, from->text.data, from->text.size);
    buffer_append(&to->rules, from->rules.data, from->rules.size);
    buffer_append(&to->pictures, from->pictures.data, from->pictures.size);
    for (size_t i = 0; i < n; i++) {
        if ((words[i].turned & 3) == turned) {
            buffer_append(&to->words, &words[i], sizeof words[i]);
        } else {
            words[kept] = words[i];
            kept++;
        }
    }
    from->words.size = kept * sizeof *words;
}

/* The upright words come first. */
static void add_parts(struct pages *pages, struct page *page) {
    struct page_turns turns = count_turns(page);
    struct page parts[TURNS];
    for (int turned = 0; turned < TURNS; turned++)
        if (is_part(&turns, turned)) move_words(page, turned, &parts[turned]);
    for (int turned = 0; turned < TURNS; turned++) {
        if (turned == turns.most) *pages_add(pages, page->number) = *page;
        if (is_part(&turns, turned)) *pages_add(pages, page->number) = parts[turned];
    }
}

void pages_part_turns(struct pages *pages) {
    struct pages parted = {.bookmarks = pages->bookmarks, .titles = pages->titles};
    for (int i = 0; i < pages->n; i++) add_parts(&parted, &pages->list[i]);
    free(pages->list);
    *pages = parted;
}
