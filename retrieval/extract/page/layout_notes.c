/* retrieval/extract/page/layout_notes.c: notes go behind the paragraph that has their mark, what
 * stands beside the text behind the paragraph that it interrupts, and a sentence goes on in the
 * next column or on the next page. See layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"
#include "retrieval/extract/page/layout_private.h"

struct notes {
    struct page_layout *layout;
    const struct layout_line *lines;
    struct layout_block *blocks;
    int n_lines, n_blocks;
};

static const struct layout_line *first_line(const struct notes *notes,
                                            const struct layout_block *block) {
    return &notes->lines[block->first];
}
static const struct layout_line *last_line(const struct notes *notes,
                                           const struct layout_block *block) {
    return &notes->lines[block->first + block->n - 1];
}

/* Notes. */

/* The number of a mark; symbols have numbers of their own; 0: it is none. */
static int mark_number(struct text_span text) {
    static const char *const symbols[] = {"*", "†", "‡", "**", "§", "¶"};
    int number = 0;
    for (size_t i = 0; i < ARRAY_COUNT(symbols); i++)
        if (span_is(text, symbols[i])) return 10000 + (int)i;
    while (text.size > 1 && strchr(".)]", text.text[text.size - 1])) text.size--;
    if (text.size > 1 && text.text[0] == '[') text.text++, text.size--;
    for (size_t i = 0; i < text.size; i++) {
        if (!is_digit(text.text[i]) || number > 999) return 0;
        number = 10 * number + text.text[i] - '0';
    }
    return number;
}

/* A note begins with its mark: raised, or before a blank. Digits that are part of a number, as
 * "1.", are marks too in small type. */
static int note_number(const struct layout_line *line) {
    return line->n > 1 ? mark_number(line->words[0].text) : 0;
}

static bool is_small(const struct notes *notes, const struct layout_line *line) {
    return line->size < 0.94F * notes->layout->body_size;
}

/* A short line drawn above the notes, over the left of the column. */
static bool has_rule_above(const struct notes *notes, const struct layout_line *line) {
    const struct page_words *on = &notes->layout->words[line->page];
    for (int i = 0; i < on->n_rules; i++) {
        const struct page_rect *rule = &on->rules[i].box;
        float above = line->box.top - rule->bottom;
        bool lies = rect_width(rule) > 8 * rect_height(rule) && rect_width(rule) > 20;
        if (lies && above > -2 && above < 2 * line->size && rule->left < line->box.left + 20 &&
            rect_width(rule) < 0.7F * on->width)
            return true;
    }
    return false;
}

/* The blocks at the foot of a region, from the first small one with a mark on, are notes. */
static void find_notes(struct notes *notes) {
    for (int i = 0; i < notes->n_blocks; i++) {
        struct layout_block *block = &notes->blocks[i];
        const struct layout_line *line = first_line(notes, block);
        bool plain =
            block->table < 0 && (block->kind == BLOCK_PARAGRAPH || block->kind == BLOCK_LIST_ITEM);
        if (!plain || line->aside) continue;
        const struct layout_block *before = i > 0 ? &notes->blocks[i - 1] : NULL;
        bool behind_note = before && before->kind == BLOCK_FOOTNOTE &&
                           first_line(notes, before)->page == line->page &&
                           first_line(notes, before)->region == line->region &&
                           fabsf(first_line(notes, before)->size - line->size) < 0.5F;
        float height = notes->layout->words[line->page].height;
        int number = note_number(line);
        bool low = line->box.top > 0.45F * height;
        bool begins = number > 0 && low && (is_small(notes, line) || has_rule_above(notes, line));
        if (!begins && !behind_note) continue;
        if (behind_note && number == 0) {
            bool small = is_small(notes, line);
            if (!small) continue;
        }
        block->kind = BLOCK_FOOTNOTE;
        block->note = number;
    }
}

/* The block on the same page in which the mark stands, raised. */
static int find_marked(const struct notes *notes, int note) {
    const struct layout_block *block = &notes->blocks[note];
    int page = first_line(notes, block)->page;
    for (int i = note - 1; i >= 0 && last_line(notes, &notes->blocks[i])->page >= page; i--) {
        const struct layout_block *other = &notes->blocks[i];
        if (other->kind == BLOCK_FOOTNOTE || other->table >= 0) continue;
        for (int j = other->first; j < other->first + other->n; j++)
            for (int k = 0; k < notes->lines[j].n; k++) {
                const struct layout_word *word = &notes->lines[j].words[k];
                if (word->raised && mark_number(word->text) == block->note) return i;
            }
    }
    return -1;
}

/* Sentences that go on. */

static bool starts_small(const struct layout_line *line) {
    int32_t c = ' ';
    if (line->n > 0) utf8_read(line->words[0].text.text, line->words[0].text.size, &c);
    return (c >= 'a' && c <= 'z') || (c >= 0xdf && c <= 0xff) || (c >= 0xfb00 && c <= 0xfb06);
}

static bool ends_open(const struct layout_line *line) {
    static const char *const hyphens[] = {"-", "‐", "\xc2\xad", ",", NULL};
    return line_ends_with(line, hyphens) || !line_ends_sentence(line);
}

static bool ends_divided(const struct layout_line *line) {
    static const char *const hyphens[] = {"-", "‐", "\xc2\xad", NULL};
    return line_ends_with(line, hyphens);
}

/* Whether block `next` takes up the sentence that `open` leaves. */
static bool takes_up(const struct notes *notes, const struct layout_block *open,
                     const struct layout_block *next) {
    const struct layout_line *last = last_line(notes, open), *first = first_line(notes, next);
    bool fits = fabsf(last->size - first->size) < 0.08F * last->size && last->bold == first->bold &&
                last->fixed == first->fixed;
    if (!fits || first->page - last->page > 1 || !ends_open(last)) return false;
    bool elsewhere = first->region != last->region || first->page != last->page;
    bool full = last->box.right > last->right - 0.25F * (last->right - last->left);
    if (starts_small(first)) return elsewhere || next->first > open->first + open->n;
    return elsewhere && full && next->kind == BLOCK_PARAGRAPH &&
           (ends_divided(last) || first->box.left < first->left + 0.8F * first->size);
}

static bool may_be_open(const struct layout_block *block) {
    return block->table < 0 && (block->kind == BLOCK_PARAGRAPH || block->kind == BLOCK_LIST_ITEM);
}

static void find_sentences(struct notes *notes) {
    int open = -1, open_note = -1;
    for (int i = 0; i < notes->n_blocks; i++) {
        struct layout_block *block = &notes->blocks[i];
        bool aside = first_line(notes, block)->aside;
        if (block->kind == BLOCK_FOOTNOTE) {
            bool goes_on = open_note >= 0 && block->note == 0 &&
                           takes_up(notes, &notes->blocks[open_note], block);
            if (goes_on) notes->blocks[open_note].goes_on = i;
            open_note = i;
        }
        if (aside || !may_be_open(block)) {
            bool ends = block->kind == BLOCK_HEADING && !aside;
            if (ends) open = -1;
            continue;
        }
        if (open >= 0 && takes_up(notes, &notes->blocks[open], block))
            notes->blocks[open].goes_on = i;
        open = i;
    }
}

/* Blocks that are written behind others. */

static int *find_heads(const struct notes *notes) {
    int *head = xcalloc((size_t)notes->n_blocks + 1, sizeof *head);
    for (int i = 0; i < notes->n_blocks; i++) head[i] = i;
    for (int i = 0; i < notes->n_blocks; i++)
        if (notes->blocks[i].goes_on >= 0) head[notes->blocks[i].goes_on] = head[i];
    return head;
}

static void put_behind(struct notes *notes, int block, int host) {
    int *at = &notes->blocks[host].first_behind;
    while (*at >= 0) at = &notes->blocks[*at].next_behind;
    *at = block;
    notes->blocks[block].behind = host;
}

static void place_notes(struct notes *notes) {
    int *head = find_heads(notes), last = -1;
    for (int i = 0; i < notes->n_blocks; i++) {
        struct layout_block *block = &notes->blocks[i];
        if (head[i] != i) continue; /* the part of another */
        if (block->kind == BLOCK_FOOTNOTE) {
            int marked = block->note > 0 ? find_marked(notes, i) : -1;
            int host = marked >= 0 ? head[marked] : last;
            if (host >= 0) put_behind(notes, i, host);
        } else if (block->table < 0) {
            last = i;
        }
    }
    free(head);
}

void layout_place_notes(struct page_layout *layout) {
    struct notes notes = {.layout = layout};
    notes.lines = layout_lines(layout, &notes.n_lines);
    notes.blocks = layout_blocks(layout, &notes.n_blocks);
    find_notes(&notes);
    find_sentences(&notes);
    place_notes(&notes);
}
