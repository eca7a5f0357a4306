/* tools/index/index_change.c: the commands of retro-index that change a collection: add, delete, compact. A line is
 * printed when its change is on the disk. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/json/json_writer.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "tools/index/index_adder.h"
#include "tools/index/index_color.h"

static const char *const effect_names[] = {[CHANGE_NOTHING] = "unchanged",
                                           [CHANGE_ADDED] = "added",
                                           [CHANGE_REPLACED] = "replaced",
                                           [CHANGE_DELETED] = "deleted"};

static const enum line_color effect_colors[] = {[CHANGE_NOTHING] = COLOR_NONE,
                                                [CHANGE_ADDED] = COLOR_GREEN,
                                                [CHANGE_REPLACED] = COLOR_YELLOW,
                                                [CHANGE_DELETED] = COLOR_RED};

void index_print_effect(const struct index_arguments *a, const struct printed_effect *p) {
    struct buffer text = {0};
    struct json_writer w;
    if (!a->json) {
        color_line(stdout, effect_colors[p->effect], effect_names[p->effect], " %s", p->id);
        fflush(stdout);
        return;
    }
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "effect", effect_names[p->effect]);
    put_key_string(&w, "id", p->id);
    if (p->path) put_key_string(&w, "path", p->path);
    if (p->n_embedded >= 0) put_key_int(&w, "embedded", p->n_embedded);
    put_object_end(&w);
    put_line(&w, stdout);
    fflush(stdout);
    buffer_free(&text);
}

/* Metadata. */

/* A number, true or false as it is, anything else as text. */
static void put_value(struct json_writer *w, const char *value) {
    struct json *parsed;
    struct error e;
    if (json_parse_any(&parsed, (struct text_span){value, strlen(value)}, "value", &e)) {
        put_string(w, value);
        return;
    }
    if (json_is_numeric(parsed) || json_kind(parsed) == JSON_KIND_BOOL)
        put_json(w, parsed);
    else
        put_string(w, value);
    json_close(parsed);
}

enum status metadata_add(struct buffer *metadata, const char *text, struct error *e) {
    struct buffer value = {0};
    struct json_writer w;
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text) return error_set(e, STATUS_INVALID, "--meta %s: expected KEY=VALUE", text);
    put_begin(&w, metadata);
    buffer_append(metadata, metadata->size == 0 ? "{" : ",", 1);
    put_string_n(&w, text, (size_t)(equals - text));
    buffer_append(metadata, ":", 1);
    put_begin(&w, &value);
    put_value(&w, equals + 1);
    buffer_append(metadata, value.data, value.size);
    buffer_free(&value);
    return STATUS_OK;
}

/* Add. */

static void report_skipped(struct adder *a, const struct error *why) {
    color_skipped(why);
    a->walk.n_skipped++;
}

/* A document's own fault does not keep the others out; the collection's does. */
static bool is_own_fault(enum status status) {
    return status == STATUS_INVALID || status == STATUS_TOO_LARGE || status == STATUS_UNSUPPORTED;
}

static enum status take_put(void *context, const struct document_put *p, struct error *e) {
    struct adder *a = context;
    const struct index_arguments *arguments = a->arguments;
    const struct collection_document *d = p->document;
    size_t size = strlen(d->id);
    if (is_own_fault(p->status)) {
        report_skipped(a, &p->error);
        return STATUS_OK;
    }
    if (p->status) {
        *e = p->error;
        return p->status;
    }
    if (a->seen) key_set_add(a->seen, hash_bytes(d->id, size, 0), hash_bytes(d->id, size, 1));
    if (p->effect == CHANGE_NOTHING)
        a->n_unchanged++;
    else
        known_texts_add(&a->texts, d->text, d->id);
    if (p->effect != CHANGE_NOTHING || arguments->build.verbose)
        index_print_effect(arguments, &(struct printed_effect){p->effect, d->id, d->path, p->n_embedded});
    return STATUS_OK;
}

/* A new part of a file that the collection has is a change of that file. */
static bool is_there(const struct adder *a, const char *id, const char *part) {
    struct collection_found found;
    struct error e;
    struct name_key file = key_of(a->file->source);
    if (part[0] && key_set_number(&a->known.sources, file.a, file.b)) return true;
    bool there = collection_find(a->collection, NULL, id, &found, &e) == STATUS_OK;
    collection_found_release(&found);
    return there;
}

/* Parts of a file that got an id have it with the part behind. */
static enum status put_part(struct adder *a, const char *part, const struct document_text *d, struct error *e) {
    const struct index_arguments *arguments = a->arguments;
    char made[DOCUMENT_ID_SIZE];
    struct buffer path = {0}, id = {0}, metadata = {0};
    struct text_span text = {d->text.data, d->text.size};
    buffer_printf(&path, "%s%s", a->file->stored, part);
    buffer_printf(&id, "%s%s", arguments->id ? arguments->id : a->file->identity, part);
    document_id_of_path(id.data, made);
    struct collection_document document = {.id = arguments->id ? id.data : made,
                                           .path = path.data,
                                           .title = d->title.data,
                                           .source = a->file->source,
                                           .text = text,
                                           .marks = marks_of(&d->marks)};
    struct metadata_limits limits = index_metadata_limits(&arguments->config);
    enum status status = metadata_of_file(&metadata, &arguments->metadata, a->file, text, &limits, e);
    document.metadata = metadata.size > 0 ? metadata.data : NULL;
    if (status == STATUS_OK && a->only_there && !is_there(a, document.id, part))
        status = error_set(e, STATUS_INVALID, "%s%s: no document has its id %s; add adds it", a->file->path, part,
                           document.id);
    if (status == STATUS_OK) status = group_add(&a->group, &document, e);
    buffer_free(&metadata);
    buffer_free(&path);
    buffer_free(&id);
    return status;
}

static enum status take_part(void *context, const char *part, const struct document_text *d, struct error *e) {
    struct adder *a = context;
    if (d->note) color_line(stderr, COLOR_CYAN, "note:", " %s%s: %s", a->file->path, part, d->note);
    if (index_interrupted) return a->failed = error_set(e, STATUS_CANCELLED, "interrupted");
    enum status status = put_part(a, part, d, e);
    if (is_own_fault(status)) {
        report_skipped(a, e);
        return STATUS_OK;
    }
    a->failed = status;
    return status;
}

static void skip_part(void *context, const struct error *why) { report_skipped(context, why); }

enum status adder_put_file(struct adder *a, int number, bool *read, struct error *e) {
    const struct found_file *file = &a->walk.files[number];
    struct document_taker taker = {.context = a, .take = take_part, .skip = skip_part};
    struct error why = {0};
    *read = false;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    a->file = file;
    a->failed = STATUS_OK;
    enum status status = a->reader ? reader_take(a->reader, number, &taker, &why)
                                   : read_documents(&a->arguments->build, file, &index_interrupted, &taker, &why);
    if (!a->gathers && a->failed == STATUS_OK) {
        a->failed = group_flush(&a->group, e);
        if (a->failed) return a->failed;
    }
    *read = status == STATUS_OK || (is_own_fault(status) && !document_kind_holds_several(file->kind));
    if (status && a->failed == STATUS_OK && !index_interrupted) {
        report_skipped(a, &why);
        return STATUS_OK;
    }
    if (status) *e = why;
    return status;
}

enum status adder_open(struct adder *a, struct error *e) {
    struct index_arguments *arguments = a->arguments;
    if (arguments->metadata.size > 0) buffer_append(&arguments->metadata, "}", 1);
    if (documents_collection_open(&a->collection, &arguments->config, arguments->rest[0], e)) return e->status;
    struct snapshot *snapshot = collection_hold(a->collection);
    const struct collection_info *info = snapshot->info;
    enum status status = makers_open(&arguments->config, info, &a->embedder, &a->tokenizer, e);
    if (status == STATUS_OK) status = documents_open_pictures(&a->pictures, &arguments->config, info, e);
    a->cutter.pictures = embedder_if_open(&a->pictures);
    a->cutter.tokenizer = a->tokenizer;
    a->cutter.embedder = &a->embedder;
    a->cutter.chunk_length = info->chunk_length;
    a->group = (struct document_group){.cutter = &a->cutter,
                                       .collection = a->collection,
                                       .texts = &a->texts,
                                       .cancelled = &index_interrupted,
                                       .take = take_put,
                                       .context = a};
    snapshot_release(snapshot);
    return status;
}

void adder_close(struct adder *a) {
    reader_close(a->reader);
    group_free(&a->group);
    collection_close(a->collection);
    known_files_free(&a->known);
    known_texts_free(&a->texts);
    document_cutter_close(&a->cutter);
    tokenizer_close(a->tokenizer);
    embedder_model_close(&a->embedder);
    embedder_model_close(&a->pictures);
    walk_free(&a->walk);
}

enum status adder_plan(struct adder *a, struct error *e) {
    const struct index_arguments *arguments = a->arguments;
    struct put_plan plan = {.walk = &a->walk, .id = arguments->id, .replace = arguments->replace};
    known_files_free(&a->known);
    enum status status = known_files_read(&a->known, a->collection, &plan, e);
    if (status == STATUS_OK) names_choose(&a->walk, &a->known);
    return status;
}

static enum status add_files(struct adder *a, struct error *e) {
    const struct walk *walk = &a->walk;
    bool read;
    if (walk->n == 0) return error_set(e, STATUS_INVALID, "no documents found; nothing was added");
    if (a->arguments->id && walk->n != 1)
        return error_set(e, STATUS_INVALID, "--id names one document, and there are %d", walk->n);
    struct gone_search gone = {.adder = a};
    enum status status = adder_plan(a, e);
    a->seen = a->only_there ? &gone.ids : NULL;
    a->reader = reader_open(&a->arguments->build, walk->files, walk->n);
    a->gathers = true;
    for (int i = 0; i < walk->n && status == STATUS_OK; i++) {
        const struct found_file *file = &walk->files[i];
        status = adder_put_file(a, i, &read, e);
        if (read && document_kind_holds_several(file->kind)) gone_set_file(&gone, file->source, GONE_FILE_READ);
    }
    if (status == STATUS_OK) status = group_flush(&a->group, e);
    if (status == STATUS_OK && gone.files.n > 0 && a->only_there) status = gone_delete(&gone, e);
    a->seen = NULL;
    gone_free(&gone);
    return status;
}

static enum status open_and_add(struct adder *a, struct error *e) {
    const struct index_arguments *arguments = a->arguments;
    char **paths = arguments->rest + 1;
    enum status status = walk_paths(&a->walk, paths, arguments->n_rest - 1, arguments->build.base, e);
    if (status) return status;
    names_choose(&a->walk, NULL);
    walk_report(&a->walk);
    if (reader_prepare(&arguments->build, a->walk.n, e)) return e->status;
    if (arguments->build.dry_run) return dry_run(&a->walk, &arguments->build, e);
    status = adder_open(a, e);
    return status ? status : add_files(a, e);
}

static int add_or_update(struct index_arguments *arguments, bool only_there, struct error *e) {
    struct adder a = {.arguments = arguments, .only_there = only_there};
    if (arguments->n_rest < 2) {
        error_set(e, STATUS_INVALID, "DIR and at least one PATH are needed; --help says more");
        return EXIT_FAILED;
    }
    a.walk.verbose = arguments->build.verbose;
    a.walk.follow = arguments->build.follow;
    a.walk.pictures = arguments->build.pictures;
    index_catch_interrupts();
    enum status status = open_and_add(&a, e);
    int code = status == STATUS_CANCELLED ? EXIT_INTERRUPTED
               : status                   ? EXIT_FAILED
               : a.walk.n_skipped > 0     ? EXIT_SKIPPED
                                          : EXIT_FINE;
    if (a.n_unchanged > 0) fprintf(stderr, "%d documents were there already, with the same content\n", a.n_unchanged);
    adder_close(&a);
    return code;
}

int run_add(struct index_arguments *a, struct error *e) { return add_or_update(a, false, e); }
int run_update(struct index_arguments *a, struct error *e) { return add_or_update(a, true, e); }

/* Delete and compact. */

int run_delete(struct index_arguments *a, struct error *e) {
    struct collection *l;
    if (a->n_rest < 2) {
        error_set(e, STATUS_INVALID, "delete needs DIR and at least one ID; retro-index list DIR prints them");
        return EXIT_FAILED;
    }
    if (documents_collection_open(&l, &a->config, a->rest[0], e)) return EXIT_FAILED;
    enum status status = STATUS_OK;
    for (int i = 1; i < a->n_rest && status == STATUS_OK; i++) {
        status = collection_delete(l, NULL, a->rest[i], e);
        if (status == STATUS_OK) index_print_effect(a, &(struct printed_effect){CHANGE_DELETED, a->rest[i], NULL, -1});
    }
    collection_close(l);
    return status ? EXIT_FAILED : EXIT_FINE;
}

int run_compact(struct index_arguments *a, struct error *e) {
    struct collection *l;
    if (index_expect(a, 1, "compact DIR", e) || index_expect_folder(a, 0, "compact", e) ||
        store_open(&l, a->rest[0], e))
        return EXIT_FAILED;
    index_catch_interrupts();
    enum status status = collection_compact(l, &index_interrupted, e);
    if (status == STATUS_OK) {
        struct snapshot *snapshot = collection_hold(l);
        index_print_state(a, "compacted", a->rest[0], snapshot);
        snapshot_release(snapshot);
    }
    collection_close(l);
    return status == STATUS_CANCELLED ? EXIT_INTERRUPTED : status ? EXIT_FAILED : EXIT_FINE;
}
