/* retrieval/extract/page/layout_kinds.c: what the blocks are: headings, captions, contents. See
 * layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/text.h"
#include "retrieval/extract/page/layout_private.h"

enum { MAX_SIZES = 6, HEADING_BYTES = 200, MOST_COMPARED = 5000000 };

struct kinds {
    struct page_layout *layout;
    const struct layout_line *lines;
    struct layout_block *blocks;
    int n_lines, n_blocks;
    float body;               /* size of most letters */
    bool all_bold, all_fixed; /* so is most of the document */
    float sizes[MAX_SIZES];   /* of headings, the largest first */
    int n_sizes;
};

static size_t line_letters(const struct layout_line *line) {
    size_t letters = 0;
    for (int i = 0; i < line->n; i++) letters += line->words[i].text.size;
    return letters;
}

/* Sizes in halves of a point, and how many letters have each. */
static void find_body(struct kinds *kinds) {
    enum { SIZES = 200 };
    size_t letters[SIZES] = {0}, all = 0, bold = 0, fixed = 0;
    int best = 20;
    for (int i = 0; i < kinds->n_lines; i++) {
        const struct layout_line *line = &kinds->lines[i];
        size_t n = line_letters(line);
        int size = (int)(2 * line->size + 0.5F);
        letters[max_int(0, min_int(size, SIZES - 1))] += n;
        all += n;
        bold += line->bold ? n : 0;
        fixed += line->fixed ? n : 0;
    }
    for (int size = 0; size < SIZES; size++)
        if (letters[size] > letters[best]) best = size;
    kinds->body = (float)best / 2;
    kinds->all_bold = 2 * bold > all;
    kinds->all_fixed = 2 * fixed > all;
}

static const struct layout_line *first_line(const struct kinds *kinds,
                                            const struct layout_block *block) {
    return &kinds->lines[block->first];
}
static const struct layout_line *last_line(const struct kinds *kinds,
                                           const struct layout_block *block) {
    return &kinds->lines[block->first + block->n - 1];
}

static size_t block_letters(const struct kinds *kinds, const struct layout_block *block) {
    size_t letters = 0;
    for (int i = block->first; i < block->first + block->n; i++)
        letters += line_letters(&kinds->lines[i]);
    return letters;
}

/* Contents. */

/* A title, dots or not, and the number of a page at the end of the line. */
static bool is_page_number(struct text_span text) {
    for (size_t i = 0; i < text.size; i++)
        if (!is_digit(text.text[i]) && strchr("ivxlc", text.text[i]) == NULL) return false;
    return text.size > 0 && text.size < 6;
}

static bool has_leader(const struct layout_line *line) {
    int dots = 0;
    for (int i = 0; i < line->n; i++) {
        struct text_span text = line->words[i].text;
        size_t end = 0;
        while (end < text.size && text.text[text.size - 1 - end] == '.') end++;
        if (end >= 4 || (text.size >= 4 && memmem(text.text, text.size, "....", 4))) return true;
        dots += text_is_leader(text);
    }
    return dots >= 3;
}

static bool is_entry(const struct layout_line *line) {
    if (line->n < 2) return false;
    const struct layout_word *last = &line->words[line->n - 1], *before = last - 1;
    bool number = is_page_number(last->text),
         far = last->box.left - before->box.right > 1.5F * line->size;
    return has_leader(line) || (number && far);
}

static bool names_contents(const struct layout_line *line) {
    static const char *const names[] = {"contents", "inhalt",   "inhaltsverzeichnis",
                                        "sommaire", "matières", "spis",
                                        "índice",   "indice"};
    for (int i = 0; i < line->n && line->n <= 4; i++)
        for (size_t j = 0; j < ARRAY_COUNT(names); j++)
            if (line->words[i].text.size == strlen(names[j]) &&
                strncasecmp(line->words[i].text.text, names[j], strlen(names[j])) == 0)
                return true;
    return false;
}

/* Blocks of which most lines are entries; without dots they stand under a heading that says so, or
 * beside others. */
static void find_contents(struct kinds *kinds) {
    bool in_contents = false;
    for (int i = 0; i < kinds->n_blocks; i++) {
        struct layout_block *block = &kinds->blocks[i];
        int entries = 0, leaders = 0;
        if (block->table >= 0) continue;
        for (int j = block->first; j < block->first + block->n; j++) {
            entries += is_entry(&kinds->lines[j]);
            leaders += has_leader(&kinds->lines[j]);
        }
        bool most = 2 * entries >= block->n && entries > 0;
        if (most && (in_contents || leaders > 0 || entries >= 3))
            block->kind = BLOCK_CONTENTS;
        else if (names_contents(first_line(kinds, block)))
            in_contents = true;
        else if (block_letters(kinds, block) > 60)
            in_contents = false;
    }
}

/* Captions. */

bool words_are_caption(const struct layout_word *words, int n) {
    static const char *const names[] = {"Figure",    "Fig.", "FIGURE",  "Table",   "TABLE",
                                        "Abbildung", "Abb.", "Tabelle", "Tab.",    "Tableau",
                                        "Rysunek",   "Rys.", "Tabela",  "Listing", "Chart"};
    if (n < 2) return false;
    struct text_span number = words[1].text;
    bool numbered = is_digit(number.text[0]) || (number.size > 1 && is_digit(number.text[1]));
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (numbered && span_is(words[0].text, names[i])) {
            char last = number.text[number.size - 1];
            return last == ':' || last == '.' || n == 2 || words[1].source->bold ||
                   words[0].source->bold || words[0].source->italic;
        }
    return false;
}

/* Headings. */

static bool has_letter(const struct layout_line *line) {
    for (int i = 0; i < line->n; i++)
        for (size_t j = 0; j < line->words[i].text.size; j++) {
            unsigned char c = (unsigned char)line->words[i].text.text[j];
            if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c >= 0xc0) return true;
        }
    return false;
}

static bool is_shouted(const struct layout_line *line) {
    size_t letters = 0;
    for (int i = 0; i < line->n; i++)
        for (size_t j = 0; j < line->words[i].text.size; j++) {
            char c = line->words[i].text.text[j];
            if (c >= 'a' && c <= 'z') return false;
            letters += c >= 'A' && c <= 'Z';
        }
    return letters > 3;
}

/* "2.1" before a title: its depth; 0: no number. */
static int number_depth(const struct layout_line *line) {
    struct text_span text = line->words[0].text;
    int depth = 1;
    size_t i = 0;
    if (line->n < 2 || !is_digit(text.text[0])) return 0;
    for (; i < text.size; i++) {
        if (text.text[i] == '.' && i + 1 < text.size && is_digit(text.text[i + 1])) depth++;
        if (text.text[i] != '.' && !is_digit(text.text[i])) return 0;
    }
    return depth;
}

static bool is_large(const struct kinds *kinds, const struct layout_line *line) {
    return line->size > 1.12F * kinds->body;
}

/* Whether a block may be a heading by its looks. */
static bool looks_like_heading(const struct kinds *kinds, int i) {
    const struct layout_block *block = &kinds->blocks[i];
    const struct layout_line *line = first_line(kinds, block);
    bool plain = block->kind == BLOCK_PARAGRAPH || block->kind == BLOCK_LIST_ITEM;
    if (!plain || block->table >= 0 || block->n > 3 || !has_letter(line)) return false;
    if (block_letters(kinds, block) > HEADING_BYTES ||
        line_ends_with(last_line(kinds, block), (const char *const[]){",", ";", NULL}))
        return false;
    static const char *const stops[] = {".", NULL};
    bool sentence = line_ends_with(last_line(kinds, block), stops) && block->n > 0 &&
                    block_letters(kinds, block) > 60;
    if (is_large(kinds, line)) return !sentence || line->size > 1.3F * kinds->body;
    bool ends = line_ends_with(last_line(kinds, block), stops);
    bool strong = line->bold && !kinds->all_bold;
    bool shouted = is_shouted(line) && line->n <= 8;
    if (line->size < 0.97F * kinds->body || block->n > 2 || ends) return false;
    return strong || (shouted && line->n > 0);
}

static void note_size(struct kinds *kinds, float size) {
    int at = 0;
    while (at < kinds->n_sizes && kinds->sizes[at] > size + 0.4F) at++;
    if (at < kinds->n_sizes && fabsf(kinds->sizes[at] - size) <= 0.4F) return;
    if (at == MAX_SIZES) return;
    int n = min_int(kinds->n_sizes, MAX_SIZES - 1);
    memmove(kinds->sizes + at + 1, kinds->sizes + at, (size_t)(n - at) * sizeof *kinds->sizes);
    kinds->sizes[at] = size;
    kinds->n_sizes = n + 1;
}

static int level_of(const struct kinds *kinds, const struct layout_line *line) {
    int level = 1, depth = number_depth(line);
    while (level <= kinds->n_sizes && kinds->sizes[level - 1] > line->size + 0.4F) level++;
    if (!is_large(kinds, line) && depth > 1) level += depth - 1;
    return min_int(level, MARK_LEVELS);
}

/* Whether text follows: what stands alone at the end, or within rows, heads nothing. */
static bool heads_something(const struct kinds *kinds, int i) { return i + 1 < kinds->n_blocks; }

static void find_headings(struct kinds *kinds) {
    for (int i = 0; i < kinds->n_blocks; i++) {
        struct layout_block *block = &kinds->blocks[i];
        if (!looks_like_heading(kinds, i) || !heads_something(kinds, i)) continue;
        block->kind = BLOCK_HEADING;
        if (is_large(kinds, first_line(kinds, block)))
            note_size(kinds, first_line(kinds, block)->size);
    }
    for (int i = 0; i < kinds->n_blocks; i++)
        if (kinds->blocks[i].kind == BLOCK_HEADING)
            kinds->blocks[i].level = level_of(kinds, first_line(kinds, &kinds->blocks[i]));
}

/* Bookmarks name headings, and their levels. */

static void append_folded(struct buffer *out, struct text_span text) {
    for (size_t i = 0; i < text.size; i++) {
        char c = text.text[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        bool kept = (c >= 'a' && c <= 'z') || is_digit(c) || (c & 0x80);
        if (kept) buffer_append(out, &c, 1);
    }
}

static bool block_is_titled(const struct kinds *kinds, const struct layout_block *block,
                            const struct buffer *title) {
    struct buffer text = {0};
    for (int i = block->first; i < block->first + block->n && text.size <= title->size; i++)
        for (int j = 0; j < kinds->lines[i].n; j++)
            append_folded(&text, kinds->lines[i].words[j].text);
    bool same = text.size >= title->size && title->size > 0 &&
                memcmp(text.data + text.size - title->size, title->data, title->size) == 0 &&
                text.size <= title->size + 8; /* a number before it */
    buffer_free(&text);
    return same;
}

/* The first block of each page: blocks are looked for from there. */
static void use_bookmarks(struct kinds *kinds) {
    const struct pages *pages = kinds->layout->pages;
    const struct page_bookmark *bookmarks = (const void *)pages->bookmarks.data;
    size_t n = pages->bookmarks.size / sizeof *bookmarks;
    struct buffer title = {0};
    int from = 0, compared = 0;
    for (size_t i = 0; i < n && compared < MOST_COMPARED; i++) {
        if (bookmarks[i].level == 0) continue;
        /* Tags come page by page behind the file's own contents. */
        if (i > 0 && bookmarks[i].page < bookmarks[i - 1].page) from = 0;
        buffer_clear(&title);
        append_folded(
            &title, (struct text_span){pages->titles.data + bookmarks[i].title, bookmarks[i].size});
        bool back = from < kinds->n_blocks &&
                    pages->list[first_line(kinds, &kinds->blocks[from])->page].number >
                        (int)bookmarks[i].page;
        if (back) continue;
        for (int j = from; j < kinds->n_blocks; j++) {
            struct layout_block *block = &kinds->blocks[j];
            int number = pages->list[first_line(kinds, block)->page].number;
            compared++;
            if (number > (int)bookmarks[i].page) break;
            if (number < (int)bookmarks[i].page) {
                from = j;
                continue;
            }
            bool plain = block->kind == BLOCK_PARAGRAPH || block->kind == BLOCK_HEADING ||
                         block->kind == BLOCK_LIST_ITEM;
            if (!plain || block->table >= 0 || block->n > 4 ||
                !block_is_titled(kinds, block, &title))
                continue;
            block->kind = BLOCK_HEADING;
            block->level = max_int(1, min_int((int)bookmarks[i].level, MARK_LEVELS));
            break;
        }
    }
    buffer_free(&title);
}

static void find_captions(struct kinds *kinds) {
    for (int i = 0; i < kinds->n_blocks; i++) {
        struct layout_block *block = &kinds->blocks[i];
        bool plain = block->kind == BLOCK_PARAGRAPH || block->kind == BLOCK_HEADING;
        if (plain && block->table < 0 && block->n < 8 &&
            words_are_caption(first_line(kinds, block)->words, first_line(kinds, block)->n))
            block->kind = BLOCK_CAPTION;
    }
}

/* Where a whole document is typed on a typewriter, its text is prose. */
static void free_typed(struct kinds *kinds) {
    for (int i = 0; i < kinds->n_blocks; i++)
        if (kinds->all_fixed && kinds->blocks[i].kind == BLOCK_CODE)
            kinds->blocks[i].kind = BLOCK_PARAGRAPH;
}

void layout_find_kinds(struct page_layout *layout) {
    struct kinds kinds = {.layout = layout};
    kinds.lines = layout_lines(layout, &kinds.n_lines);
    kinds.blocks = layout_blocks(layout, &kinds.n_blocks);
    find_body(&kinds);
    layout->body_size = kinds.body;
    free_typed(&kinds);
    find_contents(&kinds);
    find_headings(&kinds);
    find_captions(&kinds);
    use_bookmarks(&kinds);
}
