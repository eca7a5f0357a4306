/* tools/index/index_dry.c: --dry-run: which documents would be read, without a model, an embedder or a collection. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/index/index_reader.h"

struct dry_run {
    struct walk *walk;
    const struct found_file *file;
    int n;
    uint64_t bytes;
};

static enum status show_document(void *context, const char *part, const struct document_text *d, struct error *e) {
    struct dry_run *dry = context;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    if (d->note) line_print(stderr, "note: %s%s: %s", dry->file->path, part, d->note);
    line_print(stdout, "%9zu  %s%s%s%s", d->text.size, dry->file->stored, part, d->title.size > 0 ? "  " : "",
               d->title.data);
    dry->n++;
    dry->bytes += d->text.size;
    return STATUS_OK;
}

static void show_skipped(void *context, const struct error *why) {
    struct dry_run *dry = context;
    line_print(stderr, "skipped: %s%s", why->text, why->status == STATUS_TOO_LARGE ? " (--max-file-bytes)" : "");
    dry->walk->n_skipped++;
}

enum status dry_run(struct walk *w, const struct build_options *o, struct error *e) {
    struct dry_run dry = {.walk = w};
    struct document_taker taker = {.context = &dry, .take = show_document, .skip = show_skipped};
    struct error why;
    struct file_reader *reader = reader_open(o, w->files, w->n);
    for (int i = 0; i < w->n && !index_interrupted; i++) {
        dry.file = &w->files[i];
        enum status status = reader_take(reader, i, &taker, &why);
        if (status && !index_interrupted) show_skipped(&dry, &why);
    }
    reader_close(reader);
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    line_print(stdout, "%d documents, %" PRIu64 " bytes of text, %d skipped; nothing was written", dry.n, dry.bytes,
               w->n_skipped);
    return STATUS_OK;
}
