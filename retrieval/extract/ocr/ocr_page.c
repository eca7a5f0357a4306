/* retrieval/extract/ocr/ocr_page.c: reading the picture of a page. See ocr_page.h. */
#include "retrieval/extract/ocr/ocr_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/ocr/ink.h"

/* A few lines are read first, which tell the language, and whether the page stands on its head. */
enum { SAMPLE_LINES = 5 };
/* Confidences that only text has which stands upright, and only English that is read as English. */
static const float FINE = 70, SURE = 95.5F;
/* Confidence of the language of the page before, and by how much it is ahead of the first one. */
static const float RECENT = 90, AHEAD = 3;

struct page_reading {
    struct ocr_engine *engine;
    const struct ocr_page_job *job;
    struct ocr_view view;
    struct ocr_words words, other;
    int language;
};

static int dpi_of(const struct ocr_view *view) {
    const float x_of_ten_points = 22, of_them = 300;
    float dpi = view->letter > 0 ? of_them * view->letter / x_of_ten_points : of_them;
    return (int)fminf(fmaxf(dpi, 70), 1200);
}

static enum status read_part(struct page_reading *reading, const struct grey *picture, int language,
                             struct ocr_words *words, struct error *e) {
    struct ocr_reading job = {.picture = picture,
                              .language = language,
                              .mode = OCR_PAGE,
                              .dpi = dpi_of(&reading->view),
                              .until = reading->job->until};
    return ocr_engine_read(reading->engine, &job, words, e);
}

/* The sample: rows of the view that hold some lines of letters, cut where there is no ink. */

static size_t *count_rows(const struct ocr_view *view) {
    size_t n = view->letters.size / sizeof(struct ink_box);
    const struct ink_box *boxes = (const struct ink_box *)(const void *)view->letters.data;
    size_t *rows = xcalloc((size_t)view->picture.height + 1, sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        if (!ink_is_letter(&boxes[i], view->letter)) continue;
        for (int y = boxes[i].top; y < boxes[i].bottom; y++) rows[y]++;
    }
    return rows;
}

/* The band of so many rows with the most letters. */
static int find_band(const size_t *rows, int height, int band) {
    size_t sum = 0, best = 0;
    int found = 0;
    for (int y = 0; y < height; y++) {
        sum += rows[y];
        if (y >= band) sum -= rows[y - band];
        if (sum > best) {
            best = sum;
            found = y - band + 1;
        }
    }
    return found > 0 ? found : 0;
}

/* From row y in steps to the row with the least ink within a line's height. */
static int find_gap(const size_t *rows, int height, int y, int step, int reach) {
    int best = y;
    for (int i = 0; i < reach && y + i * step >= 0 && y + i * step < height; i++)
        if (rows[y + i * step] < rows[best]) best = y + i * step;
    return best;
}

static void cut_sample(const struct ocr_view *view, struct grey *sample) {
    int height = view->picture.height, line = (int)(2.8F * view->letter) + 1;
    int band = SAMPLE_LINES * line, top = 0, bottom = height;
    if (view->letter > 0 && band < height) {
        size_t *rows = count_rows(view);
        int start = find_band(rows, height, band);
        top = find_gap(rows, height, start, -1, line);
        bottom = find_gap(rows, height, start + band - 1, 1, line) + 1;
        free(rows);
    }
    grey_cut(&view->picture, 0, top, view->picture.width, bottom - top, sample);
}

/* Turns. */

static void turn_view(struct ocr_view *view, int quarters) {
    struct ink_box *boxes = (struct ink_box *)(void *)view->letters.data;
    size_t n = view->letters.size / sizeof *boxes;
    int width = view->picture.width, height = view->picture.height;
    grey_turn(&view->picture, quarters);
    view->quarters = (view->quarters + quarters) & 3;
    for (size_t i = 0; i < n; i++) {
        struct ink_box b = boxes[i];
        if (quarters == 1)
            boxes[i] = (struct ink_box){height - b.bottom, b.left, height - b.top, b.right};
        if (quarters == 2)
            boxes[i] = (struct ink_box){width - b.right, height - b.bottom, width - b.left,
                                        height - b.top};
        if (quarters == 3)
            boxes[i] = (struct ink_box){b.top, width - b.right, b.bottom, width - b.left};
    }
}

/* Reads a sample; where it makes no sense, the other ways up, and keeps the best. */
static enum status find_way_up(struct page_reading *reading, struct error *e) {
    static const int turns[] = {0, 2, 3, 2}; /* each from the one before */
    float best = -1;
    int best_way = 0, way = 0;
    for (size_t i = 0; i < ARRAY_COUNT(turns) && best < FINE; i++) {
        struct grey sample;
        turn_view(&reading->view, turns[i]);
        way += turns[i];
        cut_sample(&reading->view, &sample);
        enum status status = read_part(reading, &sample, 0, &reading->other, e);
        grey_free(&sample);
        if (status == STATUS_TOO_LARGE) return status;
        float sure = ocr_words_confidence(&reading->other);
        if (sure <= best) continue;
        best = sure;
        best_way = way;
        struct ocr_words kept = reading->words;
        reading->words = reading->other;
        reading->other = kept;
    }
    turn_view(&reading->view, (best_way - way) & 3);
    return STATUS_OK;
}

/* Languages. */

/* Reads the sample in a language, which becomes the page's where it is surer. False: the time is
 * over. */
static bool try_language(struct page_reading *reading, const struct grey *sample, int language,
                         float *best) {
    struct error ignored;
    if (read_part(reading, sample, language, &reading->other, &ignored) == STATUS_TOO_LARGE)
        return false;
    float sure = ocr_words_confidence(&reading->other);
    if (sure > *best) reading->language = language;
    *best = fmaxf(sure, *best);
    return true;
}

/* The language that is surest of the sample. English has the fewest letters: what it is sure of is
 * its own, while others are as sure of English as of themselves. The language of the page before is
 * tried first, and no other where it is much surer than English. */
static void find_language(struct page_reading *reading) {
    const struct ocr_languages *languages = ocr_engine_languages(reading->engine);
    int *recent = ocr_engine_recent(reading->engine);
    float first = ocr_words_confidence(&reading->words), best = first;
    struct grey sample;
    bool goes_on = true, is_own = strcmp(languages->names[0], "eng") == 0 && first >= SURE;
    if (languages->n < 2 || is_own) return;
    cut_sample(&reading->view, &sample);
    if (*recent > 0) goes_on = try_language(reading, &sample, *recent, &best);
    goes_on = goes_on && (reading->language == 0 || best < RECENT || best < first + AHEAD);
    for (int i = 1; i < languages->n && goes_on; i++)
        if (i != *recent) goes_on = try_language(reading, &sample, i, &best);
    grey_free(&sample);
    *recent = reading->language;
}

/* The page. */

static void take_rules(struct page_reading *reading, float points, struct page *page) {
    struct buffer rules = {0};
    struct ocr_view *view = &reading->view;
    if (view->letter > 0) ink_find_rules(&view->picture, view->threshold, view->letter, &rules);
    const struct ink_box *boxes = (const struct ink_box *)(const void *)rules.data;
    size_t n = rules.size / sizeof *boxes;
    for (size_t i = 0; i < n; i++) {
        struct page_rect box = {(float)boxes[i].left, (float)boxes[i].top, (float)boxes[i].right,
                                (float)boxes[i].bottom};
        struct page_rect undone = ocr_view_undo(view, &box);
        page_add_rule(page, &(struct page_rect){undone.left * points, undone.top * points,
                                                undone.right * points, undone.bottom * points});
    }
    ink_erase(&view->picture, boxes, n);
    buffer_free(&rules);
}

/* Specks and the grain of pictures are read as marks, and hardly believed. */
static bool is_noise(const struct ocr_word *word, const char *text) {
    bool letter = false;
    for (uint32_t i = 0; i < word->size; i++) {
        unsigned char byte = (unsigned char)text[i];
        letter = letter || byte >= 0xc3 || (byte >= '0' && byte <= '9') ||
                 ((byte | 32) >= 'a' && (byte | 32) <= 'z');
    }
    return word->confidence < (letter ? 12.0F : 35.0F);
}

static int compare_heights(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

/* The height of most words' lines. */
static float find_height(const struct ocr_word *list, size_t n) {
    float *heights = xmalloc((n + 1) * sizeof *heights);
    for (size_t i = 0; i < n; i++) heights[i] = list[i].height;
    qsort(heights, n, sizeof *heights, compare_heights);
    float height = n > 0 ? heights[n / 2] : 0;
    free(heights);
    return height;
}

/* A line without letters that hang below it is lower than one of the same size that has some. Words
 * get the height of their line, as those of a font have, and lines of about one height the same. */
static void even_heights(struct ocr_words *words) {
    const float lower = 0.65F, higher = 1.25F, above = 0.74F, below = 0.2F;
    size_t n;
    struct ocr_word *list = ocr_words_list(words, &n);
    float most = find_height(list, n);
    for (size_t i = 0; i < n; i++) {
        struct ocr_word *word = &list[i];
        if (word->height > lower * most && word->height < higher * most) word->height = most;
        word->box.top = fminf(word->box.top, word->baseline - above * word->height);
        word->box.bottom = fmaxf(word->box.bottom, word->baseline + below * word->height);
    }
}

static void take_word(const struct page_reading *reading, const struct ocr_word *word, float points,
                      struct page *page) {
    const struct ocr_view *view = &reading->view;
    struct page_rect box = ocr_view_undo(view, &word->box);
    struct page_word added = {
        .box = {box.left * points, box.top * points, box.right * points, box.bottom * points},
        .font_size = word->height / view->scale * points,
        .confidence = (uint8_t)fminf(fmaxf(word->confidence, 1), 100),
        .turned = (uint8_t)((4 - view->quarters) & 3)};
    if (view->quarters == 0) added.baseline = word->baseline / view->scale * points;
    page_add_word(page, (struct text_span){reading->words.text.data + word->text, word->size},
                  &added);
}

static void take_words(struct page_reading *reading, float points, struct page *page) {
    size_t n;
    even_heights(&reading->words);
    const struct ocr_word *list = ocr_words_list(&reading->words, &n);
    for (size_t i = 0; i < n; i++)
        if (!is_noise(&list[i], reading->words.text.data + list[i].text))
            take_word(reading, &list[i], points, page);
    float sure = ocr_words_confidence(&reading->words);
    if (page->words.size > 0) page->confidence = (int)fminf(fmaxf(sure, 1), 100);
}

/* Points of a pixel. A picture that does not say is taken for a sheet of A4. */
static float points_of(const struct page_reading *reading) {
    const float longest = 14400, sheet = 842;
    float longer = (float)reading->view.width;
    if ((float)reading->view.height > longer) longer = (float)reading->view.height;
    float points = reading->job->dpi > 0 ? 72 / reading->job->dpi : sheet / longer;
    return longer * points > longest ? longest / longer : points;
}

static enum status read_all(struct page_reading *reading, struct error *e) {
    return read_part(reading, &reading->view.picture, reading->language, &reading->words, e);
}

enum status ocr_read_page(struct ocr_engine *engine, struct grey *picture,
                          const struct ocr_page_job *job, struct page *page, struct error *e) {
    struct page_reading reading = {.engine = engine, .job = job};
    ocr_view_make(&reading.view, picture);
    float points = points_of(&reading);
    page->width = (float)reading.view.width * points;
    page->height = (float)reading.view.height * points;
    enum status status = STATUS_OK;
    if (reading.view.is_noise)
        status = error_set(e, STATUS_INVALID, "OCR finds no text in its picture, which is noise");
    if (status == STATUS_OK) status = find_way_up(&reading, e);
    bool all = status == STATUS_OK && !job->sample;
    if (all) find_language(&reading);
    if (all) take_rules(&reading, points, page);
    if (all) status = read_all(&reading, e);
    page->tilt = -reading.view.degrees;
    if (status == STATUS_OK) take_words(&reading, points, page);
    ocr_view_free(&reading.view);
    ocr_words_free(&reading.words);
    ocr_words_free(&reading.other);
    return status;
}
