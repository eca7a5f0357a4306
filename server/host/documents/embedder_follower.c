/* server/host/documents/embedder_follower.c: the embedders of a collection that turns from one to
 * another while a program has it open. See documents.h. */
#include <stdlib.h>

#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "server/host/documents/embedder_shared.h"

static void close_later(struct held_embedder *held) {
    embedder_unshare(&held->embedder);
    embedder_model_close(&held->embedder);
    free(held);
}

/* It is the follower's. */
static void close_first(struct held_embedder *held) { free(held); }

static struct held_embedder *hold_new(void (*close)(struct held_embedder *held)) {
    struct held_embedder *held = xcalloc(1, sizeof *held);
    atomic_init(&held->holders, 1);
    held->close = close;
    return held;
}

/* Queries bring pictures as the embedder reads them that was there at the start. */
static enum status check_sight(const struct embedder_follower *follower,
                               const struct embedder *embedder, struct error *e) {
    bool sees = follower->first->sees || embedder->sees;
    if (!sees || follower->pictures) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED, "an embedder that reads pictures is not turned to");
}

static enum status open_named(const struct embedder_follower *follower,
                              const struct collection_info *info, struct embedder *out,
                              struct error *e) {
    const struct config *config = follower->config;
    if (embedder_model_open(out, documents_embedder(config, info->embedder), config, e) ||
        collection_match_embedder(info, out, e))
        return e->status;
    return check_sight(follower, out, e);
}

static enum status open_later(void *context, const struct collection_info *info,
                              struct held_embedder **out, struct error *e) {
    const struct embedder_follower *follower = context;
    struct held_embedder *held = hold_new(close_later);
    struct error why;
    if (open_named(follower, info, &held->embedder, &why) == STATUS_OK) {
        if (follower->shares) embedder_share(&held->embedder);
        log_info("collection: generation %d has vectors of the embedder %s", info->generation,
                 held->embedder.name);
        *out = held;
        return STATUS_OK;
    }
    close_later(held);
    return error_set(
        e, STATUS_BUSY,
        "the collection has vectors of another embedder since generation %d, and this "
        "program goes on with those before: %s; let retrieval.embedder be %s, or leave "
        "it out, and restart",
        info->generation, why.text, info->embedder);
}

void embedders_follow(struct embedder_follower *follower, struct collection *collection) {
    const struct embedder_source source = {open_later, follower};
    struct held_embedder *first = hold_new(close_first);
    first->embedder = *follower->first;
    collection_follow_embedders(collection, &source, first);
}
