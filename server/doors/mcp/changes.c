/* server/doors/mcp/changes.c: see changes.h. */
#include "server/doors/mcp/changes.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "server/doors/mcp/state.h"
#include "server/doors/mcp/words.h"

static const double tick_seconds = 0.2, idle_seconds = 60, comment_seconds = 15;
enum { SHARE_OF_TIME = 10 }; /* one part in so many is spent on walks */

/* Listeners. */

struct mcp_listener *mcp_listener_open(const struct principal *who) {
    struct mcp_listener *listener = xcalloc(1, sizeof *listener);
    listener->who = principal_hold(*who);
    listener->references = 1;
    listener->version = -1;
    return listener;
}

void mcp_listener_drop(struct mcp_listener *listener) {
    listener->references--;
    if (listener->references > 0) return;
    for (int i = 0; i < listener->n_watched; i++) free(listener->watched[i].uri);
    principal_release(&listener->who);
    free(listener->watched);
    free(listener);
}

void mcp_listener_release(struct mcp *mcp, struct mcp_listener *listener) {
    pthread_mutex_lock(&mcp->lock);
    mcp_listener_drop(listener);
    pthread_mutex_unlock(&mcp->lock);
}

static void wake(struct mcp_listener *listener) {
    if (listener->owner) listener->waker.wake(listener->waker.context);
}

void mcp_listener_end(struct mcp_listener *listener) {
    listener->ended = true;
    wake(listener);
}

/* A document by its id, or by its path. */
static uint64_t key_of(const char *name, bool is_path) {
    return hash_bytes(name, strlen(name), is_path ? 1 : 0);
}

static int find_watched(const struct mcp_listener *listener, const char *uri) {
    for (int i = 0; i < listener->n_watched; i++)
        if (strcmp(listener->watched[i].uri, uri) == 0) return i;
    return -1;
}

bool mcp_listener_watch(struct mcp *mcp, struct mcp_listener *listener, const char *uri,
                        struct mcp_fault *fault) {
    struct mcp_uri parts;
    bool ok = mcp_uri_parse(&parts, (struct text_span){uri, strlen(uri)});
    pthread_mutex_lock(&mcp->lock);
    bool known = find_watched(listener, uri) >= 0;
    if (!ok) {
        mcp_fault_set(fault, MCP_NOT_FOUND, "there is no resource %.300s", uri);
    } else if (!known && listener->n_watched == MCP_SUBSCRIPTIONS) {
        ok = mcp_fault_set(fault, MCP_BAD_PARAMS, "at most %d resources can be subscribed to",
                           MCP_SUBSCRIPTIONS);
    } else if (!known) {
        listener->watched = xgrow(listener->watched, listener->n_watched, &listener->capacity,
                                  sizeof *listener->watched);
        listener->watched[listener->n_watched] = (struct mcp_watched){
            .uri = xstrdup(uri), .key = key_of(parts.name.data, parts.place == MCP_PATH)};
        listener->n_watched++;
    }
    pthread_mutex_unlock(&mcp->lock);
    mcp_uri_free(&parts);
    return ok;
}

void mcp_listener_unwatch(struct mcp *mcp, struct mcp_listener *listener, const char *uri) {
    pthread_mutex_lock(&mcp->lock);
    int i = find_watched(listener, uri);
    if (i >= 0) {
        free(listener->watched[i].uri);
        listener->n_watched--;
        listener->watched[i] = listener->watched[listener->n_watched];
    }
    pthread_mutex_unlock(&mcp->lock);
}

/* Clients with keys leave places for each other. */
static int places_of(const struct mcp *mcp, const struct principal *who) {
    int most = mcp->options.max_listeners;
    return who->key ? max_int(1, most / 4) : most;
}

bool mcp_listener_attach(struct mcp *mcp, struct mcp_listener *listener, const void *owner,
                         struct waker waker, struct mcp_fault *fault) {
    int of_client = 0;
    pthread_mutex_lock(&mcp->lock);
    for (struct mcp_listener *other = mcp->listeners; other; other = other->next)
        of_client += other->who.client == listener->who.client;
    bool room = listener->owner || (mcp->n_listeners < mcp->options.max_listeners &&
                                    of_client < places_of(mcp, &listener->who));
    if (!room) {
        mcp_fault_set(fault, MCP_INTERNAL,
                      "%d streams wait for changes, %d of them yours: the limit is "
                      "server.max_listeners, of which a key has a quarter",
                      mcp->n_listeners, of_client);
        fault->http = 503;
        fault->retry_after = 1;
    } else if (listener->owner) {
        wake(listener); /* the one before sees that it is not the owner any more */
    } else {
        listener->next = mcp->listeners;
        listener->references++;
        mcp->listeners = listener;
        mcp->n_listeners++;
    }
    if (room) {
        listener->owner = owner;
        listener->waker = waker;
        listener->said = time_now();
    }
    pthread_mutex_unlock(&mcp->lock);
    bell_ring(&mcp->bell);
    return room;
}

void mcp_listener_detach(struct mcp *mcp, struct mcp_listener *listener, const void *owner) {
    pthread_mutex_lock(&mcp->lock);
    if (listener->owner == owner) {
        struct mcp_listener **at = &mcp->listeners;
        while (*at != listener) at = &(*at)->next;
        *at = listener->next;
        mcp->n_listeners--;
        listener->owner = NULL;
        mcp_listener_drop(listener);
    }
    pthread_mutex_unlock(&mcp->lock);
}

/* Looking. */

/* Documents of which anybody wants to know, by their keys. */
struct sum {
    uint64_t key, digest;
};

struct look_over {
    uint64_t list;    /* of all that were seen, in any order */
    struct sum *sums; /* [n_sums] in the order of keys */
    int n_sums;
};

static uint64_t hash_text(const char *text, uint64_t seed) {
    return hash_bytes(text, strlen(text), seed);
}

/* Of all that a list shows of a document. */
static uint64_t list_digest(const struct stored_document *document) {
    uint64_t digest = hash_text(document->id, document->text.size);
    return hash_text(document->title, hash_text(document->path, digest));
}

/* All that can be read of it; never 0. */
static uint64_t whole_digest(const struct stored_document *document) {
    uint64_t digest = hash_text(document->metadata, list_digest(document));
    digest = document->text.text
                 ? hash_bytes(document->text.text, document->text.size, digest)
                 : hash_text(document->text_hash ? document->text_hash : "", digest);
    return digest ? digest : 1;
}

static int compare_sums(const void *left, const void *right) {
    uint64_t a = ((const struct sum *)left)->key, b = ((const struct sum *)right)->key;
    return (a > b) - (a < b);
}

static struct sum *find_sum(const struct look_over *look, uint64_t key) {
    return look->n_sums == 0 ? NULL
                             : bsearch(&(struct sum){.key = key}, look->sums, (size_t)look->n_sums,
                                       sizeof *look->sums, compare_sums);
}

/* Several documents may have one path: their digests are added. */
static enum status sum_document(void *context, const struct stored_document *document,
                                struct error *e) {
    struct look_over *look = context;
    (void)e;
    look->list += list_digest(document);
    if (look->n_sums == 0) return STATUS_OK;
    struct sum *by_id = find_sum(look, key_of(document->id, false)),
               *by_path = find_sum(look, key_of(document->path, true));
    uint64_t whole = by_id || by_path ? whole_digest(document) : 0;
    if (by_id) by_id->digest += whole;
    if (by_path) by_path->digest += whole;
    return STATUS_OK;
}

/* With the lock. */

static void add_sums(struct look_over *look, const struct mcp_listener *listener) {
    look->sums = xrealloc(
        look->sums, ((size_t)look->n_sums + (size_t)listener->n_watched + 1) * sizeof *look->sums);
    for (int i = 0; i < listener->n_watched; i++) {
        look->sums[look->n_sums] = (struct sum){.key = listener->watched[i].key};
        look->n_sums++;
    }
}

static void sort_sums(struct look_over *look) {
    int n = 0;
    if (look->n_sums == 0) return;
    qsort(look->sums, (size_t)look->n_sums, sizeof *look->sums, compare_sums);
    for (int i = 0; i < look->n_sums; i++) {
        if (n > 0 && look->sums[n - 1].key == look->sums[i].key) continue;
        look->sums[n] = look->sums[i];
        n++;
    }
    look->n_sums = n;
}

static void take_sums(struct mcp_listener *listener, const struct look_over *look,
                      int64_t version) {
    bool news = listener->based && listener->list != look->list && listener->wants_list;
    listener->list_changed = listener->list_changed || news;
    listener->list = look->list;
    listener->based = true;
    listener->version = version;
    for (int i = 0; i < listener->n_watched; i++) {
        struct mcp_watched *watched = &listener->watched[i];
        const struct sum *sum = find_sum(look, watched->key);
        if (sum == NULL) { /* it was added meanwhile */
            listener->version = -1;
            continue;
        }
        bool updated = watched->based && watched->digest != sum->digest;
        watched->updated = watched->updated || updated;
        watched->digest = sum->digest;
        watched->based = true;
        news = news || updated;
    }
    if (news) wake(listener);
}

/* Walks over what the listeners [n], all of one filter, can see. The caller holds them. */
static bool look_at(struct mcp *mcp, struct mcp_listener *const *listeners, int n) {
    struct collection *collection = mcp->options.api->models[0].collection;
    struct look_over look = {0};
    struct error e;
    pthread_mutex_lock(&mcp->lock);
    for (int i = 0; i < n; i++) add_sums(&look, listeners[i]);
    pthread_mutex_unlock(&mcp->lock);
    sort_sums(&look);

    struct snapshot *snapshot = collection_hold(collection);
    struct collection_walk walk = {.filter = principal_filter(&listeners[0]->who),
                                   .snapshot = snapshot,
                                   .take = sum_document,
                                   .context = &look};
    enum status status = collection_walk(collection, &walk, &e);
    pthread_mutex_lock(&mcp->lock);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        take_sums(listeners[i], &look, snapshot->version);
    pthread_mutex_unlock(&mcp->lock);
    snapshot_release(snapshot);
    free(look.sums);
    return status == STATUS_OK;
}

void mcp_listener_base(struct mcp *mcp, struct mcp_listener *listener) {
    struct collection *collection = mcp->options.api->models[0].collection;
    if (collection && !collection_is_remote(collection)) look_at(mcp, &listener, 1);
}

/* The thread. */

/* Holds those that have not seen the version and share a filter with the first of them; returns how
 * many. */
static int hold_group(struct mcp *mcp, int64_t version, struct mcp_listener **group) {
    double now = time_now();
    int n = 0;
    pthread_mutex_lock(&mcp->lock);
    for (struct mcp_listener *listener = mcp->listeners; listener; listener = listener->next) {
        if (listener->version == version || now < listener->quiet_until) continue;
        if (n > 0 &&
            !filter_is_same(principal_filter(&group[0]->who), principal_filter(&listener->who)))
            continue;
        listener->references++;
        group[n] = listener;
        n++;
    }
    pthread_mutex_unlock(&mcp->lock);
    return n;
}

static void drop_group(struct mcp *mcp, struct mcp_listener *const *group, int n) {
    pthread_mutex_lock(&mcp->lock);
    for (int i = 0; i < n; i++) mcp_listener_drop(group[i]);
    pthread_mutex_unlock(&mcp->lock);
}

/* Those of one filter after those of another, and what came meanwhile not before the next time. */
static void look_for_changes(struct mcp *mcp, struct mcp_listener **group) {
    struct collection *collection = mcp->options.api->models[0].collection;
    if (collection == NULL) return;
    struct snapshot *snapshot = collection_hold(collection);
    int64_t version = snapshot->version;
    snapshot_release(snapshot);
    for (int left = mcp->options.max_listeners; left > 0;) {
        int n = hold_group(mcp, version, group);
        if (n == 0) return;
        bool ok = look_at(mcp, group, n);
        drop_group(mcp, group, n);
        left = ok ? left - n : 0;
    }
}

/* Streams say something now and then, and end with the server and with their key. */
static void tend(struct mcp *mcp) {
    struct api *api = mcp->options.api;
    double now = time_now();
    pthread_mutex_lock(&mcp->lock);
    for (struct mcp_listener *listener = mcp->listeners; listener; listener = listener->next) {
        const struct key *key = listener->who.key;
        if (mcp->stopped || atomic_load(&api->draining) || (key && !keyring_has(api->keys, key)))
            listener->ended = true;
        if (listener->ended || now - listener->said >= comment_seconds) wake(listener);
    }
    pthread_mutex_unlock(&mcp->lock);
}

static bool is_stopped(struct mcp *mcp, bool *waits) {
    pthread_mutex_lock(&mcp->lock);
    bool stopped = mcp->stopped;
    *waits = mcp->n_listeners > 0;
    pthread_mutex_unlock(&mcp->lock);
    return stopped;
}

void *mcp_watch(void *context) {
    struct mcp *mcp = context;
    struct mcp_listener **group =
        xcalloc((size_t)mcp->options.max_listeners + 1, sizeof(struct mcp_listener *));
    bool waits;
    double next = 0;
    while (!is_stopped(mcp, &waits)) {
        bell_wait_for(&mcp->bell, waits ? tick_seconds : idle_seconds);
        tend(mcp);
        double start = time_now();
        if (start < next) continue;
        look_for_changes(mcp, group);
        next = start + (time_now() - start) * SHARE_OF_TIME;
    }
    free(group);
    return NULL;
}
