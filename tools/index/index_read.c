/* tools/index/index_read.c: one file is read, and says how far it is where that takes long. */
#include <stdio.h>
#include <unistd.h>

#include "retrieval/kept/kept_name.h"
#include "tools/index/index.h"
#include "tools/index/index_color.h"

/* From when on pages are told, and how often. */
enum { FIRST_SECONDS = 3, AGAIN_SECONDS = 10 };

struct pages_told {
    const char *path;
    double next;
};

/* Files may be read by several threads, so each line is whole. */
static void tell_pages(void *context, int read, int pages) {
    struct pages_told *told = context;
    double now = time_now();
    if (now < told->next || read == pages) return;
    told->next = now + AGAIN_SECONDS;
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    color_line(stderr, COLOR_CYAN, "reading:", " %s: %d of %d pages", told->path, read, pages);
}

enum status read_documents(const struct build_options *options, const struct found_file *file,
                           const atomic_bool *cancelled, const struct document_taker *taker,
                           struct error *e) {
    struct pages_told told = {.path = file->path, .next = time_now() + FIRST_SECONDS};
    struct extract_limits limits = extract_limits_of(options->max_file_bytes);
    struct error unread; /* reading it says so */
    if (file->kept && file->size <= limits.bytes &&
        kept_name_of_path(file->path, file->kept, &unread))
        file->kept[0] = '\0';
    limits.pictures = options->pictures;
    limits.ocr = options->ocr;
    limits.passwords = options->passwords;
    limits.model = options->model;
    limits.ocr.pictures = !options->pictures;
    limits.hidden_sheets = options->hidden_sheets;
    limits.cancelled = cancelled;
    limits.listener = (struct extract_listener){&told, tell_pages};
    if (options->max_seconds > 0) limits.seconds = options->max_seconds;
    return document_extract_all(&(struct extract_source){.path = file->path, .kind = file->kind},
                                &limits, taker, e);
}
