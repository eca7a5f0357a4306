/* tools/index/index_transfer.c: retro-index copy: documents with their tokens and vectors from one
 * collection to another, which lie in folders or in Milvus. Documents that are there already are
 * passed over, so a copy that was broken off goes on where it ended; at the end every document is
 * read from both and compared. */
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
    struct sparse_rows sparse;
    struct chunk_range *chunks;
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

static void document_free(struct transfer_document *document) {
    snapshot_release(document->snapshot);
    free(document->vectors);
    free(document->picture);
    sparse_rows_free(&document->sparse);
    free(document->chunks);
    *document = (struct transfer_document){0};
}

/* Its tokens, which lie in the snapshot, and its chunks. */
static void read_chunks(const struct stored_document *document,
                        struct transfer_document *transfer_document) {
    const struct snapshot *snapshot = transfer_document->snapshot;
    transfer_document->chunks =
        xmalloc((size_t)document->n_chunks * sizeof *transfer_document->chunks);
    transfer_document->document =
        snapshot_document_again(snapshot, document, transfer_document->chunks);
    transfer_document->document.mark = collection_vector_mark(snapshot->info);
}

static enum status read_picture(const struct stored_document *document,
                                struct transfer_document *transfer_document, struct error *e) {
    int dim = transfer_document->snapshot->info->pictures.dim;
    bool has;
    if (dim == 0) return STATUS_OK;
    transfer_document->picture = xmalloc((size_t)dim * sizeof *transfer_document->picture);
    if (snapshot_picture_vector(transfer_document->snapshot, document->first_chunk,
                                transfer_document->picture, &has, e))
        return e->status;
    transfer_document->document.picture = has ? transfer_document->picture : NULL;
    return STATUS_OK;
}

static enum status read_sparse(const struct stored_document *document,
                               struct transfer_document *transfer_document, struct error *e) {
    if (snapshot_sparse(transfer_document->snapshot, document->first_chunk, (int)document->n_chunks,
                        &transfer_document->sparse, e))
        return e->status;
    transfer_document->document.sparse = sparse_rows_table(&transfer_document->sparse);
    return STATUS_OK;
}

/* A document of a snapshot. Its vectors are as they were embedded: an index that compresses has
 * them beside its codes.
 */
static enum status read_stored(struct snapshot *snapshot, const struct stored_document *document,
                               struct transfer_document *transfer_document, struct error *e) {
    *transfer_document = (struct transfer_document){.snapshot = snapshot_hold(snapshot)};
    transfer_document->vectors = xmalloc((size_t)document->n_chunks * (size_t)snapshot->info->dim *
                                         sizeof *transfer_document->vectors);
    read_chunks(document, transfer_document);
    enum status status = read_picture(document, transfer_document, e);
    if (status == STATUS_OK)
        status = snapshot_vectors(snapshot, document->first_chunk, (int)document->n_chunks,
                                  transfer_document->vectors, e);
    if (status == STATUS_OK && snapshot->info->sparse)
        status = read_sparse(document, transfer_document, e);
    if (status) document_free(transfer_document);
    return status;
}

/* The document of that id, as it is now. */
static enum status find_document(struct transfer_end *end, const char *id,
                                 struct transfer_document *document, struct error *e) {
    struct collection_found found;
    *document = (struct transfer_document){0};
    if (collection_find(end->collection, NULL, id, &found, e)) return e->status;
    enum status status = read_stored(found.snapshot, &found.document, document, e);
    collection_found_release(&found);
    return status;
}

/* A document that a walk shows: in Milvus the chunks are not at hand then. */
static enum status read_document(struct transfer_end *end, const struct stored_document *document,
                                 struct transfer_document *transfer_document, struct error *e) {
    return document->first_chunk < 0 ? find_document(end, document->id, transfer_document, e)
                                     : read_stored(end->snapshot, document, transfer_document, e);
}

/* Opening. */

static enum status open_from(struct collection_transfer *transfer, struct error *e) {
    struct transfer_end *from = &transfer->from;
    if (documents_collection_open(&from->collection, &transfer->arguments->config, from->name, e))
        return e->status;
    from->snapshot = collection_hold(from->collection);
    transfer->info = *from->snapshot->info;
    transfer->info.max_token = from->snapshot->max_token;
    return STATUS_OK;
}

static enum status match_ends(const struct collection_transfer *transfer,
                              const struct collection_info *to, struct error *e) {
    const struct collection_options from = collection_options_of(&transfer->info);
    return collection_is_made_so(to, &from)
               ? STATUS_OK
               : error_set(e, STATUS_INVALID,
                           "%s was made with another embedder, tokenizer, prompt, chunk length, "
                           "cut, context or overlap than %s",
                           transfer->to.name, transfer->from.name);
}

/* A folder begins as a generation of one document; the others come into its log. */
static enum status make_folder(void *context, const struct stored_document *document,
                               struct error *e) {
    struct collection_transfer *transfer = context;
    struct collection_options options = collection_options_of(&transfer->info);
    struct generation_builder *builder = NULL;
    struct transfer_document transfer_document;
    if (read_document(&transfer->from, document, &transfer_document, e)) return e->status;
    enum status status = builder_create(&builder, transfer->to.name, &options, e);
    if (status == STATUS_OK) status = builder_add_document(builder, &transfer_document.document, e);
    if (status == STATUS_OK)
        status = builder_add_vectors(builder, transfer_document.vectors,
                                     transfer_document.document.n_chunks, e);
    if (status == STATUS_OK && options.sparse)
        status = builder_add_sparse(builder, &transfer_document.document.sparse,
                                    transfer_document.document.n_chunks, e);
    document_free(&transfer_document);
    if (status) {
        builder_abandon(builder);
        return status;
    }
    status = builder_commit(builder, e);
    if (status) return status;
    transfer->made = true;
    return error_set(e, STATUS_CANCELLED, "one document is enough");
}

static enum status make_to(struct collection_transfer *transfer, struct error *e) {
    struct collection_options options = collection_options_of(&transfer->info);
    struct collection_walk walk = {
        .snapshot = transfer->from.snapshot, .take = make_folder, .context = transfer};
    if (collection_name_is_remote(transfer->to.name))
        return documents_collection_make(&transfer->arguments->config, transfer->to.name, &options,
                                         transfer->info.max_token, e);
    enum status status = collection_walk(transfer->from.collection, &walk, e);
    if (transfer->made) return STATUS_OK;
    return status ? status : error_set(e, STATUS_INVALID, "%s is empty", transfer->from.name);
}

static bool is_new_folder(const char *name) {
    struct buffer current = {0};
    if (collection_name_is_remote(name)) return false;
    buffer_printf(&current, "%s/CURRENT", name);
    bool there = access(current.data, F_OK) == 0;
    buffer_free(&current);
    return !there;
}

static enum status open_to(struct collection_transfer *transfer, struct error *e) {
    const struct config *config = &transfer->arguments->config;
    if (is_new_folder(transfer->to.name) && make_to(transfer, e)) return e->status;
    enum status status =
        documents_collection_open(&transfer->to.collection, config, transfer->to.name, e);
    if (status == STATUS_NOT_FOUND && collection_name_is_remote(transfer->to.name)) {
        if (make_to(transfer, e)) return e->status;
        status = documents_collection_open(&transfer->to.collection, config, transfer->to.name, e);
    }
    if (status) return status;
    struct snapshot *snapshot = collection_hold(transfer->to.collection);
    status = match_ends(transfer, snapshot->info, e);
    snapshot_release(snapshot);
    return status;
}

/* Copying. */

static enum status compact_when_full(struct collection_transfer *transfer, int64_t most,
                                     struct error *e) {
    struct collection_changes changes;
    if (collection_count_changes(transfer->to.collection, &changes, e) || changes.n_chunks <= most)
        return STATUS_OK;
    return collection_compact(transfer->to.collection, &index_interrupted, e);
}

/* Puts documents that are not there. */
static enum status put_missing(struct collection_transfer *transfer, const bool *there,
                               struct error *e) {
    struct document_put puts[TRANSFER_DOCUMENTS];
    int n = 0;
    for (int i = 0; i < transfer->n_waiting; i++) {
        if (there[i]) continue;
        puts[n] = (struct document_put){.document = &transfer->waiting[i].document,
                                        .vectors = transfer->waiting[i].vectors};
        n++;
    }
    collection_put_all(transfer->to.collection, NULL, puts, n);
    for (int i = 0; i < n; i++) {
        if (puts[i].status) {
            *e = puts[i].error;
            return e->status;
        }
        transfer->n_copied++;
    }
    transfer->n_there += transfer->n_waiting - n;
    return STATUS_OK;
}

static void waiting_free(struct collection_transfer *transfer) {
    for (int i = 0; i < transfer->n_waiting; i++) document_free(&transfer->waiting[i]);
    transfer->n_waiting = transfer->n_waiting_chunks = 0;
}

static enum status put_waiting(struct collection_transfer *transfer, struct error *e) {
    const struct collection_document *documents[TRANSFER_DOCUMENTS];
    bool there[TRANSFER_DOCUMENTS];
    for (int i = 0; i < transfer->n_waiting; i++) documents[i] = &transfer->waiting[i].document;
    struct collection_asked asked = {NULL, documents, transfer->n_waiting};
    enum status status = collection_has_all(transfer->to.collection, &asked, there, e);
    if (status == STATUS_OK) status = put_missing(transfer, there, e);
    waiting_free(transfer);
    return status ? status : compact_when_full(transfer, COMPACT_CHUNKS, e);
}

/* The snapshot, or the answer that the document was read from, is held while it waits. */
static enum status copy_document(struct collection_transfer *transfer,
                                 const struct stored_document *document, struct error *e) {
    struct transfer_document *transfer_document = &transfer->waiting[transfer->n_waiting];
    if (read_document(&transfer->from, document, transfer_document, e)) return e->status;
    transfer->n_waiting++;
    transfer->n_waiting_chunks += transfer_document->document.n_chunks;
    bool full =
        transfer->n_waiting == TRANSFER_DOCUMENTS || transfer->n_waiting_chunks >= TRANSFER_CHUNKS;
    return full ? put_waiting(transfer, e) : STATUS_OK;
}

static bool same_string(const char *a, const char *b) {
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same_picture(const float *a, const float *b, int dim) {
    if (a == NULL || b == NULL) return a == b;
    return memcmp(a, b, (size_t)dim * sizeof *a) == 0;
}

static bool same_document(const struct transfer_document *left,
                          const struct transfer_document *right,
                          const struct collection_info *info) {
    const struct collection_document *document = &left->document,
                                     *collection_document = &right->document;
    int dim = info->dim;
    return document->n_chunks == collection_document->n_chunks &&
           document->n == collection_document->n &&
           same_string(document->id, collection_document->id) &&
           same_string(document->path, collection_document->path) &&
           same_string(document->title, collection_document->title) &&
           same_string(document->metadata, collection_document->metadata) &&
           same_string(document->source, collection_document->source) &&
           same_string(document->file, collection_document->file) &&
           span_equals(document->text, collection_document->text) &&
           marks_equal(document->marks, collection_document->marks) &&
           memcmp(document->ids, collection_document->ids,
                  (size_t)document->n * sizeof *document->ids) == 0 &&
           memcmp(document->chunks, collection_document->chunks,
                  (size_t)document->n_chunks * sizeof *document->chunks) == 0 &&
           memcmp(left->vectors, right->vectors,
                  (size_t)document->n_chunks * (size_t)dim * sizeof *left->vectors) == 0 &&
           same_picture(document->picture, collection_document->picture, info->pictures.dim);
}

static enum status compare_document(struct collection_transfer *transfer,
                                    const struct stored_document *document, struct error *e) {
    struct transfer_document left, right;
    if (read_document(&transfer->from, document, &left, e)) return e->status;
    enum status status = find_document(&transfer->to, document->id, &right, e);
    if (status == STATUS_OK && !same_document(&left, &right, &transfer->info))
        status = error_set(e, STATUS_CORRUPT, "document %.200s is not the same in both; copy again",
                           document->id);
    if (status == STATUS_OK) transfer->n_chunks += left.document.n_chunks;
    document_free(&left);
    document_free(&right);
    return status;
}

static enum status take_document(void *context, const struct stored_document *document,
                                 struct error *e) {
    struct collection_transfer *transfer = context;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    return transfer->compares ? compare_document(transfer, document, e)
                              : copy_document(transfer, document, e);
}

static enum status walk_from(struct collection_transfer *transfer, struct error *e) {
    struct collection_walk walk = {
        .snapshot = transfer->from.snapshot, .take = take_document, .context = transfer};
    return collection_walk(transfer->from.collection, &walk, e);
}

static enum status transfer_all(struct collection_transfer *transfer, struct error *e) {
    enum status status = open_from(transfer, e);
    if (status == STATUS_OK) status = open_to(transfer, e);
    if (status == STATUS_OK) status = walk_from(transfer, e);
    if (status == STATUS_OK) status = put_waiting(transfer, e);
    if (status == STATUS_OK) status = compact_when_full(transfer, 0, e);
    transfer->compares = true;
    return status ? status : walk_from(transfer, e);
}

static void put_transfer(const struct collection_transfer *transfer, int64_t n_copied,
                         int64_t n_there, int64_t n_documents) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "effect", "copied");
    put_key_string(&w, "collection", transfer->to.name);
    put_key_int(&w, "copied", n_copied);
    put_key_int(&w, "there", n_there);
    put_key_int(&w, "same_chunks", transfer->n_chunks);
    put_key_int(&w, "documents", n_documents);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

static enum status print_transfer(struct collection_transfer *transfer, struct error *e) {
    int64_t n_documents, n_chunks, n_copied = transfer->n_copied + transfer->made,
                                   n_there = transfer->n_there - transfer->made;
    if (collection_count(transfer->to.collection, NULL, &n_documents, &n_chunks, e))
        return e->status;
    if (transfer->arguments->json)
        put_transfer(transfer, n_copied, n_there, n_documents);
    else
        line_print(stdout,
                   "%s: %" PRId64 " documents copied, %" PRId64 " were there; %" PRId64
                   " documents and %" PRId64 " chunks are the same in both; %" PRId64
                   " documents are there in all",
                   transfer->to.name, n_copied, n_there, n_copied + n_there, transfer->n_chunks,
                   n_documents);
    return STATUS_OK;
}

static void end_close(struct transfer_end *end) {
    snapshot_release(end->snapshot);
    collection_close(end->collection);
}

int run_copy(struct index_arguments *arguments, struct error *e) {
    struct collection_transfer transfer = {.arguments = arguments};
    if (index_expect(arguments, 2, "copy FROM TO", e)) return EXIT_FAILED;
    transfer.from.name = arguments->rest[0];
    transfer.to.name = arguments->rest[1];
    index_catch_interrupts();
    enum status status = transfer_all(&transfer, e);
    if (status == STATUS_OK && !collection_is_remote(transfer.from.collection) &&
        !collection_is_remote(transfer.to.collection))
        status = index_copy_files(transfer.from.name, transfer.to.name, e);
    if (status == STATUS_OK) status = print_transfer(&transfer, e);
    waiting_free(&transfer);
    end_close(&transfer.from);
    end_close(&transfer.to);
    return status == STATUS_CANCELLED ? EXIT_INTERRUPTED : status ? EXIT_FAILED : EXIT_FINE;
}
