/* retrieval/open/collection_open.c: see collection_open.h. */
#include "retrieval/open/collection_open.h"

#include "retrieval/milvus/client/address.h"
#include "retrieval/store/store.h"

bool collection_name_is_remote(const char *name) { return milvus_address_is(name); }

enum status collection_open(struct collection **out, const char *name,
                            const struct milvus_settings *settings, struct error *e) {
    return collection_name_is_remote(name) ? milvus_collection_open(out, name, settings, e)
                                           : store_open(out, name, e);
}

enum status collection_outline_read(struct collection_outline *out, const char *name,
                                    const struct milvus_settings *settings, struct error *e) {
    struct collection *collection;
    if (!collection_name_is_remote(name)) return generation_outline_read(out, name, e);
    if (milvus_collection_open(&collection, name, settings, e)) return e->status;
    struct snapshot *snapshot = collection_hold(collection);
    struct collection_info *info = &out->info;
    *out = (struct collection_outline){.info = *snapshot->info};
    info->embedder = xstrdup(info->embedder);
    info->tokenizer = xstrdup(info->tokenizer);
    info->query_prompt = xstrdup(info->query_prompt);
    info->document_prompt = xstrdup(info->document_prompt);
    info->index_factory = xstrdup(info->index_factory);
    snapshot_release(snapshot);
    collection_close(collection);
    return STATUS_OK;
}
