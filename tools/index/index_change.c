/* tools/index/index_change.c: the commands of retro-index that change a collection: add, delete,
 * compact. A line is printed when its change is on the disk. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/json/json_writer.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "tools/index/index_adder.h"
#include "tools/index/index_color.h"
#include "tools/index/index_named.h"

/* Names that a question lists. */
enum { SHOWN_BEFORE_DELETE = 10 };

static const char *const effect_names[] = {[CHANGE_NOTHING] = "unchanged",
                                           [CHANGE_ADDED] = "added",
                                           [CHANGE_REPLACED] = "replaced",
                                           [CHANGE_DELETED] = "deleted"};

static const enum line_color effect_colors[] = {[CHANGE_NOTHING] = COLOR_NONE,
                                                [CHANGE_ADDED] = COLOR_GREEN,
                                                [CHANGE_REPLACED] = COLOR_YELLOW,
                                                [CHANGE_DELETED] = COLOR_RED};

void index_print_effect(const struct index_arguments *arguments,
                        const struct printed_effect *effect) {
    struct buffer text = {0};
    struct json_writer w;
    if (!arguments->json) {
        color_line(stdout, effect_colors[effect->effect], effect_names[effect->effect], " %s",
                   effect->path && effect->path[0] ? effect->path : effect->id);
        fflush(stdout);
        return;
    }
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "effect", effect_names[effect->effect]);
    put_key_string(&w, "id", effect->id);
    if (effect->path) put_key_string(&w, "path", effect->path);
    if (effect->n_embedded >= 0) put_key_int(&w, "embedded", effect->n_embedded);
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
    if (equals == NULL || equals == text)
        return error_set(e, STATUS_INVALID, "--meta %s: expected KEY=VALUE", text);
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

static void report_skipped(struct adder *adder, const struct error *why) {
    color_skipped(why);
    walk_count_skipped(&adder->walk, adder->file, why->text);
}

/* A document's own fault does not keep the others out; the collection's does. */
static bool is_own_fault(enum status status) {
    return status == STATUS_INVALID || status == STATUS_TOO_LARGE || status == STATUS_UNSUPPORTED;
}

static enum status take_put(void *context, const struct document_put *put, struct error *e) {
    struct adder *adder = context;
    const struct index_arguments *arguments = adder->arguments;
    const struct collection_document *document = put->document;
    size_t size = strlen(document->id);
    if (is_own_fault(put->status)) {
        report_skipped(adder, &put->error);
        return STATUS_OK;
    }
    if (put->status) {
        *e = put->error;
        return put->status;
    }
    if (adder->seen)
        key_set_add(adder->seen, hash_bytes(document->id, size, 0),
                    hash_bytes(document->id, size, 1));
    if (put->effect == CHANGE_NOTHING)
        adder->n_unchanged++;
    else
        known_texts_add(&adder->texts, document->text, document->id);
    if (put->effect != CHANGE_NOTHING || arguments->build.verbose)
        index_print_effect(arguments, &(struct printed_effect){put->effect, document->id,
                                                               document->path, put->n_embedded});
    return STATUS_OK;
}

/* A new part of a file that the collection has is a change of that file. */
static bool is_there(const struct adder *adder, const char *id, const char *part) {
    struct collection_found found;
    struct error e;
    struct name_key file = key_of(adder->file->source);
    if (part[0] && key_set_number(&adder->known.sources, file.a, file.b)) return true;
    bool there = collection_find(adder->collection, NULL, id, &found, &e) == STATUS_OK;
    collection_found_release(&found);
    return there;
}

/* As the document has it that is replaced, where that is asked for; else as the file says. */
static enum status find_metadata(struct adder *adder, const struct collection_document *document,
                                 struct buffer *out, struct error *e) {
    const struct index_arguments *arguments = adder->arguments;
    struct metadata_limits limits = index_metadata_limits(&arguments->config);
    struct collection_found found;
    if (!adder->keeps_metadata ||
        collection_find(adder->collection, NULL, document->id, &found, e) != STATUS_OK)
        return metadata_of_file(out, &arguments->metadata, adder->file, document->text, &limits, e);
    buffer_append_string(out, found.document.metadata);
    collection_found_release(&found);
    return STATUS_OK;
}

/* Parts of a file that got an id have it with the part behind. */
static enum status put_part(struct adder *adder, const char *part,
                            const struct document_text *document_text, struct error *e) {
    char made[DOCUMENT_ID_SIZE];
    struct buffer path = {0}, id = {0}, metadata = {0};
    struct text_span text = {document_text->text.data, document_text->text.size};
    buffer_printf(&path, "%s%s", adder->file->stored, part);
    buffer_printf(&id, "%s%s", adder->id ? adder->id : adder->file->identity, part);
    document_id_of_path(id.data, made);
    struct collection_document document = {.id = adder->id ? id.data : made,
                                           .path = path.data,
                                           .title = document_text->title.data,
                                           .source = adder->file->source,
                                           .file = adder->file->kept,
                                           .text = text,
                                           .marks = marks_of(&document_text->marks)};
    enum status status = find_metadata(adder, &document, &metadata, e);
    document.metadata = metadata.size > 0 ? metadata.data : NULL;
    if (status == STATUS_OK && adder->only_there && !is_there(adder, document.id, part))
        status = error_set(e, STATUS_INVALID, "%s%s: it is not in the collection; add adds it",
                           adder->file->path, part);
    if (status == STATUS_OK) status = group_add(&adder->group, &document, e);
    buffer_free(&metadata);
    buffer_free(&path);
    buffer_free(&id);
    return status;
}

static enum status take_part(void *context, const char *part, const struct document_text *text,
                             struct error *e) {
    struct adder *adder = context;
    color_notes(adder->file->path, part, text);
    if (index_interrupted) return adder->failed = error_set(e, STATUS_CANCELLED, "interrupted");
    enum status status = put_part(adder, part, text, e);
    if (is_own_fault(status)) {
        report_skipped(adder, e);
        return STATUS_OK;
    }
    adder->failed = status;
    return status;
}

static void skip_part(void *context, const struct error *why) { report_skipped(context, why); }

/* Documents are embedded as the collection is now. */
static void choose_embedder(struct adder *adder) {
    struct snapshot *newest = collection_hold(adder->collection);
    if (newest->embedder) adder->cutter.embedder = newest->embedder;
    snapshot_release(adder->snapshot);
    adder->snapshot = newest;
}

enum status adder_put_file(struct adder *adder, int number, bool *read, struct error *e) {
    const struct found_file *file = &adder->walk.files[number];
    struct document_taker taker = {.context = adder, .take = take_part, .skip = skip_part};
    struct error why = {0};
    *read = false;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    adder->file = file;
    adder->failed = STATUS_OK;
    choose_embedder(adder);
    enum status status = adder->reader ? reader_take(adder->reader, number, &taker, &why)
                                       : read_documents(&adder->arguments->build, file,
                                                        &index_interrupted, &taker, &why);
    if (!adder->gathers && adder->failed == STATUS_OK) {
        adder->failed = group_flush(&adder->group, e);
        if (adder->failed) return adder->failed;
    }
    *read =
        status == STATUS_OK || (is_own_fault(status) && !document_kind_holds_several(file->kind));
    if (status && adder->failed == STATUS_OK && !index_interrupted) {
        report_skipped(adder, &why);
        return STATUS_OK;
    }
    if (status) *e = why;
    return status;
}

enum status adder_open(struct adder *adder, struct error *e) {
    struct index_arguments *arguments = adder->arguments;
    if (arguments->metadata.size > 0) buffer_append(&arguments->metadata, "}", 1);
    if (documents_collection_open(&adder->collection, &arguments->config, arguments->rest[0], e))
        return e->status;
    struct snapshot *snapshot = collection_hold(adder->collection);
    const struct collection_info *info = snapshot->info;
    enum status status =
        makers_open(&arguments->config, info, &adder->embedder, &adder->tokenizer, e);
    if (status == STATUS_OK)
        status = documents_open_pictures(&adder->pictures, &arguments->config, info, e);
    adder->cutter.pictures = embedder_if_open(&adder->pictures);
    adder->cutter.tokenizer = adder->tokenizer;
    adder->cutter.embedder = &adder->embedder;
    adder->cutter.rules = chunk_rules_of(info);
    adder->group = (struct document_group){.cutter = &adder->cutter,
                                           .collection = adder->collection,
                                           .texts = &adder->texts,
                                           .cancelled = &index_interrupted,
                                           .take = take_put,
                                           .context = adder};
    snapshot_release(snapshot);
    adder->follower = (struct embedder_follower){.config = &arguments->config,
                                                 .first = &adder->embedder,
                                                 .pictures = embedder_if_open(&adder->pictures)};
    if (status == STATUS_OK) embedders_follow(&adder->follower, adder->collection);
    return status;
}

void adder_close(struct adder *adder) {
    reader_close(adder->reader);
    group_free(&adder->group);
    snapshot_release(adder->snapshot);
    collection_close(adder->collection);
    known_files_free(&adder->known);
    known_texts_free(&adder->texts);
    document_cutter_close(&adder->cutter);
    tokenizer_close(adder->tokenizer);
    embedder_model_close(&adder->embedder);
    embedder_model_close(&adder->pictures);
    walk_free(&adder->walk);
}

enum status adder_plan(struct adder *adder, struct error *e) {
    const struct index_arguments *arguments = adder->arguments;
    struct put_plan plan = {
        .walk = &adder->walk, .id = arguments->id, .replace = arguments->replace};
    known_files_free(&adder->known);
    enum status status = known_files_read(&adder->known, adder->collection, &plan, e);
    if (status == STATUS_OK) names_choose(&adder->walk, &adder->known);
    return status;
}

static enum status add_files(struct adder *adder, struct error *e) {
    const struct walk *walk = &adder->walk;
    bool read;
    if (walk->n == 0) return error_set(e, STATUS_INVALID, "no documents found; nothing was added");
    if (adder->arguments->id && walk->n != 1)
        return error_set(e, STATUS_INVALID, "--id names one document, and there are %d", walk->n);
    struct gone_search gone = {.adder = adder};
    enum status status = adder_plan(adder, e);
    adder->seen = adder->only_there ? &gone.ids : NULL;
    adder->reader = reader_open(&adder->arguments->build, walk->files, walk->n);
    adder->gathers = true;
    for (int i = 0; i < walk->n && status == STATUS_OK; i++) {
        const struct found_file *file = &walk->files[i];
        status = adder_put_file(adder, i, &read, e);
        if (read && document_kind_holds_several(file->kind))
            gone_set_file(&gone, file->source, GONE_FILE_READ);
    }
    if (status == STATUS_OK) status = group_flush(&adder->group, e);
    if (status == STATUS_OK && gone.files.n > 0 && adder->only_there)
        status = gone_delete(&gone, e);
    adder->seen = NULL;
    gone_free(&gone);
    return status;
}

static enum status open_and_add(struct adder *adder, struct error *e) {
    const struct index_arguments *arguments = adder->arguments;
    char **paths = arguments->rest + 1;
    enum status status =
        walk_paths(&adder->walk, paths, arguments->n_rest - 1, arguments->build.base, e);
    if (status) return status;
    names_choose(&adder->walk, NULL);
    if (reader_prepare(&arguments->build, adder->walk.n, e)) return e->status;
    if (arguments->build.dry_run) return dry_run(&adder->walk, &arguments->build, e);
    status = adder_open(adder, e);
    return status ? status : add_files(adder, e);
}

static int add_or_update(struct index_arguments *arguments, bool only_there, struct error *e) {
    struct adder adder = {.arguments = arguments, .id = arguments->id, .only_there = only_there};
    if (arguments->n_rest < 2) {
        error_set(e, STATUS_INVALID, "DIR and at least one PATH are needed; --help says more");
        return EXIT_FAILED;
    }
    adder.walk.verbose = arguments->build.verbose;
    adder.walk.follow = arguments->build.follow;
    adder.walk.pictures = arguments->build.pictures;
    adder.walk.ocr = !arguments->build.ocr.off;
    index_catch_interrupts();
    enum status status = open_and_add(&adder, e);
    int code = status == STATUS_CANCELLED ? EXIT_INTERRUPTED
               : status                   ? EXIT_FAILED
               : adder.walk.n_skipped > 0 ? EXIT_SKIPPED
                                          : EXIT_FINE;
    walk_report(&adder.walk);
    if (adder.collection) index_sweep_files(adder.collection, arguments->rest[0]);
    if (adder.n_unchanged > 0)
        fprintf(stderr, "%d documents were there already, with the same content\n",
                adder.n_unchanged);
    adder_close(&adder);
    return code;
}

int run_add(struct index_arguments *arguments, struct error *e) {
    return add_or_update(arguments, false, e);
}
int run_update(struct index_arguments *arguments, struct error *e) {
    return add_or_update(arguments, true, e);
}

/* Delete and compact. */

/* A person at a terminal says yes; a script says --yes. */
static enum status confirm_delete(const struct index_arguments *arguments,
                                  const struct named_documents *named, struct error *e) {
    char answer[16] = "";
    if (!named->several || arguments->yes) return STATUS_OK;
    if (!isatty(STDIN_FILENO))
        return error_set(e, STATUS_INVALID,
                         "%d documents would be deleted; --yes deletes them without asking",
                         named->n);
    for (int i = 0; i < named->n && i < SHOWN_BEFORE_DELETE; i++)
        line_print(stderr, "  %s", named->documents[i].path);
    if (named->n > SHOWN_BEFORE_DELETE)
        fprintf(stderr, "  and %d more\n", named->n - SHOWN_BEFORE_DELETE);
    fprintf(stderr, "delete %d documents? [y/N] ", named->n);
    bool is_read = fgets(answer, sizeof answer, stdin) != NULL;
    if (is_read && (answer[0] == 'y' || answer[0] == 'Y')) return STATUS_OK;
    return error_set(e, STATUS_CANCELLED, "nothing was deleted");
}

static enum status delete_named(const struct index_arguments *arguments,
                                struct collection *collection, const struct named_documents *named,
                                struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < named->n && status == STATUS_OK; i++) {
        const struct named_document *document = &named->documents[i];
        if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
        status = collection_delete(collection, NULL, document->id, e);
        bool went_before = status == STATUS_NOT_FOUND;
        if (status == STATUS_OK)
            index_print_effect(arguments, &(struct printed_effect){CHANGE_DELETED, document->id,
                                                                   document->path, -1});
        if (went_before) status = STATUS_OK;
    }
    return status;
}

int run_delete(struct index_arguments *arguments, struct error *e) {
    struct collection *collection;
    struct named_documents named = {0};
    if (arguments->n_rest < 2 && (arguments->n_rest < 1 || arguments->filter == NULL)) {
        error_set(e, STATUS_INVALID,
                  "delete needs DIR and at least one DOCUMENT, or --filter; retro-index list DIR "
                  "prints the documents");
        return EXIT_FAILED;
    }
    index_catch_interrupts();
    if (documents_collection_open(&collection, &arguments->config, arguments->rest[0], e))
        return EXIT_FAILED;
    enum status status = named_documents_find(&named, collection, arguments->rest + 1,
                                              arguments->n_rest - 1, arguments->filter, e);
    if (status == STATUS_OK) status = confirm_delete(arguments, &named, e);
    if (status == STATUS_OK) status = delete_named(arguments, collection, &named, e);
    named_documents_free(&named);
    index_sweep_files(collection, arguments->rest[0]);
    collection_close(collection);
    if (status == STATUS_CANCELLED && index_interrupted) return EXIT_INTERRUPTED;
    return status ? EXIT_FAILED : EXIT_FINE;
}

int run_compact(struct index_arguments *arguments, struct error *e) {
    struct collection *collection;
    if (index_expect(arguments, 1, "compact DIR", e) ||
        index_expect_folder(arguments, 0, "compact", e) ||
        store_open(&collection, arguments->rest[0], e))
        return EXIT_FAILED;
    index_catch_interrupts();
    enum status status = collection_compact(collection, &index_interrupted, e);
    if (status == STATUS_OK) {
        struct snapshot *snapshot = collection_hold(collection);
        index_print_state(arguments, "compacted", arguments->rest[0], snapshot);
        snapshot_release(snapshot);
        index_sweep_files(collection, arguments->rest[0]);
    }
    collection_close(collection);
    return status == STATUS_CANCELLED ? EXIT_INTERRUPTED : status ? EXIT_FAILED : EXIT_FINE;
}
