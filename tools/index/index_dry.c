/* tools/index/index_dry.c: --dry-run: which documents would be read, without a model, an embedder
 * or a collection. */
#include <inttypes.h>
#include <stdio.h>

#include "config/json/json_writer.h"
#include "tools/index/index_color.h"
#include "tools/index/index_reader.h"

struct dry_run {
    struct walk *walk;
    const struct found_file *file;
    int n;
    uint64_t bytes;
    bool json;
};

static void put_document(const struct dry_run *dry, const char *part,
                         const struct document_text *document_text) {
    struct buffer text = {0}, path = {0};
    struct json_writer w;
    buffer_printf(&path, "%s%s", dry->file->stored, part);
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "path", path.data);
    put_key_string(&w, "title", document_text->title.data ? document_text->title.data : "");
    put_key_int(&w, "bytes", (int64_t)document_text->text.size);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
    buffer_free(&path);
}

static void put_total(const struct dry_run *dry) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_int(&w, "documents", dry->n);
    put_key_int(&w, "bytes", (int64_t)dry->bytes);
    put_key_int(&w, "skipped", dry->walk->n_skipped);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

static enum status show_document(void *context, const char *part, const struct document_text *text,
                                 struct error *e) {
    struct dry_run *dry = context;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    color_notes(dry->file->path, part, text);
    if (dry->json)
        put_document(dry, part, text);
    else
        line_print(stdout, "%9zu  %s%s%s%s", text->text.size, dry->file->stored, part,
                   text->title.size > 0 ? "  " : "", text->title.data);
    dry->n++;
    dry->bytes += text->text.size;
    return STATUS_OK;
}

static void show_skipped(void *context, const struct error *why) {
    struct dry_run *dry = context;
    color_skipped(why);
    walk_count_skipped(dry->walk, NULL, why->text);
}

enum status dry_run(struct walk *walk, const struct build_options *options, struct error *e) {
    struct dry_run dry = {.walk = walk, .json = options->json};
    struct document_taker taker = {.context = &dry, .take = show_document, .skip = show_skipped};
    struct error why;
    struct file_reader *reader = reader_open(options, walk->files, walk->n);
    for (int i = 0; i < walk->n && !index_interrupted; i++) {
        dry.file = &walk->files[i];
        enum status status = reader_take(reader, i, &taker, &why);
        if (status && !index_interrupted) show_skipped(&dry, &why);
    }
    reader_close(reader);
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    if (options->json)
        put_total(&dry);
    else
        line_print(stdout,
                   "%d documents, %" PRIu64 " bytes of text, %d skipped; nothing was written",
                   dry.n, dry.bytes, walk->n_skipped);
    return STATUS_OK;
}
