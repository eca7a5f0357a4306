/* tests/reading/read_file.c: prints what is read of a file, as one object of JSON: its documents,
 * each with its text, its blocks, its boxes and what was lost. tests/reading/score.py asks it. */
#include <stdio.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "config/sandbox/sandbox.h"
#include "retrieval/extract/extract.h"

/* Each block: where it begins, and its kind. */
static void put_blocks(struct json_writer *w, const struct document_text *text) {
    struct mark_span marks = marks_of(&text->marks);
    put_key_array(w, "blocks");
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.kind != MARK_BLOCK) continue;
        put_array(w);
        put_int(w, mark.at);
        put_int(w, mark.level);
        put_array_end(w);
    }
    put_array_end(w);
}

static void put_box(struct json_writer *w, const struct page_box *box) {
    put_int(w, box->page);
    put_float(w, box->page_width);
    put_float(w, box->page_height);
    put_float(w, box->rect.left);
    put_float(w, box->rect.top);
    put_float(w, box->rect.right);
    put_float(w, box->rect.bottom);
}

/* Each line of a page: bytes of the text, then page, its size, left, top, right, bottom. */
static void put_lines(struct json_writer *w, const struct document_text *text) {
    struct mark_span marks = marks_of(&text->marks);
    struct mark start = {0};
    struct page_box box = {0};
    put_key_array(w, "boxes");
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        float first = mark_point_first(mark.value), second = mark_point_second(mark.value);
        if (mark.kind == MARK_PAGE) box.page = mark.value;
        if (mark.kind == MARK_PAGE_SIZE) {
            box.page_width = first;
            box.page_height = second;
        }
        if (mark.kind == MARK_BOX) start = mark;
        if (mark.kind != MARK_BOX_END) continue;
        box.rect = (struct page_rect){mark_point_first(start.value), mark_point_second(start.value),
                                      first, second};
        put_array(w);
        put_int(w, start.at);
        put_int(w, mark.at);
        put_box(w, &box);
        put_array_end(w);
    }
    put_array_end(w);
}

/* The rectangles of a passage, as the API gives them. */
static void put_found(struct json_writer *w, const struct document_text *text, size_t start,
                      size_t end) {
    struct buffer found = {0};
    place_find_boxes(marks_of(&text->marks), start, end, &found);
    const struct page_box *list = (const void *)found.data;
    put_array(w);
    for (size_t i = 0; i < found.size / sizeof *list; i++) {
        put_array(w);
        put_box(w, &list[i]);
        put_array_end(w);
    }
    put_array_end(w);
    buffer_free(&found);
}

struct printing {
    struct json_writer *w;
    char **sentences; /* [n] whose boxes are asked for */
    int n;
};

static void put_sentences(struct printing *printing, const struct document_text *text) {
    put_key_object(printing->w, "found");
    for (int i = 0; i < printing->n; i++) {
        const char *sentence = printing->sentences[i],
                   *at = text->text.data ? strstr(text->text.data, sentence) : NULL;
        if (at == NULL) continue;
        size_t start = (size_t)(at - text->text.data);
        put_key(printing->w, sentence);
        put_found(printing->w, text, start, start + strlen(sentence));
    }
    put_object_end(printing->w);
}

static void put_text(struct json_writer *w, const char *key, const struct buffer *text) {
    put_key_string_n(w, key, text->size > 0 ? text->data : "", text->size);
}

static enum status take(void *context, const char *part, const struct document_text *text,
                        struct error *e) {
    struct printing *printing = context;
    (void)e;
    put_object(printing->w);
    put_key_string(printing->w, "part", part);
    put_text(printing->w, "text", &text->text);
    put_text(printing->w, "title", &text->title);
    put_text(printing->w, "losses", &text->losses);
    put_blocks(printing->w, text);
    put_lines(printing->w, text);
    put_sentences(printing, text);
    put_object_end(printing->w);
    return STATUS_OK;
}

static void skip(void *context, const struct error *why) {
    (void)context;
    fprintf(stderr, "skipped: %s\n", why->text);
}

int main(int argc, char **argv) {
    struct error e = {0};
    struct buffer out = {0};
    struct json_writer w;
    if (argc < 2) {
        fprintf(stderr, "usage: read_file FILE [SENTENCE ...]\n");
        return 2;
    }
    struct printing printing = {.w = &w, .sentences = &argv[2], .n = argc - 2};
    struct document_taker taker = {.context = &printing, .take = take, .skip = skip};
    struct extract_source source = {.path = argv[1], .kind = document_kind(argv[1])};
    struct extract_limits limits = extract_limits_of((size_t)64 << 20);
    put_begin(&w, &out);
    put_object(&w);
    put_key_array(&w, "documents");
    enum status status = sandbox_start(NULL, &e);
    double began = time_now();
    if (status == STATUS_OK) status = document_extract_all(&source, &limits, &taker, &e);
    put_array_end(&w);
    put_key_float(&w, "seconds", (float)(time_now() - began));
    put_key_string(&w, "error", status ? e.text : "");
    put_object_end(&w);
    fwrite(out.data, 1, out.size, stdout);
    buffer_free(&out);
    return status == STATUS_OK ? 0 : 1;
}
