/* retrieval/extract/page/layout_words.c: the words that are seen on a page, turned upright. See
 * layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/page/layout_private.h"

/* A share of the page that a picture covers, from which on it is a scan. */
static const float SCAN_SHARE = 0.5F;

void rect_extend(struct page_rect *box, const struct page_rect *by) {
    box->left = fminf(box->left, by->left);
    box->top = fminf(box->top, by->top);
    box->right = fmaxf(box->right, by->right);
    box->bottom = fmaxf(box->bottom, by->bottom);
}

/* Turning. */

static struct page_rect turn_rect(const struct page_rect *box, int turned,
                                  const struct page *page) {
    switch (turned) {
        case 1:
            return (struct page_rect){box->top, page->width - box->right, box->bottom,
                                      page->width - box->left};
        case 2:
            return (struct page_rect){page->width - box->right, page->height - box->bottom,
                                      page->width - box->left, page->height - box->top};
        case 3:
            return (struct page_rect){page->height - box->bottom, box->left,
                                      page->height - box->top, box->right};
        default: return *box;
    }
}

/* Where a box lies on a page that is shown askew: around its middle, as large as it was and as much
 * larger as its lean takes. */
static struct page_rect tilt_rect(const struct page_rect *box, const struct page *page) {
    float angle = page->tilt * (float)M_PI / 180, along = sinf(angle), across = cosf(angle);
    float x = rect_center(box) - page->width / 2, y = rect_middle(box) - page->height / 2;
    float center = across * x - along * y + page->width / 2;
    float middle = along * x + across * y + page->height / 2;
    float half_width = (across * rect_width(box) + fabsf(along) * rect_height(box)) / 2;
    float half_height = (across * rect_height(box) + fabsf(along) * rect_width(box)) / 2;
    if (page->tilt == 0) return *box;
    return (struct page_rect){center - half_width, middle - half_height, center + half_width,
                              middle + half_height};
}

/* The turn of most of the letters. */
static int find_turn(const struct page *page) {
    size_t n, letters[4] = {0};
    const struct page_word *words = page_words(page, &n);
    int best = 0;
    for (size_t i = 0; i < n; i++) letters[words[i].turned & 3] += words[i].size;
    for (int turned = 1; turned < 4; turned++)
        if (letters[turned] > letters[best]) best = turned;
    return best;
}

/* Words that are seen. */

static bool is_finite(const struct page_rect *box) {
    return isfinite(box->left) && isfinite(box->top) && isfinite(box->right) &&
           isfinite(box->bottom);
}

static bool is_on_page(const struct page *page, const struct page_rect *box) {
    float x = rect_center(box), y = rect_middle(box);
    return is_finite(box) && box->right > box->left && box->bottom > box->top && x >= 0 && y >= 0 &&
           x <= page->width && y <= page->height;
}

/* Whether a picture that covers most of the page lies there: the words under a scan are hidden, and
 * are its text. */
static bool is_scan(const struct page *page) {
    const struct page_picture *pictures = (const void *)page->pictures.data;
    float area = page->width * page->height;
    for (size_t i = 0; i < page->pictures.size / sizeof *pictures; i++)
        if (rect_width(&pictures[i].box) * rect_height(&pictures[i].box) >= SCAN_SHARE * area)
            return true;
    return false;
}

static bool is_seen(const struct page *page, const struct page_word *word, bool scan) {
    return is_on_page(page, &word->box) && (!word->hidden || scan);
}

static struct layout_word make_word(const struct page *page, const struct page_word *word,
                                    int turned) {
    struct layout_word made = {.source = word,
                               .text = page_word_text(page, word),
                               .box = turn_rect(&word->box, turned, page),
                               .shown = tilt_rect(&word->box, page),
                               .glued = word->glued,
                               .askew = page->tilt != 0 || (word->turned & 1)};
    float height = rect_height(&made.box);
    bool known = isfinite(word->font_size) && word->font_size > 0;
    made.size = known ? fminf(word->font_size, 1000) : height;
    return made;
}

static void take_rules(const struct page *page, struct page_words *words) {
    const struct page_rule *rules = (const void *)page->rules.data;
    size_t n = page->rules.size / sizeof *rules;
    words->rules = xcalloc(n + 1, sizeof *words->rules);
    for (size_t i = 0; i < n; i++) {
        if (!is_finite(&rules[i].box)) continue;
        words->rules[words->n_rules].box = turn_rect(&rules[i].box, words->turned, page);
        words->n_rules++;
    }
}

/* The size of most of the letters. */
static int compare_sizes(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static float median_size(const struct page_words *words) {
    float *sizes = xcalloc((size_t)words->n + 1, sizeof *sizes);
    for (int i = 0; i < words->n; i++) sizes[i] = words->list[i].size;
    qsort(sizes, (size_t)words->n, sizeof *sizes, compare_sizes);
    float median = sizes[words->n / 2];
    free(sizes);
    return median;
}

/* Drop capitals. */

static bool is_one_letter(struct text_span text) {
    unsigned char c = text.size > 0 ? (unsigned char)text.text[0] : 0;
    bool letter = (c >= 'A' && c <= 'Z') || c >= 0xc3;
    return letter && utf8_length(text.text, text.size) == (int)text.size;
}

/* The words beside a large letter: the highest, and whether there is a line below it. */
static struct layout_word *find_beside(struct page_words *words, const struct layout_word *cap,
                                       float size) {
    struct layout_word *highest = NULL;
    float lowest = 0;
    for (int i = 0; i < words->n; i++) {
        struct layout_word *word = &words->list[i];
        float y = rect_middle(&word->box);
        bool beside = word != cap && word->size < 0.7F * cap->size &&
                      word->box.left > cap->box.left + 0.3F * rect_width(&cap->box) &&
                      word->box.left < cap->box.right + 1.5F * size &&
                      y > cap->box.top - 0.7F * size && y < cap->box.bottom;
        if (!beside) continue;
        if (highest == NULL || y < rect_middle(&highest->box)) highest = word;
        lowest = fmaxf(lowest, y);
    }
    bool two = highest && lowest > rect_middle(&highest->box) + 0.5F * size;
    return two ? highest : NULL;
}

/* A large letter over two lines or more becomes the first letter of the first of them. */
static void place_capitals(struct page_words *words) {
    enum { MOST = 64 }; /* on a page */
    float size = median_size(words);
    int n = 0;
    for (int i = 0; i < words->n && n < MOST; i++) {
        struct layout_word *cap = &words->list[i];
        if (cap->size < 1.7F * size || !is_one_letter(cap->text)) continue;
        n++;
        struct layout_word *beside = find_beside(words, cap, size);
        if (beside == NULL) continue;
        cap->box.top = beside->box.top;
        cap->box.bottom = beside->box.bottom;
        cap->box.right = fminf(cap->box.right, beside->box.left);
        if (words->turned == 0) {
            cap->shown.top = beside->shown.top;
            cap->shown.bottom = beside->shown.bottom;
        }
        cap->size = beside->size;
        beside->glued = true;
    }
}

void page_words_read(const struct page *page, struct page_words *words) {
    size_t n;
    const struct page_word *all = page_words(page, &n);
    bool scan = is_scan(page);
    *words = (struct page_words){.turned = find_turn(page)};
    bool sideways = words->turned % 2 == 1;
    words->width = sideways ? page->height : page->width;
    words->height = sideways ? page->width : page->height;
    words->list = xcalloc(n + 1, sizeof *words->list);
    for (size_t i = 0; i < n; i++) {
        if ((all[i].turned & 3) != words->turned || !is_seen(page, &all[i], scan)) continue;
        words->list[words->n] = make_word(page, &all[i], words->turned);
        words->n++;
    }
    take_rules(page, words);
    if (words->n > 0) place_capitals(words);
}

void page_words_free(struct page_words *words) {
    free(words->list);
    free(words->rules);
}
