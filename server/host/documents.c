/* server/host/documents.c: opens what a model retrieves from. See documents.h. */
#include "server/host/documents.h"

#include "server/host/embedder_bert.h"

bool documents_wanted(const struct config *c, const struct model_info *model) {
    return c->retrieval.collection[0] != '\0' && model->chunk_length > 0;
}

const char *documents_embedder(const struct config *c, const char *of_collection) {
    return c->retrieval.embedder[0] ? c->retrieval.embedder : of_collection;
}

enum status documents_open(struct documents *d, const struct config *c, const struct model_info *model,
                           const struct tokenizer *tokenizer, int max_k, struct error *e) {
    const char *folder = c->retrieval.collection;
    *d = (struct documents){0};
    if (collection_open(&d->collection, folder, e)) return e->status;
    if (collection_move(d->collection, c->retrieval.device, e)) return error_prefix(e, "retrieval.device");
    const struct collection_info *info = collection_info(d->collection);
    if (embedder_bert_open(&d->embedder, documents_embedder(c, info->embedder), c, e))
        return error_prefix(e, "embedder");
    if (collection_match(d->collection, d->embedder.hash, tokenizer_hash(tokenizer), model->chunk_length, e))
        return error_prefix(e, "%s", folder);
    if (info->max_token >= model->padded_vocab)
        return error_set(e, STATUS_INVALID, "%s holds token %d, the model's vocabulary is %d", folder, info->max_token,
                         model->padded_vocab);
    return retriever_open(&d->retriever, d->collection, &d->embedder, model->retrieved_length, max_k, e);
}

void documents_close(struct documents *d) {
    retriever_close(d->retriever);
    embedder_bert_close(&d->embedder);
    collection_close(d->collection);
    *d = (struct documents){0};
}
