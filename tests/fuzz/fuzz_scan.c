/* tests/fuzz/fuzz_scan.c: any bytes as the list of pages of a TIFF, which is counted and ends; and
 * as the pixels of a small page, whose picture is cleaned, turned and made level: places that it
 * tells lie within. */
#include <math.h>
#include <string.h>

#include "retrieval/extract/ocr/exif.h"
#include "retrieval/extract/ocr/ink.h"
#include "retrieval/extract/ocr/ocr_page.h"
#include "retrieval/extract/ocr/scan_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST = 96 };

static void check_rules(const struct ocr_view *view) {
    struct buffer rules = {0};
    if (view->letter > 0) ink_find_rules(&view->picture, view->threshold, view->letter, &rules);
    const struct ink_box *boxes = (const void *)rules.data;
    size_t n = rules.size / sizeof *boxes;
    for (size_t i = 0; i < n; i++)
        CHECK(boxes[i].left >= 0 && boxes[i].top >= 0 && boxes[i].left < boxes[i].right &&
              boxes[i].top < boxes[i].bottom && boxes[i].right <= view->picture.width &&
              boxes[i].bottom <= view->picture.height);
    struct grey copy;
    grey_cut(&view->picture, 0, 0, view->picture.width, view->picture.height, &copy);
    ink_erase(&copy, boxes, n);
    grey_free(&copy);
    buffer_free(&rules);
}

static void read_pixels(const uint8_t *data, size_t size) {
    struct grey picture;
    struct ocr_view view;
    grey_make(&picture, 1 + data[0] % LONGEST, 1 + data[1] % LONGEST);
    for (size_t i = 0; i < grey_size(&picture); i++) picture.pixels[i] = data[i % size];
    float width = (float)picture.width, height = (float)picture.height;
    ocr_view_make(&view, &picture);
    CHECK(view.scale > 0 && view.scale <= 4 && fabsf(view.degrees) <= 16);
    struct page_rect all = {0, 0, (float)view.picture.width, (float)view.picture.height};
    struct page_rect undone = ocr_view_undo(&view, &all);
    CHECK(undone.left > -width && undone.right < 3 * width + 3 && undone.top > -height &&
          undone.bottom < 3 * height + 3);
    check_rules(&view);
    ocr_view_free(&view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct text_span file = {(const char *)data, size};
    int n = scan_count_pages(file);
    CHECK(n >= 1);
    struct exif_turn turn = exif_find_turn(file);
    CHECK(turn.quarters >= 0 && turn.quarters <= 3);
    if (size >= 4) read_pixels(data, size);
    return 0;
}
