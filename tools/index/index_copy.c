/* tools/index/index_copy.c: the commands of retro-index that copy a collection: snapshot and
 * restore. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/json/json_writer.h"
#include "tools/index/index.h"

void index_print_state(const struct index_arguments *arguments, const char *effect, const char *dir,
                       const struct snapshot *snapshot) {
    struct buffer text = {0};
    struct json_writer w;
    if (!arguments->json) {
        line_print(stdout, "%s %s: generation %d, %" PRId64 " documents, %" PRId64 " chunks",
                   effect, dir, snapshot->generation, snapshot->n_documents, snapshot->n_chunks);
        return;
    }
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "effect", effect);
    put_key_string(&w, "collection", dir);
    put_key_int(&w, "generation", snapshot->generation);
    put_key_int(&w, "documents", snapshot->n_documents);
    put_key_int(&w, "chunks", snapshot->n_chunks);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

void index_sweep_files(struct collection *collection, const char *name) {
    struct kept_swept swept;
    struct error e;
    if (collection_is_remote(collection)) return;
    char *folder = kept_folder(name);
    if (kept_sweep(folder, collection, &swept, &e))
        line_print(stderr, "copies of files that went stay on the disk: %s", e.text);
    free(folder);
}

enum status index_copy_files(const char *from, const char *to, struct error *e) {
    char *source = kept_folder(from), *target = kept_folder(to);
    enum status status = kept_copy_all(source, target, e);
    free(source);
    free(target);
    return status;
}

/* Opened as a reader does: what is printed was read from the copy. */
static enum status report_copy(const struct index_arguments *arguments, const char *effect,
                               struct error *e) {
    struct collection *collection;
    if (disk_generation_verify(arguments->rest[1], e) ||
        store_open(&collection, arguments->rest[1], e))
        return e->status;
    struct snapshot *snapshot = collection_hold(collection);
    index_print_state(arguments, effect, arguments->rest[1], snapshot);
    snapshot_release(snapshot);
    collection_close(collection);
    return STATUS_OK;
}

static int copy(const struct index_arguments *arguments, const char *effect, struct error *e) {
    index_catch_interrupts();
    enum status status = store_copy(arguments->rest[0], arguments->rest[1], &index_interrupted, e);
    if (status == STATUS_OK) status = index_copy_files(arguments->rest[0], arguments->rest[1], e);
    if (status == STATUS_OK) status = report_copy(arguments, effect, e);
    return status == STATUS_CANCELLED ? EXIT_INTERRUPTED : status ? EXIT_FAILED : EXIT_FINE;
}

/* A snapshot that is there stays: it may be the only one. */
static enum status check_new(const char *out, struct error *e) {
    struct buffer current = {0};
    buffer_printf(&current, "%s/CURRENT", out);
    bool there = access(current.data, F_OK) == 0;
    buffer_free(&current);
    return there ? error_set(
                       e, STATUS_INVALID,
                       "%s holds a collection already: name a new folder, or remove that one first",
                       out)
                 : STATUS_OK;
}

int run_snapshot(struct index_arguments *arguments, struct error *e) {
    if (index_expect(arguments, 2, "snapshot DIR OUT", e) ||
        index_expect_folder(arguments, 0, "snapshot", e) ||
        index_expect_folder(arguments, 1, "snapshot", e) || check_new(arguments->rest[1], e))
        return EXIT_FAILED;
    return copy(arguments, "snapshot", e);
}

int run_restore(struct index_arguments *arguments, struct error *e) {
    if (index_expect(arguments, 2, "restore OUT DIR", e) ||
        index_expect_folder(arguments, 0, "restore", e) ||
        index_expect_folder(arguments, 1, "restore", e))
        return EXIT_FAILED;
    return copy(arguments, "restored", e);
}
