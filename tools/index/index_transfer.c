/* tools/index/index_transfer.c: retro-index copy: documents with their tokens and vectors from one collection to
 * another, which lie in folders or in Milvus. Documents that are there already are passed over, so a copy that was
 * broken off goes on where it ended; at the end every document is read from both and compared. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"
#include "server/host/documents/documents.h"
#include "tools/index/index_adder.h"

/* Changes of a folder after which it is compacted, so that its log does not fill the memory. */
enum { COMPACT_CHUNKS = 20000 };
/* The most that is put together. */
enum { TRANSFER_DOCUMENTS = 100, TRANSFER_CHUNKS = 2000 };

/* One end of a copy. */
struct transfer_end {
    const char *name;
    struct collection *collection;
    struct snapshot *snapshot; /* what is copied; of Milvus what is there when it is read */
};

/* A document of one end, with its vectors. */
struct transfer_document {
    struct collection_document document;
    float *vectors; /* [n_chunks, dim] */
    float *picture; /* [dim of pictures]; NULL: pictures have no vectors of their own */
    int n_chunks;
    int32_t *ids;
    uint32_t *bounds;
    struct snapshot *snapshot; /* held: has its strings */
};

struct collection_transfer {
    const struct index_arguments *arguments;
    struct transfer_end from, to;
    struct collection_info info;         /* of from */
    int64_t n_copied, n_there, n_chunks; /* documents, and chunks that were compared */
    bool made;                           /* the folder, with the first document */
    bool compares;                       /* the second pass */
    /* Documents that were read and wait to be put. */
    struct transfer_document waiting[TRANSFER_DOCUMENTS];
    int n_waiting, n_waiting_chunks;
};

/* Reading. */

static void document_free(struct transfer_document *d) {
    snapshot_release(d->snapshot);
    free(d->vectors);
    free(d->picture);
    free(d->ids);
    free(d->bounds);
    *d = (struct transfer_document){0};
}

/* Its tokens and chunks. */
static void read_chunks(const struct stored_document *s, struct transfer_document *d) {
    int n = 0;
    d->ids = xmalloc((size_t)d->n_chunks * (size_t)d->snapshot->info->chunk_length * sizeof *d->ids);
    d->bounds = xmalloc(((size_t)d->n_chunks + 1) * sizeof *d->bounds);
    for (int i = 0; i < d->n_chunks; i++) {
        struct chunk chunk = snapshot_chunk(d->snapshot, s->first_chunk + i);
        memcpy(d->ids + n, chunk.tokens, (size_t)chunk.n_tokens * sizeof *d->ids);
        n += chunk.n_tokens;
        d->bounds[i] = (uint32_t)chunk.start;
    }
    d->bounds[d->n_chunks] = (uint32_t)s->text.size;
    d->document = (struct collection_document){.id = s->id,
                                               .path = s->path,
                                               .title = s->title,
                                               .metadata = s->metadata[0] ? s->metadata : NULL,
                                               .source = s->source,
                                               .text = s->text,
                                               .marks = s->marks,
                                               .ids = d->ids,
                                               .bounds = d->bounds,
                                               .n = n};
}

static enum status read_picture(const struct stored_document *s, struct transfer_document *d, struct error *e) {
    int dim = d->snapshot->info->pictures.dim;
    bool has;
    if (dim == 0) return STATUS_OK;
    d->picture = xmalloc((size_t)dim * sizeof *d->picture);
    if (snapshot_picture_vector(d->snapshot, s->first_chunk, d->picture, &has, e)) return e->status;
    d->document.picture = has ? d->picture : NULL;
    return STATUS_OK;
}

/* A document of a snapshot. Its vectors are as they were embedded: an index that compresses has them beside its codes.
 */
static enum status read_stored(struct snapshot *snapshot, const struct stored_document *s, struct transfer_document *d,
                               struct error *e) {
    *d = (struct transfer_document){.n_chunks = (int)s->n_chunks, .snapshot = snapshot_hold(snapshot)};
    d->vectors = xmalloc((size_t)d->n_chunks * (size_t)snapshot->info->dim * sizeof *d->vectors);
    read_chunks(s, d);
    enum status status = read_picture(s, d, e);
    if (status == STATUS_OK) status = snapshot_vectors(snapshot, s->first_chunk, d->n_chunks, d->vectors, e);
    if (status) document_free(d);
    return status;
}

/* The document of that id, as it is now. */
static enum status find_document(struct transfer_end *end, const char *id, struct transfer_document *d,
                                 struct error *e) {
    struct collection_found found;
    *d = (struct transfer_document){0};
    if (collection_find(end->collection, NULL, id, &found, e)) return e->status;
    enum status status = read_stored(found.snapshot, &found.document, d, e);
    collection_found_release(&found);
    return status;
}

/* A document that a walk shows: in Milvus the chunks are not at hand then. */
static enum status read_document(struct transfer_end *end, const struct stored_document *s, struct transfer_document *d,
                                 struct error *e) {
    return s->first_chunk < 0 ? find_document(end, s->id, d, e) : read_stored(end->snapshot, s, d, e);
}

/* Opening. */

static enum status open_from(struct collection_transfer *t, struct error *e) {
    struct transfer_end *from = &t->from;
    if (documents_collection_open(&from->collection, &t->arguments->config, from->name, e)) return e->status;
    from->snapshot = collection_hold(from->collection);
    t->info = *from->snapshot->info;
    t->info.max_token = from->snapshot->max_token;
    return STATUS_OK;
}

static bool same_space(const struct picture_space *a, const struct picture_space *b) {
    if (a->embedder == NULL || b->embedder == NULL) return a->embedder == b->embedder;
    return a->embedder_hash == b->embedder_hash && a->dim == b->dim && strcmp(a->query_prompt, b->query_prompt) == 0 &&
           strcmp(a->document_prompt, b->document_prompt) == 0;
}

static enum status match_ends(const struct collection_transfer *t, const struct collection_info *to, struct error *e) {
    const struct collection_info *from = &t->info;
    bool same = from->embedder_hash == to->embedder_hash && from->tokenizer_hash == to->tokenizer_hash &&
                from->dim == to->dim && from->chunk_length == to->chunk_length && from->eod == to->eod &&
                strcmp(from->query_prompt, to->query_prompt) == 0 &&
                strcmp(from->document_prompt, to->document_prompt) == 0 && same_space(&from->pictures, &to->pictures);
    return same ? STATUS_OK
                : error_set(e, STATUS_INVALID,
                            "%s was made with another embedder, tokenizer, prompt or chunk length than %s", t->to.name,
                            t->from.name);
}

/* A folder begins as a generation of one document; the others come into its log. */
static enum status make_folder(void *context, const struct stored_document *s, struct error *e) {
    struct collection_transfer *t = context;
    struct collection_options o = collection_options_of(&t->info);
    struct generation_builder *builder = NULL;
    struct transfer_document d;
    if (read_document(&t->from, s, &d, e)) return e->status;
    enum status status = builder_create(&builder, t->to.name, &o, e);
    if (status == STATUS_OK) status = builder_add_document(builder, &d.document, e);
    if (status == STATUS_OK) status = builder_add_vectors(builder, d.vectors, d.n_chunks, e);
    document_free(&d);
    if (status) {
        builder_abandon(builder);
        return status;
    }
    status = builder_commit(builder, e);
    if (status) return status;
    t->made = true;
    return error_set(e, STATUS_CANCELLED, "one document is enough");
}

static enum status make_to(struct collection_transfer *t, struct error *e) {
    struct collection_options o = collection_options_of(&t->info);
    struct collection_walk walk = {.snapshot = t->from.snapshot, .take = make_folder, .context = t};
    if (collection_name_is_remote(t->to.name))
        return documents_collection_make(&t->arguments->config, t->to.name, &o, t->info.max_token, e);
    enum status status = collection_walk(t->from.collection, &walk, e);
    if (t->made) return STATUS_OK;
    return status ? status : error_set(e, STATUS_INVALID, "%s is empty", t->from.name);
}

static bool is_new_folder(const char *name) {
    struct buffer current = {0};
    if (collection_name_is_remote(name)) return false;
    buffer_printf(&current, "%s/CURRENT", name);
    bool there = access(current.data, F_OK) == 0;
    buffer_free(&current);
    return !there;
}

static enum status open_to(struct collection_transfer *t, struct error *e) {
    const struct config *c = &t->arguments->config;
    if (is_new_folder(t->to.name) && make_to(t, e)) return e->status;
    enum status status = documents_collection_open(&t->to.collection, c, t->to.name, e);
    if (status == STATUS_NOT_FOUND && collection_name_is_remote(t->to.name)) {
        if (make_to(t, e)) return e->status;
        status = documents_collection_open(&t->to.collection, c, t->to.name, e);
    }
    if (status) return status;
    struct snapshot *snapshot = collection_hold(t->to.collection);
    status = match_ends(t, snapshot->info, e);
    snapshot_release(snapshot);
    return status;
}

/* Copying. */

static enum status compact_when_full(struct collection_transfer *t, int64_t most, struct error *e) {
    struct collection_changes changes;
    if (collection_count_changes(t->to.collection, &changes, e) || changes.n_chunks <= most) return STATUS_OK;
    return collection_compact(t->to.collection, &index_interrupted, e);
}

/* Puts documents that are not there. */
static enum status put_missing(struct collection_transfer *t, const bool *there, struct error *e) {
    struct document_put puts[TRANSFER_DOCUMENTS];
    int n = 0;
    for (int i = 0; i < t->n_waiting; i++) {
        if (there[i]) continue;
        puts[n] = (struct document_put){.document = &t->waiting[i].document, .vectors = t->waiting[i].vectors};
        n++;
    }
    collection_put_all(t->to.collection, NULL, puts, n);
    for (int i = 0; i < n; i++) {
        if (puts[i].status) {
            *e = puts[i].error;
            return e->status;
        }
        t->n_copied++;
    }
    t->n_there += t->n_waiting - n;
    return STATUS_OK;
}

static void waiting_free(struct collection_transfer *t) {
    for (int i = 0; i < t->n_waiting; i++) document_free(&t->waiting[i]);
    t->n_waiting = t->n_waiting_chunks = 0;
}

static enum status put_waiting(struct collection_transfer *t, struct error *e) {
    const struct collection_document *documents[TRANSFER_DOCUMENTS];
    bool there[TRANSFER_DOCUMENTS];
    for (int i = 0; i < t->n_waiting; i++) documents[i] = &t->waiting[i].document;
    struct collection_asked asked = {NULL, documents, t->n_waiting};
    enum status status = collection_has_all(t->to.collection, &asked, there, e);
    if (status == STATUS_OK) status = put_missing(t, there, e);
    waiting_free(t);
    return status ? status : compact_when_full(t, COMPACT_CHUNKS, e);
}

/* The snapshot, or the answer that the document was read from, is held while it waits. */
static enum status copy_document(struct collection_transfer *t, const struct stored_document *s, struct error *e) {
    struct transfer_document *d = &t->waiting[t->n_waiting];
    if (read_document(&t->from, s, d, e)) return e->status;
    t->n_waiting++;
    t->n_waiting_chunks += d->n_chunks;
    bool full = t->n_waiting == TRANSFER_DOCUMENTS || t->n_waiting_chunks >= TRANSFER_CHUNKS;
    return full ? put_waiting(t, e) : STATUS_OK;
}

static bool same_string(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : "") == 0; }

static bool same_picture(const float *a, const float *b, int dim) {
    if (a == NULL || b == NULL) return a == b;
    return memcmp(a, b, (size_t)dim * sizeof *a) == 0;
}

static bool same_document(const struct transfer_document *a, const struct transfer_document *b,
                          const struct collection_info *info) {
    const struct collection_document *x = &a->document, *y = &b->document;
    int dim = info->dim;
    return a->n_chunks == b->n_chunks && x->n == y->n && same_string(x->id, y->id) && same_string(x->path, y->path) &&
           same_string(x->title, y->title) && same_string(x->metadata, y->metadata) &&
           same_string(x->source, y->source) && span_equals(x->text, y->text) && marks_equal(x->marks, y->marks) &&
           memcmp(x->ids, y->ids, (size_t)x->n * sizeof *x->ids) == 0 &&
           memcmp(x->bounds, y->bounds, ((size_t)a->n_chunks + 1) * sizeof *x->bounds) == 0 &&
           memcmp(a->vectors, b->vectors, (size_t)a->n_chunks * (size_t)dim * sizeof *a->vectors) == 0 &&
           same_picture(x->picture, y->picture, info->pictures.dim);
}

static enum status compare_document(struct collection_transfer *t, const struct stored_document *s, struct error *e) {
    struct transfer_document a, b;
    if (read_document(&t->from, s, &a, e)) return e->status;
    enum status status = find_document(&t->to, s->id, &b, e);
    if (status == STATUS_OK && !same_document(&a, &b, &t->info))
        status = error_set(e, STATUS_CORRUPT, "document %.200s is not the same in both; copy again", s->id);
    if (status == STATUS_OK) t->n_chunks += a.n_chunks;
    document_free(&a);
    document_free(&b);
    return status;
}

static enum status take_document(void *context, const struct stored_document *s, struct error *e) {
    struct collection_transfer *t = context;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    return t->compares ? compare_document(t, s, e) : copy_document(t, s, e);
}

static enum status walk_from(struct collection_transfer *t, struct error *e) {
    struct collection_walk walk = {.snapshot = t->from.snapshot, .take = take_document, .context = t};
    return collection_walk(t->from.collection, &walk, e);
}

static enum status transfer_all(struct collection_transfer *t, struct error *e) {
    enum status status = open_from(t, e);
    if (status == STATUS_OK) status = open_to(t, e);
    if (status == STATUS_OK) status = walk_from(t, e);
    if (status == STATUS_OK) status = put_waiting(t, e);
    if (status == STATUS_OK) status = compact_when_full(t, 0, e);
    t->compares = true;
    return status ? status : walk_from(t, e);
}

static void put_transfer(const struct collection_transfer *t, int64_t n_copied, int64_t n_there, int64_t n_documents) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "effect", "copied");
    put_key_string(&w, "collection", t->to.name);
    put_key_int(&w, "copied", n_copied);
    put_key_int(&w, "there", n_there);
    put_key_int(&w, "same_chunks", t->n_chunks);
    put_key_int(&w, "documents", n_documents);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

static enum status print_transfer(struct collection_transfer *t, struct error *e) {
    int64_t n_documents, n_chunks, n_copied = t->n_copied + t->made, n_there = t->n_there - t->made;
    if (collection_count(t->to.collection, NULL, &n_documents, &n_chunks, e)) return e->status;
    if (t->arguments->json)
        put_transfer(t, n_copied, n_there, n_documents);
    else
        line_print(stdout,
                   "%s: %" PRId64 " documents copied, %" PRId64 " were there; %" PRId64 " documents and %" PRId64
                   " chunks are the same in both; %" PRId64 " documents are there in all",
                   t->to.name, n_copied, n_there, n_copied + n_there, t->n_chunks, n_documents);
    return STATUS_OK;
}

static void end_close(struct transfer_end *end) {
    snapshot_release(end->snapshot);
    collection_close(end->collection);
}

int run_copy(struct index_arguments *a, struct error *e) {
    struct collection_transfer t = {.arguments = a};
    if (index_expect(a, 2, "copy FROM TO", e)) return EXIT_FAILED;
    t.from.name = a->rest[0];
    t.to.name = a->rest[1];
    index_catch_interrupts();
    enum status status = transfer_all(&t, e);
    if (status == STATUS_OK) status = print_transfer(&t, e);
    waiting_free(&t);
    end_close(&t.from);
    end_close(&t.to);
    return status == STATUS_CANCELLED ? EXIT_INTERRUPTED : status ? EXIT_FAILED : EXIT_FINE;
}
