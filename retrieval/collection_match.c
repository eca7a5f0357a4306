/* retrieval/collection_match.c: what a collection was made with, for another one, and beside what
 * is open now. */
#include <inttypes.h>
#include <string.h>

#include "retrieval/collection.h"

static enum status match_prompt(const char *option, const char *built, const char *now,
                                struct error *e) {
    if (strcmp(built, now) == 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "the collection was built with %s \"%.80s\", the embedder has \"%.80s\" now; "
                     "set that option as it "
                     "was, or build the collection again with retro-index",
                     option, built, now);
}

enum status collection_match_embedder(const struct collection_info *info,
                                      const struct embedder *embedder, struct error *e) {
    if (info->embedder_hash != embedder->hash)
        return error_set(e, STATUS_INVALID,
                         "the collection was built with another embedder (%s, hash %016" PRIx64
                         ", this one has %016" PRIx64 "); build it again with retro-index",
                         info->embedder, info->embedder_hash, embedder->hash);
    if (info->dim != embedder->dim)
        return error_set(
            e, STATUS_INVALID,
            "the collection was built with vectors of %d numbers, the embedder gives %d: set "
            "retrieval.embedder_dimensions as it was, or build the collection again with "
            "retro-index",
            info->dim, embedder->dim);
    if (match_prompt("retrieval.query_prompt", info->query_prompt, embedder->prompts[EMBED_QUERY],
                     e) ||
        match_prompt("retrieval.document_prompt", info->document_prompt,
                     embedder->prompts[EMBED_DOCUMENT], e))
        return e->status;
    return STATUS_OK;
}

enum status collection_match_picture_embedder(const struct collection_info *info,
                                              const struct embedder *embedder, struct error *e) {
    const struct picture_space *space = &info->pictures;
    if (space->embedder == NULL && embedder == NULL) return STATUS_OK;
    if (space->embedder == NULL)
        return error_set(
            e, STATUS_INVALID,
            "the collection was built without an embedder for its pictures alone: leave "
            "retrieval.picture_embedder out, or build the collection again with retro-index "
            "--picture-embedder");
    if (embedder == NULL)
        return error_set(e, STATUS_INVALID,
                         "the pictures of the collection have an embedder of their own, %s",
                         space->embedder);
    if (space->embedder_hash != embedder->hash || space->dim != embedder->dim)
        return error_set(
            e, STATUS_INVALID,
            "the pictures of the collection were embedded by another embedder (%s, hash %016" PRIx64
            ", %d numbers; this one has %016" PRIx64
            ", %d numbers); build it again with retro-index",
            space->embedder, space->embedder_hash, space->dim, embedder->hash, embedder->dim);
    bool same = strcmp(space->query_prompt, embedder->prompts[EMBED_QUERY]) == 0 &&
                strcmp(space->document_prompt, embedder->prompts[EMBED_DOCUMENT]) == 0;
    return same ? STATUS_OK
                : error_set(e, STATUS_INVALID,
                            "the folder of the pictures' embedder, %s, has other prompts than when "
                            "the collection was "
                            "built; build it again with retro-index",
                            embedder->name);
}

enum status collection_match_tokens(const struct collection_info *info, uint64_t tokenizer_hash,
                                    int chunk_length, struct error *e) {
    if (info->tokenizer_hash != tokenizer_hash)
        return error_set(e, STATUS_INVALID,
                         "the collection was built with another tokenizer (hash %016" PRIx64
                         ", the model's has %016" PRIx64 "); build it again with retro-index",
                         info->tokenizer_hash, tokenizer_hash);
    if (info->chunk_length != chunk_length)
        return error_set(e, STATUS_INVALID,
                         "the collection has chunks of %d tokens, the model reads %d; build it "
                         "again with retro-index "
                         "--chunk-length %d",
                         info->chunk_length, chunk_length, chunk_length);
    return STATUS_OK;
}

struct collection_options collection_options_of(const struct collection_info *info) {
    return (struct collection_options){.chunk_length = info->chunk_length,
                                       .cut = info->cut,
                                       .context = info->context,
                                       .overlap = info->overlap,
                                       .eod = info->eod,
                                       .dim = info->dim,
                                       .embedder_hash = info->embedder_hash,
                                       .tokenizer_hash = info->tokenizer_hash,
                                       .query_prompt = info->query_prompt,
                                       .document_prompt = info->document_prompt,
                                       .embedder = info->embedder,
                                       .tokenizer = info->tokenizer,
                                       .pictures = info->pictures};
}
