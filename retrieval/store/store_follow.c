/* retrieval/store/store_follow.c: turning to the generation that another program has written, and
 * to the embedder that it was made with. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store_private.h"

/* A generation with its changes. */
static enum status load_generation(const struct store *store, struct epoch **out,
                                   struct change_log_end *end, struct error *e) {
    struct disk_generation *generation;
    if (disk_generation_open(&generation, store->dir, e)) return e->status;
    if (store->device && disk_generation_move(generation, store->device, e)) {
        disk_generation_close(generation);
        return e->status;
    }
    return epoch_load(out, generation, end, e);
}

/* Another program may remove the generation, with its log, before the log is read. Then CURRENT
 * names another one. */
static bool was_removed(const struct store *store, const struct epoch *epoch) {
    struct generation_origin now;
    struct error e;
    return current_read(store->dir, &now.generation, &now.manifest_checksum, &e) == STATUS_OK &&
           now.generation != disk_generation_info(epoch->generation)->generation;
}

enum status store_load_newest(const struct store *store, struct epoch **out,
                              struct change_log_end *end, struct error *e) {
    enum status status = load_generation(store, out, end, e);
    while (status == STATUS_OK && was_removed(store, *out)) {
        epoch_release(*out);
        status = load_generation(store, out, end, e);
    }
    if (status == STATUS_OK && end->damaged)
        log_warn("%s: the log of changes is damaged behind change %" PRIu64 ": %" PRIu64
                 " bytes are not read; retro-index verify --repair cuts them off",
                 disk_generation_folder((*out)->generation), end->sequence, end->torn);
    return status;
}

/* Following. */

/* Whether the epoch is of this generation. Numbers alone do not tell: after a repair one may come a
 * second time. */
static bool is_of(const struct epoch *epoch, struct generation_origin origin) {
    return origin_equal(disk_generation_origin(epoch->generation), origin);
}

/* Takes the epoch over where it is what CURRENT names now, and the newest epoch is not or went
 * astray. A change that is about to open the log turns by itself: an epoch that was read before the
 * folder was locked may lack what came since. */
static bool take_followed(struct store *store, struct epoch *epoch,
                          const struct change_log_end *end, bool has_folder) {
    struct generation_origin now;
    struct error e;
    if (store->log || (store->locking && !has_folder)) return false;
    if (current_read(store->dir, &now.generation, &now.manifest_checksum, &e) || !is_of(epoch, now))
        return false;
    if (is_of(store->epoch, now) && !store->astray) return false;
    store_turn(store, epoch, end);
    store->gone.n += GONE_MOST + 1; /* nobody can tell what has gone */
    return true;
}

/* Whether the embedder of the generation could not be opened a short time ago. */
static bool was_refused(const struct store *store, struct generation_origin origin) {
    return store->refused.until > time_now() && origin_equal(store->refused.origin, origin);
}

/* The embedder of an epoch to be: that of the newest one where they are made alike. */
static enum status find_embedder(struct store *store, struct epoch *epoch, struct error *e) {
    enum { AGAIN_SECONDS = 60 };
    const struct collection_info *info = disk_generation_info(epoch->generation);
    struct error why;
    if (store->source.open == NULL) return STATUS_OK;
    pthread_mutex_lock(&store->lock);
    struct held_embedder *now = embedder_hold(store->epoch->embedder);
    pthread_mutex_unlock(&store->lock);
    if (collection_match_embedder(info, &now->embedder, &why) == STATUS_OK) {
        epoch->embedder = now;
        return STATUS_OK;
    }
    embedder_release(now);
    enum status status = store->source.open(store->source.context, info, &epoch->embedder, e);
    if (status == STATUS_OK) return STATUS_OK;
    pthread_mutex_lock(&store->lock);
    store->refused = (struct refused_generation){disk_generation_origin(epoch->generation),
                                                 time_now() + AGAIN_SECONDS, *e};
    pthread_mutex_unlock(&store->lock);
    return status;
}

enum status store_follow(struct store *store, bool has_folder, struct error *e) {
    struct generation_origin origin;
    struct epoch *epoch;
    struct change_log_end end;
    store_tidy(store);
    if (current_read(store->dir, &origin.generation, &origin.manifest_checksum, e))
        return e->status;
    pthread_mutex_lock(&store->lock);
    bool newest = is_of(store->epoch, origin) && !store->astray;
    bool refused = !newest && was_refused(store, origin);
    if (refused) *e = store->refused.why;
    pthread_mutex_unlock(&store->lock);
    if (newest || refused) return refused ? e->status : STATUS_OK;

    if (store_load_newest(store, &epoch, &end, e)) return e->status;
    if (find_embedder(store, epoch, e)) {
        epoch_release(epoch);
        return e->status;
    }
    pthread_mutex_lock(&store->lock);
    /* Changes of this program that began meanwhile have turned to it themselves. */
    bool taken = take_followed(store, epoch, &end, has_folder);
    pthread_mutex_unlock(&store->lock);
    if (!taken) epoch_release(epoch);
    store_tidy(store);
    return STATUS_OK;
}

void store_follow_embedders(struct collection *collection, const struct embedder_source *source,
                            struct held_embedder *first) {
    struct store *store = store_of(collection);
    pthread_mutex_lock(&store->lock);
    CHECK(store->epoch->embedder == NULL);
    store->source = *source;
    store->epoch->embedder = first;
    store_renew(store);
    pthread_mutex_unlock(&store->lock);
}

/* A generation that was refused is told of once each time that its embedder was sought. */
enum status store_follow_folder(struct collection *collection, struct error *e) {
    struct store *store = store_of(collection);
    pthread_mutex_lock(&store->lock);
    double until = store->refused.until;
    pthread_mutex_unlock(&store->lock);
    enum status status = store_follow(store, false, e);
    pthread_mutex_lock(&store->lock);
    bool told = status != STATUS_OK && until > 0 && until == store->refused.until &&
                strcmp(e->text, store->refused.why.text) == 0;
    pthread_mutex_unlock(&store->lock);
    return told ? STATUS_OK : status;
}
