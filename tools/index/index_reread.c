/* tools/index/index_reread.c: retro-index reread: the documents that a reader of today would read
 * differently are read again from their files, and no others. A document that was read is put at
 * once and says so by its first mark, so a command that was broken off goes on where it ended. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/json/json_writer.h"
#include "retrieval/extract/ocr/ocr_presence.h"
#include "retrieval/extract/reader.h"
#include "tools/index/index_adder.h"
#include "tools/index/index_color.h"

static const char *const reasons[REREAD_REASONS] = {
    [REREAD_UNKNOWN] = "nothing says what read it",
    [REREAD_NEWER] = "its reader reads differently now",
    [REREAD_OCR] = "OCR has languages that were missing",
    [REREAD_HIDDEN] = "its hidden sheets were left out"};

/* A file that is read again. */
struct reread_file {
    char *source;
    const char *identity; /* in source; NULL: `id` says what its documents are called */
    char *id;
    enum reread_reason reason;
    bool read;
};
/* A document that the collection has of it. */
struct reread_part {
    char *id, *path;
    int file;
};

struct reread {
    struct adder adder;
    struct reader_means means;
    struct key_set sources;    /* of a source: its number + 1 in `files` */
    struct reread_file *files; /* [n] */
    int n, capacity;
    struct reread_part *parts; /* [n_parts] */
    int n_parts, part_capacity;
    int64_t n_current, n_sourceless, n_pictures, n_gone;
    int64_t n_of[REREAD_REASONS]; /* documents */
    int *walked;                  /* [walk.n] the file of each of the walk's */
};

/* Choosing. */

static bool is_left_out(const struct reread *reread, const struct stored_document *document) {
    return reader_of(document->marks) == READER_PICTURE && !reread->adder.arguments->build.pictures;
}

static int file_number(const struct reread *reread, const char *source) {
    struct name_key key = key_of(source);
    const int64_t *number = key_set_number(&reread->sources, key.a, key.b);
    return number ? (int)*number - 1 : -1;
}

static void add_file(struct reread *reread, const char *source, enum reread_reason reason) {
    struct name_key key = key_of(source);
    if (file_number(reread, source) >= 0) return;
    reread->files = xgrow(reread->files, reread->n, &reread->capacity, sizeof *reread->files);
    reread->files[reread->n] = (struct reread_file){.source = xstrdup(source), .reason = reason};
    reread->n++;
    key_set_add(&reread->sources, key.a, key.b);
    *key_set_number(&reread->sources, key.a, key.b) = reread->n;
}

static enum status choose_document(void *context, const struct stored_document *document,
                                   struct error *e) {
    struct reread *reread = context;
    enum reread_reason reason = reader_judges(document->marks, &reread->means);
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    if (document->source[0] == '\0') {
        reread->n_sourceless++;
    } else if (is_left_out(reread, document)) {
        reread->n_pictures++;
    } else if (reason == REREAD_NOT) {
        reread->n_current++;
    } else {
        reread->n_of[reason]++;
        add_file(reread, document->source, reason);
    }
    return STATUS_OK;
}

/* How the ids of the file's documents are made, by one of them. `at`: where its place in the file
 * begins in its path. */
static void find_identity(struct reread_file *file, const struct stored_document *document,
                          size_t at) {
    const char *part = document->path + at;
    size_t size = strlen(document->id), n = strlen(part);
    if (id_is_of(document->id, document->source, part))
        file->identity = file->source;
    else if (id_is_of(document->id, document->path, ""))
        file->identity = file->source + strlen(file->source) - at;
    else if (size > n && strcmp(document->id + size - n, part) == 0)
        file->id = xstrndup(document->id, size - n);
}

static enum status list_part(void *context, const struct stored_document *document,
                             struct error *e) {
    struct reread *reread = context;
    int number = file_number(reread, document->source);
    size_t at = strlen(document->path);
    (void)e;
    if (number < 0 || is_left_out(reread, document)) return STATUS_OK;
    struct reread_file *file = &reread->files[number];
    while (!path_ends(document->source, document->path, at) && part_next(document->path, &at)) {
    }
    if (at > 0 && file->identity == NULL && file->id == NULL) find_identity(file, document, at);
    reread->parts =
        xgrow(reread->parts, reread->n_parts, &reread->part_capacity, sizeof *reread->parts);
    reread->parts[reread->n_parts] =
        (struct reread_part){xstrdup(document->id), xstrdup(document->path), number};
    reread->n_parts++;
    return STATUS_OK;
}

/* The files that are there become the walk's. */
static void list_files(struct reread *reread) {
    struct walk *walk = &reread->adder.walk;
    reread->walked = xcalloc((size_t)reread->n + 1, sizeof *reread->walked);
    for (int i = 0; i < reread->n; i++) {
        const struct reread_file *file = &reread->files[i];
        bool known = file->identity || file->id;
        if (access(file->source, R_OK) != 0 || !known) {
            reread->n_gone++;
            color_line(stderr, COLOR_YELLOW, "skipped:", " %s: %s", file->source,
                       known ? "it is not there, or cannot be read; its documents stay"
                             : "its documents have names of their own; they stay");
            continue;
        }
        walk->files = xgrow(walk->files, walk->n, &walk->capacity, sizeof *walk->files);
        struct found_file *found = &walk->files[walk->n];
        *found = (struct found_file){.path = xstrdup(file->source),
                                     .source = xstrdup(file->source),
                                     .kind = document_kind(file->source),
                                     .kept = xcalloc(1, KEPT_NAME_SIZE)};
        found->identity = found->source + (file->identity ? file->identity - file->source : 0);
        found->least = found->source;
        reread->walked[walk->n] = i;
        walk->n++;
    }
}

static enum status choose(struct reread *reread, struct error *e) {
    struct collection *collection = reread->adder.collection;
    struct collection_walk chooser = {.take = choose_document, .context = reread},
                           lister = {.take = list_part, .context = reread};
    enum status status = collection_walk(collection, &chooser, e);
    if (status == STATUS_OK) status = collection_walk(collection, &lister, e);
    if (status == STATUS_OK) list_files(reread);
    return status;
}

/* Reading. */

static enum status read_files(struct reread *reread, struct error *e) {
    struct adder *adder = &reread->adder;
    enum status status = STATUS_OK;
    adder->reader = reader_open(&adder->arguments->build, adder->walk.files, adder->walk.n);
    for (int i = 0; i < adder->walk.n && status == STATUS_OK; i++) {
        struct reread_file *file = &reread->files[reread->walked[i]];
        adder->id = file->id;
        status = adder_put_file(adder, i, &file->read, e);
    }
    return status ? status : group_flush(&adder->group, e);
}

/* Documents that their file holds no more. */
static enum status delete_parts(struct reread *reread, const struct key_set *seen,
                                struct error *e) {
    struct adder *adder = &reread->adder;
    enum status status = STATUS_OK;
    for (int i = 0; i < reread->n_parts && status == STATUS_OK; i++) {
        const struct reread_part *part = &reread->parts[i];
        struct name_key key = key_of(part->id);
        if (!reread->files[part->file].read || key_set_number(seen, key.a, key.b)) continue;
        status = collection_delete(adder->collection, NULL, part->id, e);
        if (status == STATUS_OK)
            index_print_effect(adder->arguments,
                               &(struct printed_effect){CHANGE_DELETED, part->id, part->path, -1});
        if (status == STATUS_NOT_FOUND) status = STATUS_OK;
    }
    return status;
}

static void print_plan(const struct reread *reread) {
    for (int i = 0; i < reread->adder.walk.n; i++) {
        const struct reread_file *file = &reread->files[reread->walked[i]];
        line_print(stdout, "%s: %s", file->source, reasons[file->reason]);
    }
}

static enum status carry_out(struct reread *reread, struct error *e) {
    struct adder *adder = &reread->adder;
    struct key_set seen = {0};
    if (adder->arguments->build.dry_run) {
        print_plan(reread);
        return STATUS_OK;
    }
    enum status status = adder_plan(adder, e);
    adder->seen = &seen;
    adder->gathers = adder->keeps_metadata = true;
    if (status == STATUS_OK) status = read_files(reread, e);
    if (status == STATUS_OK) status = delete_parts(reread, &seen, e);
    adder->seen = NULL;
    key_set_free(&seen);
    return status;
}

/* Telling. */

static void print_summary_json(const struct reread *reread, int n_read) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "effect", reread->adder.arguments->build.dry_run ? "planned" : "reread");
    put_key_int(&w, "files", n_read);
    put_key_int(&w, "newer_reader", reread->n_of[REREAD_NEWER] + reread->n_of[REREAD_UNKNOWN]);
    put_key_int(&w, "ocr", reread->n_of[REREAD_OCR]);
    put_key_int(&w, "hidden_sheets", reread->n_of[REREAD_HIDDEN]);
    put_key_int(&w, "current", reread->n_current);
    put_key_int(&w, "without_file", reread->n_sourceless);
    put_key_int(&w, "pictures", reread->n_pictures);
    put_key_int(&w, "skipped", reread->adder.walk.n_skipped);
    put_key_int(&w, "files_gone", reread->n_gone);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

static void print_summary(const struct reread *reread) {
    bool dry = reread->adder.arguments->build.dry_run;
    int n_read = 0;
    for (int i = 0; i < reread->n; i++) n_read += reread->files[i].read;
    if (dry) n_read = reread->adder.walk.n;
    if (reread->adder.arguments->json) {
        print_summary_json(reread, n_read);
        return;
    }
    printf("%d files %s read again: %" PRId64 " documents of a newer reader, %" PRId64
           " for OCR, %" PRId64 " for hidden sheets; %" PRId64 " documents are current, %" PRId64
           " have no file here\n",
           n_read, dry ? "would be" : "were",
           reread->n_of[REREAD_NEWER] + reread->n_of[REREAD_UNKNOWN], reread->n_of[REREAD_OCR],
           reread->n_of[REREAD_HIDDEN], reread->n_current, reread->n_sourceless);
    if (reread->n_pictures > 0)
        printf("%" PRId64 " pictures were not looked at: --pictures reads them too\n",
               reread->n_pictures);
}

static void reread_free(struct reread *reread) {
    for (int i = 0; i < reread->n; i++) {
        free(reread->files[i].source);
        free(reread->files[i].id);
    }
    for (int i = 0; i < reread->n_parts; i++) {
        free(reread->parts[i].id);
        free(reread->parts[i].path);
    }
    free(reread->files);
    free(reread->parts);
    free(reread->walked);
    key_set_free(&reread->sources);
    adder_close(&reread->adder);
}

static enum status open_and_reread(struct reread *reread, struct error *e) {
    struct adder *adder = &reread->adder;
    const struct build_options *build = &adder->arguments->build;
    reread->means = (struct reader_means){ocr_count_ready(&build->ocr), build->hidden_sheets};
    if (reader_prepare(build, INT32_MAX, e) || adder_open(adder, e)) return e->status;
    if (collection_is_remote(adder->collection))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: a folder alone is read again; retro-index copy makes one of a "
                         "collection in Milvus",
                         adder->arguments->rest[0]);
    enum status status = choose(reread, e);
    return status ? status : carry_out(reread, e);
}

int run_reread(struct index_arguments *arguments, struct error *e) {
    struct reread reread = {.adder = {.arguments = arguments}};
    if (index_expect(arguments, 1, "reread DIR", e)) return EXIT_FAILED;
    index_catch_interrupts();
    enum status status = open_and_reread(&reread, e);
    if (status == STATUS_OK) print_summary(&reread);
    int code = status == STATUS_CANCELLED                             ? EXIT_INTERRUPTED
               : status                                               ? EXIT_FAILED
               : reread.adder.walk.n_skipped > 0 || reread.n_gone > 0 ? EXIT_SKIPPED
                                                                      : EXIT_FINE;
    reread_free(&reread);
    return code;
}
