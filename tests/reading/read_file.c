/* tests/reading/read_file.c: prints what is read of a file, as one object of JSON: its documents,
 * each with its text, its blocks, its boxes and what was lost. tests/reading/score.py asks it. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "config/sandbox/sandbox.h"
#include "retrieval/extract/extract.h"

static json_t *read_blocks(const struct document_text *text) {
    json_t *blocks = json_array();
    struct mark_span marks = marks_of(&text->marks);
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.kind == MARK_BLOCK)
            json_array_append_new(blocks, json_pack("[i, i]", mark.at, mark.level));
    }
    return blocks;
}

/* Each line of a page: bytes of the text, page, its size, left, top, right, bottom. */
static json_t *read_boxes(const struct document_text *text) {
    json_t *boxes = json_array();
    struct mark_span marks = marks_of(&text->marks);
    struct mark start = {0};
    double page = 0, width = 0, height = 0;
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.kind == MARK_PAGE) page = mark.value;
        if (mark.kind == MARK_PAGE_SIZE) {
            width = (double)mark_point_first(mark.value);
            height = (double)mark_point_second(mark.value);
        }
        if (mark.kind == MARK_BOX) start = mark;
        if (mark.kind != MARK_BOX_END) continue;
        json_array_append_new(
            boxes,
            json_pack("[i, i, f, f, f, f, f, f, f]", start.at, mark.at, page, width, height,
                      (double)mark_point_first(start.value), (double)mark_point_second(start.value),
                      (double)mark_point_first(mark.value), (double)mark_point_second(mark.value)));
    }
    return boxes;
}

/* The rectangles of a passage, as the API gives them. */
static json_t *find_boxes(const struct document_text *text, size_t start, size_t end) {
    struct buffer found = {0};
    json_t *boxes = json_array();
    place_find_boxes(marks_of(&text->marks), start, end, &found);
    const struct page_box *list = (const void *)found.data;
    for (size_t i = 0; i < found.size / sizeof *list; i++)
        json_array_append_new(
            boxes, json_pack("[i, f, f, f, f, f, f]", list[i].page, (double)list[i].page_width,
                             (double)list[i].page_height, (double)list[i].rect.left,
                             (double)list[i].rect.top, (double)list[i].rect.right,
                             (double)list[i].rect.bottom));
    buffer_free(&found);
    return boxes;
}

struct printing {
    json_t *documents;
    const char **sentences; /* whose boxes are asked for */
    int n;
};

static enum status take(void *context, const char *part, const struct document_text *text,
                        struct error *e) {
    struct printing *printing = context;
    (void)e;
    json_t *found = json_object();
    for (int i = 0; i < printing->n; i++) {
        const char *sentence = printing->sentences[i];
        const char *at = text->text.data ? strstr(text->text.data, sentence) : NULL;
        size_t start = at ? (size_t)(at - text->text.data) : 0;
        if (at)
            json_object_set_new(found, sentence, find_boxes(text, start, start + strlen(sentence)));
    }
    json_array_append_new(
        printing->documents,
        json_pack("{s:s, s:s#, s:s#, s:s#, s:o, s:o, s:o}", "part", part, "text",
                  text->text.data ? text->text.data : "", (int)text->text.size, "title",
                  text->title.data ? text->title.data : "", (int)text->title.size, "losses",
                  text->losses.data ? text->losses.data : "", (int)text->losses.size, "blocks",
                  read_blocks(text), "boxes", read_boxes(text), "found", found));
    return STATUS_OK;
}

static void skip(void *context, const struct error *why) {
    (void)context;
    fprintf(stderr, "skipped: %s\n", why->text);
}

int main(int argc, char **argv) {
    struct error e = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: read_file FILE [SENTENCE ...]\n");
        return 2;
    }
    struct printing printing = {
        .documents = json_array(), .sentences = (const char **)&argv[2], .n = argc - 2};
    struct document_taker taker = {.context = &printing, .take = take, .skip = skip};
    struct extract_source source = {.path = argv[1], .kind = document_kind(argv[1])};
    struct extract_limits limits = extract_limits_of((size_t)64 << 20);
    enum status status = sandbox_start(NULL, &e);
    double began = time_now();
    if (status == STATUS_OK) status = document_extract_all(&source, &limits, &taker, &e);
    json_t *all = json_pack("{s:o, s:f, s:s, s:i}", "documents", printing.documents, "seconds",
                            time_now() - began, "error", status ? e.text : "", "status", status);
    json_dumpf(all, stdout, JSON_COMPACT);
    json_decref(all);
    return status == STATUS_OK ? 0 : 1;
}
