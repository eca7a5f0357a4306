/* tests/fuzz/fuzz_page_layout.c: any pages are laid out: the text is UTF-8, its marks lead nowhere
 * else, and any part of it has its rectangles. The first byte says whether the others are records
 * of pages, as a parser's process writes them, or a few numbers for each word. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/page/page_needs.h"
#include "retrieval/extract/page/page_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { THING_BYTES = 8, MOST_THINGS = 3000, RANGES = 16 };

static const char *const texts[] = {"the", "harbour", "Figure", "1",  "12.5",     "-",
                                    "•",   "well-",   "known",  "1.", "Contents", ".....",
                                    "A",   "2019,",   "x.",     "ﬁn", "*",        "=",
                                    "(b)", "|",       "iv",     "$",  "…",        "É"};

/* A word, a rule, a picture or a new page of eight bytes. */
static void add_thing(struct pages *pages, const uint8_t *bytes) {
    if (bytes[0] == 0xff || pages->n == 0) {
        struct page *added = pages_add(pages, pages->n + 1);
        added->width = 600;
        added->height = 800;
    }
    struct page *page = &pages->list[pages->n - 1];
    float left = (float)bytes[1] * 2.4F, top = (float)bytes[2] * 3.2F,
          size = 2 + (float)(bytes[3] & 31);
    struct page_rect box = {left, top, left + (float)bytes[4], top + size};
    struct page_word word = {.box = box,
                             .font_size = size,
                             .confidence = 100,
                             .bold = bytes[5] & 1,
                             .fixed_pitch = bytes[5] >> 1 & 1,
                             .glued = bytes[5] >> 2 & 1,
                             .hidden = bytes[5] >> 3 & 1,
                             .turned = bytes[5] >> 6 & 3};
    const char *text = texts[bytes[6] % ARRAY_COUNT(texts)];
    if (bytes[7] == 0) {
        box.bottom = box.top + 0.5F;
        page_add_rule(page, &box);
    } else if (bytes[7] == 1) {
        box = (struct page_rect){left, top, left + 0.5F, top + (float)bytes[4]};
        page_add_rule(page, &box);
    } else if (bytes[7] == 2) {
        page_add_picture(page, &box);
    } else {
        page_add_word(page, (struct text_span){text, strlen(text)}, &word);
    }
}

static void check_ranges(const struct document_text *out, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < RANGES && size > 0 && out->text.size > 0; i++) {
        struct buffer boxes = {0};
        uint64_t start = data[i % size] * (uint64_t)out->text.size / 256,
                 end = start + data[(i * 7 + 1) % size];
        place_find_boxes(marks_of(&out->marks), start, end, &boxes);
        const struct page_box *list = (const void *)boxes.data;
        for (size_t j = 0; j < boxes.size / sizeof *list; j++) CHECK(list[j].page > 0);
        buffer_free(&boxes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pages pages = {0};
    struct document_text out = {0};
    struct error e;
    bool is_record = size > 0 && data[0] % 2 == 0, sound = true;
    if (is_record)
        sound = records_read((struct text_span){(const char *)data + 1, size - 1}, &pages, &e) ==
                STATUS_OK;
    for (size_t i = 1; !is_record && i + THING_BYTES <= size && i < MOST_THINGS * THING_BYTES;
         i += THING_BYTES)
        add_thing(&pages, data + i);
    for (int i = 0; sound && i < pages.n; i++) page_judge(&pages.list[i]);

    if (sound) pages_part_turns(&pages);
    if (sound) pages_lay_out(&pages, &out);
    CHECK(out.text.size == 0 || utf8_is_valid(out.text.data, out.text.size));
    CHECK(out.text.size == 0 || memchr(out.text.data, '\0', out.text.size) == NULL);
    CHECK(marks_fault(marks_of(&out.marks), out.text.size) == NULL);
    check_ranges(&out, data, size);
    document_text_free(&out);
    pages_free(&pages);
    return 0;
}
