/* server/host/documents.c: opens what a model retrieves from. See documents.h. */
#include "server/host/documents.h"

#include "server/host/embedder_model.h"
#include "server/host/reranker_model.h"
#include "server/host/retrieval_mode.h"

bool documents_wanted(const struct config *c) { return c->retrieval.collection[0] != '\0'; }

const char *documents_embedder(const struct config *c, const char *of_collection) {
    return c->retrieval.embedder[0] ? c->retrieval.embedder : of_collection;
}

/* Whether the model can read the tokens of the collection. */
static enum status match_tokens(const struct collection_info *info, const struct model_info *model,
                                const struct tokenizer *tokenizer, const char *folder, struct error *e) {
    if (collection_match_tokens(info, tokenizer_hash(tokenizer), model->chunk_length, e))
        return error_prefix(e, "%s", folder);
    if (info->max_token >= model->padded_vocab)
        return error_set(e, STATUS_INVALID, "%s holds token %d, the model's vocabulary is %d", folder, info->max_token,
                         model->padded_vocab);
    return STATUS_OK;
}

/* *attends: it can. A failure only where the mode asks for it: as text every collection can be read. */
static enum status match_mode(const struct config *c, const struct collection_info *info,
                              const struct model_info *model, const struct tokenizer *tokenizer, bool *attends,
                              struct error *e) {
    bool can = model->chunk_length > 0;
    enum retrieval_mode mode = retrieval_mode_of((enum retrieval_mode)c->retrieval.mode, can);
    *attends = can && match_tokens(info, model, tokenizer, c->retrieval.collection, e) == STATUS_OK;
    return can && !*attends && retrieval_attends(mode) ? e->status : STATUS_OK;
}

/* The embedder that the collection was made with, for a model that can read the collection. */
static enum status open_reader(struct documents *d, const struct config *c, const struct snapshot *view,
                               const struct model_info *model, const struct tokenizer *tokenizer, struct error *e) {
    struct collection_info info = *view_info(view);
    info.max_token = view_max_token(view);
    if (embedder_model_open(&d->embedder, documents_embedder(c, info.embedder), c, e))
        return error_prefix(e, "embedder");
    if (collection_match_embedder(&info, &d->embedder, e)) return error_prefix(e, "%s", c->retrieval.collection);
    return match_mode(c, &info, model, tokenizer, &d->attends, e);
}

static enum status documents_open_reranker(struct documents *d, const struct config *c, struct error *e) {
    if (c->retrieval.reranker[0] == '\0') return STATUS_OK;
    if (reranker_model_open(&d->reranker, c->retrieval.reranker, c, e)) return e->status;
    retriever_local_set_reranker(d->retriever, &d->reranker);
    return STATUS_OK;
}

enum status documents_open(struct documents *d, const struct config *c, const struct model_info *model,
                           const struct tokenizer *tokenizer, int max_k, struct error *e) {
    const char *folder = c->retrieval.collection;
    *d = (struct documents){0};
    if (living_open(&d->collection, folder, e)) return e->status;
    if (living_move(d->collection, c->retrieval.device, e)) return error_prefix(e, "retrieval.device");
    struct snapshot *view = living_hold(d->collection);
    enum status status = open_reader(d, c, view, model, tokenizer, e);
    snapshot_release(view);
    if (status) return status;
    if (filter_parse(&d->filter, c->retrieval.filter, "retrieval.filter", e)) return e->status;
    if (retriever_local_open(&d->retriever, d->collection, &d->embedder, max_k, e)) return e->status;
    return documents_open_reranker(d, c, e);
}

void documents_close(struct documents *d) {
    retriever_close(d->retriever);
    embedder_model_close(&d->embedder);
    reranker_model_close(&d->reranker);
    living_close(d->collection);
    filter_release(d->filter);
    *d = (struct documents){0};
}

enum status documents_check(const struct config *c, const struct model_info *model, const struct tokenizer *tokenizer,
                            struct error *e) {
    struct collection_outline outline;
    if (collection_outline_read(&outline, c->retrieval.collection, e)) return e->status;
    bool attends;
    enum status status = match_mode(c, &outline.info, model, tokenizer, &attends, e);
    collection_outline_free(&outline);
    return status;
}

static enum status measure_reranker(const struct config *c, struct backend *b, struct budget_parts *parts,
                                    struct error *e) {
    struct encoder_bytes reranker;
    if (c->retrieval.reranker[0] == '\0') return STATUS_OK;
    if (reranker_model_measure(&reranker, c->retrieval.reranker, c, b, e)) return e->status;
    budget_add(
        parts,
        (struct budget_part){.name = "reranker", .bytes = reranker.rows + (reranker.mapped ? 0 : reranker.weights)},
        "leave retrieval.reranker out, or take a smaller one");
    return STATUS_OK;
}

static enum status measure_collection(const struct config *c, const struct collection_outline *collection,
                                      struct backend *b, struct budget_parts *parts, struct error *e) {
    struct encoder_bytes embedder;
    const char *folder = documents_embedder(c, collection->info.embedder);
    if (embedder_model_measure(&embedder, folder, c, b, e)) return error_prefix(e, "embedder");
    budget_add(
        parts,
        (struct budget_part){.name = "embedder", .bytes = embedder.rows + (embedder.mapped ? 0 : embedder.weights)},
        "set retrieval.embedder_dtype to bf16 or lower retrieval.embedder_tokens, or take a smaller embedder");
    if (measure_reranker(c, b, parts, e)) return e->status;
    budget_add(parts, (struct budget_part){.name = "document index", .bytes = collection->index, .on_host = true},
               "build the collection with an index that compresses (retro-index build --index ivfpq)");
    if (collection->changes > 0)
        budget_add(parts,
                   (struct budget_part){.name = "changed documents", .bytes = collection->changes, .on_host = true},
                   "retro-index compact writes them into the index");
    /* Twelve bytes for each word of a chunk while they are sorted, and eight behind that. */
    if (c->retrieval.hybrid)
        budget_add(parts,
                   (struct budget_part){.name = "words of documents", .bytes = 4 * collection->text, .on_host = true},
                   "set retrieval.hybrid to false");
    budget_add(parts,
               (struct budget_part){.name = "documents", .bytes = collection->mapped, .on_host = true, .mapped = true},
               "they are read as needed");
    budget_add_program(parts, (const char *const[]){c->model.path, folder}, 2);
    return STATUS_OK;
}

enum status documents_measure(const struct config *c, struct backend *b, struct budget_parts *parts, struct error *e) {
    struct collection_outline collection;
    if (!documents_wanted(c)) {
        budget_add_program(parts, (const char *const[]){c->model.path}, 1);
        return STATUS_OK;
    }
    if (collection_outline_read(&collection, c->retrieval.collection, e)) return e->status;
    enum status status = measure_collection(c, &collection, b, parts, e);
    collection_outline_free(&collection);
    return status;
}
