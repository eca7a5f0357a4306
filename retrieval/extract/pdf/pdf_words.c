/* retrieval/extract/pdf/pdf_words.c: the letters of a page, in runs of one font, to words. See
 * pdf_words.h. */
#include "retrieval/extract/pdf/pdf_words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/utf8.h"

/* Fonts. */

/* The names of fonts tell more than their flags, which Poppler does not hand out. */
static bool name_has(const char *name, const char *const *words) {
    for (; *words; words++)
        if (strcasestr(name, *words)) return true;
    return false;
}

static bool is_bold_name(const char *name) {
    static const char *const words[] = {"bold", "black", "heavy",  "semib", "demi",
                                        "-bd",  "cmbx",  "cmssbx", "-medi", NULL};
    return name_has(name, words);
}

static bool is_italic_name(const char *name) {
    static const char *const words[] = {"italic", "oblique", "-it", "slanted", "cmti", NULL};
    return name_has(name, words);
}

static bool is_fixed_name(const char *name) {
    static const char *const words[] = {"courier",      "mono",  "typewriter", "consolas",
                                        "menlo",        "cmtt",  "sftt",       "inconsolata",
                                        "lettergothic", "fixed", "terminal",   NULL};
    return name_has(name, words);
}

/* The widths of a font's letters, in parts of its size. */
struct font_widths {
    const char *name;
    float least, most;
    bool has_narrow, has_wide;
};
struct fonts {
    struct font_widths list[64];
    int n;
};

static struct font_widths *find_font(struct fonts *fonts, const char *name) {
    for (int i = 0; i < fonts->n; i++)
        if (strcmp(fonts->list[i].name, name) == 0) return &fonts->list[i];
    if (fonts->n == (int)ARRAY_COUNT(fonts->list)) return NULL;
    fonts->list[fonts->n] = (struct font_widths){.name = name, .least = INFINITY};
    fonts->n++;
    return &fonts->list[fonts->n - 1];
}

static void weigh_letter(struct font_widths *font, char letter, float width) {
    if ((unsigned char)letter <= ' ' || (unsigned char)letter >= 0x7f) return;
    font->has_narrow |= strchr("iljtf.,;:'|", letter) != NULL;
    font->has_wide |= strchr("mwMWO@&", letter) != NULL;
    font->least = fminf(font->least, width);
    font->most = fmaxf(font->most, width);
}

static bool is_fixed(struct fonts *fonts, const char *name) {
    const struct font_widths *font = find_font(fonts, name);
    if (is_fixed_name(name)) return true;
    return font && font->has_narrow && font->has_wide && font->most < 1.03F * font->least;
}

/* Letters. */

struct page_letter {
    size_t at, size; /* bytes of the text */
    struct page_rect box;
    const struct pdf_run *run; /* NULL: not known */
};

struct letter_list {
    const struct pdf_letters *source;
    struct page_letter *list; /* [n] */
    size_t n;
    struct fonts fonts;
};

static void read_letters(struct letter_list *letters) {
    const struct buffer *text = &letters->source->text;
    const struct page_rect *boxes = (const void *)letters->source->boxes.data;
    const struct pdf_run *runs = (const void *)letters->source->runs.data;
    size_t n_boxes = letters->source->boxes.size / sizeof *boxes,
           n_runs = letters->source->runs.size / sizeof *runs, run = 0;
    letters->list = xcalloc(n_boxes + 1, sizeof *letters->list);
    for (size_t at = 0; at < text->size && letters->n < n_boxes;) {
        int n = utf8_length(text->data + at, text->size - at);
        size_t i = letters->n, size = n > 0 ? (size_t)n : 1;
        while (run < n_runs && runs[run].end <= i) run++;
        bool known = run < n_runs && runs[run].first <= i;
        letters->list[i] = (struct page_letter){at, size, boxes[i], known ? &runs[run] : NULL};
        letters->n++;
        at += size;
    }
}

static const char *name_of(const struct letter_list *letters, const struct pdf_run *run) {
    return run ? letters->source->names.data + run->name : "";
}

static float size_of(const struct page_letter *letter) {
    float height = fminf(rect_height(&letter->box), 2000),
          size = letter->run ? letter->run->size : height;
    bool fits = isfinite(size) && size > 0.4F * height && size < 2.5F * height;
    return fits ? size : height;
}

static bool is_space(const struct letter_list *letters, size_t i) {
    const struct page_letter *letter = &letters->list[i];
    const char *at = letters->source->text.data + letter->at;
    return (letter->size == 1 && (unsigned char)*at <= ' ') ||
           (letter->size == 2 && memcmp(at, "\xc2\xa0", 2) == 0) ||
           (letter->size == 3 && memcmp(at, "\xe3\x80\x80", 3) == 0);
}

static void weigh_fonts(struct letter_list *letters) {
    for (size_t i = 0; i < letters->n; i++) {
        const struct page_letter *letter = &letters->list[i];
        struct font_widths *font = find_font(&letters->fonts, name_of(letters, letter->run));
        float size = size_of(letter);
        if (font && letter->size == 1 && size > 0)
            weigh_letter(font, letters->source->text.data[letter->at],
                         rect_width(&letter->box) / size);
    }
}

/* Words. */

/* Where the letters [first, end) lead, in quarter turns. Letters that lead aslant are taken as
 * turned. */
static int find_turn(const struct letter_list *letters, size_t first, size_t end, int before) {
    const struct page_rect *a = &letters->list[first].box, *b = &letters->list[end - 1].box;
    float across = (b->left + b->right - a->left - a->right) / 2,
          down = (b->top + b->bottom - a->top - a->bottom) / 2;
    float wide = fabsf(across), high = fabsf(down);
    if (end - first < 2 || (wide < 0.01F && high < 0.01F)) return before;
    /* A token may lead into the next line. */
    if (high > 0.35F * wide && (wide < 0.35F * high || across > 0)) return down > 0 ? 1 : 3;
    return across >= 0 ? 0 : 2;
}

/* The way from one letter's end to the next one's start, along the line and across it. */
static void measure_step(const struct page_letter *from, const struct page_letter *to, int turned,
                         float *along, float *across) {
    const struct page_rect *a = &from->box, *b = &to->box;
    float middles_y = (b->top + b->bottom - a->top - a->bottom) / 2,
          middles_x = (b->left + b->right - a->left - a->right) / 2;
    *along = turned == 0   ? b->left - a->right
             : turned == 1 ? b->top - a->bottom
             : turned == 2 ? a->left - b->right
                           : a->top - b->bottom;
    *across = turned % 2 == 0 ? middles_y : middles_x;
}

enum step { STEP_SAME, STEP_GLUED, STEP_APART };

static enum step judge_step(const struct page_letter *from, const struct page_letter *to,
                            int turned) {
    float along, across, size = fmaxf(size_of(from), size_of(to));
    measure_step(from, to, turned, &along, &across);
    if (along > 0.2F * size || along < -1.2F * size || fabsf(across) > 0.9F * size)
        return STEP_APART;
    bool other = from->run != to->run || fabsf(across) > 0.3F * size;
    return other ? STEP_GLUED : STEP_SAME;
}

/* Fonts that declare nonsense about their height. */
static void clamp_box(struct page_rect *box, float size, int turned) {
    float *low = turned % 2 == 0 ? &box->top : &box->left,
          *high = turned % 2 == 0 ? &box->bottom : &box->right;
    float middle = (*low + *high) / 2, height = *high - *low;
    if (height >= 0.6F * size && height <= 1.4F * size) return;
    *low = middle - 0.6F * size;
    *high = middle + 0.6F * size;
}

static void add_word(struct letter_list *letters, size_t first, size_t end, struct page_word word,
                     struct page *page) {
    const struct page_letter *letter = &letters->list[first];
    const char *name = name_of(letters, letter->run);
    word.box = letter->box;
    for (size_t i = first + 1; i < end; i++) {
        const struct page_rect *box = &letters->list[i].box;
        word.box.left = fminf(word.box.left, box->left);
        word.box.top = fminf(word.box.top, box->top);
        word.box.right = fmaxf(word.box.right, box->right);
        word.box.bottom = fmaxf(word.box.bottom, box->bottom);
    }
    word.font_size = size_of(letter);
    word.confidence = 100;
    word.bold = is_bold_name(name);
    word.italic = is_italic_name(name);
    word.fixed_pitch = is_fixed(&letters->fonts, name);
    clamp_box(&word.box, word.font_size, word.turned);
    struct text_span text = {letters->source->text.data + letter->at,
                             letters->list[end - 1].at + letters->list[end - 1].size - letter->at};
    page_add_word(page, text, &word);
}

/* A token without blanks may be several words: of two fonts, or far apart. */
static int add_token(struct letter_list *letters, size_t first, size_t end, int before,
                     struct page *page) {
    int turned = find_turn(letters, first, end, before);
    struct page_word word = {.turned = (uint8_t)turned};
    for (size_t start = first; start < end;) {
        size_t at = start + 1;
        enum step step = STEP_SAME;
        while (at < end) {
            step = judge_step(&letters->list[at - 1], &letters->list[at], turned);
            if (step != STEP_SAME) break;
            at++;
        }
        add_word(letters, start, at, word, page);
        word.glued = step == STEP_GLUED;
        start = at;
    }
    return turned;
}

void pdf_words_add(const struct pdf_letters *source, struct page *page) {
    struct letter_list letters = {.source = source};
    int turned = 0;
    read_letters(&letters);
    weigh_fonts(&letters);
    for (size_t i = 0; i < letters.n;) {
        size_t end = i;
        while (end < letters.n && !is_space(&letters, end)) end++;
        if (end > i) turned = add_token(&letters, i, end, turned, page);
        i = end + 1;
    }
    free(letters.list);
}
