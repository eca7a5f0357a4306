/* retrieval/collection_match.c: what a collection was made with, for another one, and beside what
 * is open now. */
#include <inttypes.h>
#include <string.h>

#include "config/base/hash.h"
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

static uint64_t hash_vector_facts(uint64_t hash, int dim, const char *query_prompt,
                                  const char *document_prompt) {
    struct buffer facts = {0};
    buffer_printf(&facts, "%016" PRIx64 " %d %zu %s\n%s", hash, dim, strlen(query_prompt),
                  query_prompt, document_prompt);
    uint64_t mark = hash_bytes(facts.data, facts.size, 0);
    buffer_free(&facts);
    return mark ? mark : 1;
}

uint64_t collection_vector_mark(const struct collection_info *info) {
    return hash_vector_facts(info->embedder_hash, info->dim, info->query_prompt,
                             info->document_prompt);
}

uint64_t embedder_vector_mark(const struct embedder *embedder) {
    return hash_vector_facts(embedder->hash, embedder->dim, embedder->prompts[EMBED_QUERY],
                             embedder->prompts[EMBED_DOCUMENT]);
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
                                       .sparse = info->sparse,
                                       .pictures = info->pictures};
}

static bool same_space(const struct picture_space *left, const struct picture_space *right) {
    if (left->embedder == NULL || right->embedder == NULL) return left->embedder == right->embedder;
    return left->embedder_hash == right->embedder_hash && left->dim == right->dim &&
           strcmp(left->query_prompt, right->query_prompt) == 0 &&
           strcmp(left->document_prompt, right->document_prompt) == 0;
}

bool collection_is_made_so(const struct collection_info *info,
                           const struct collection_options *options) {
    return info->embedder_hash == options->embedder_hash &&
           info->tokenizer_hash == options->tokenizer_hash && info->dim == options->dim &&
           info->chunk_length == options->chunk_length && info->cut == options->cut &&
           info->context == options->context && info->overlap == options->overlap &&
           info->eod == options->eod && strcmp(info->query_prompt, options->query_prompt) == 0 &&
           strcmp(info->document_prompt, options->document_prompt) == 0 &&
           same_space(&info->pictures, &options->pictures);
}
