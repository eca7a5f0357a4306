/* server/host/prompt/conversations.c: a table of turns with a list by use. See conversations.h. */
#include "server/host/prompt/conversations.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"

enum { FIRST_BUCKETS = 64 };

/* A turn in the table. */
struct kept_turn {
    struct read_turn *turn;
    struct kept_turn *next_alike; /* of the bucket */
    struct kept_turn *newer, *older;
    size_t bytes;
};

struct conversations {
    size_t most;
    bool of_filter;
    pthread_mutex_t lock;       /* all below */
    struct kept_turn **buckets; /* [n_buckets] a power of two */
    size_t n_buckets;
    struct kept_turn *newest, *oldest; /* by use */
    size_t bytes;
    int64_t n, evicted, rewritten, unrewritten;
};

/* Turns. */

struct read_turn *read_turn_open(struct turn_key key) {
    struct read_turn *turn = xcalloc(1, sizeof *turn);
    atomic_init(&turn->references, 1);
    turn->key = key;
    return turn;
}

struct read_turn *read_turn_hold(struct read_turn *turn) {
    atomic_fetch_add(&turn->references, 1);
    return turn;
}

void read_turn_release(struct read_turn *turn) {
    if (turn == NULL || atomic_fetch_sub(&turn->references, 1) != 1) return;
    for (int i = 0; i < turn->n; i++) free(turn->passages[i].document);
    free(turn->passages);
    free(turn->again);
    free(turn);
}

static size_t count_bytes(const struct read_turn *turn) {
    size_t bytes = sizeof(struct kept_turn) + sizeof *turn +
                   (size_t)turn->n * sizeof *turn->passages +
                   (size_t)turn->n_again * sizeof *turn->again;
    for (int i = 0; i < turn->n; i++) bytes += strlen(turn->passages[i].document) + 1;
    return bytes;
}

/* Keys. */

struct turn_key turn_key_add(struct turn_key key, struct text_span text) {
    const char *bytes = text.text ? text.text : "";
    uint64_t size = text.size;
    return (struct turn_key){
        hash_bytes(bytes, text.size, hash_bytes(&size, sizeof size, key.first)),
        hash_bytes(bytes, text.size, hash_bytes(&size, sizeof size, ~key.second))};
}

struct turn_key conversations_begin(const struct conversations *conversations,
                                    const struct principal *who) {
    struct buffer scope = {0};
    struct turn_key key = {0};
    if (principal_scope(who, conversations->of_filter, &scope))
        key = turn_key_add(key, (struct text_span){scope.data, scope.size});
    buffer_free(&scope);
    return key;
}

/* The table. */

struct conversations *conversations_open(size_t bytes, bool of_filter) {
    struct conversations *conversations = xcalloc(1, sizeof *conversations);
    conversations->most = bytes;
    conversations->of_filter = of_filter;
    conversations->n_buckets = FIRST_BUCKETS;
    conversations->buckets = xcalloc(FIRST_BUCKETS, sizeof(struct kept_turn *));
    pthread_mutex_init(&conversations->lock, NULL);
    return conversations;
}

static struct kept_turn **bucket_of(const struct conversations *conversations,
                                    struct turn_key key) {
    return &conversations->buckets[key.first & (conversations->n_buckets - 1)];
}

/* The link to the turn of a key; to NULL: there is none. */
static struct kept_turn **find_link(const struct conversations *conversations,
                                    struct turn_key key) {
    struct kept_turn **link = bucket_of(conversations, key);
    while (*link) {
        const struct turn_key *other = &(*link)->turn->key;
        if (other->first == key.first && other->second == key.second) break;
        link = &(*link)->next_alike;
    }
    return link;
}

static void unlink_use(struct conversations *conversations, struct kept_turn *kept) {
    *(kept->newer ? &kept->newer->older : &conversations->newest) = kept->older;
    *(kept->older ? &kept->older->newer : &conversations->oldest) = kept->newer;
}

static void link_newest(struct conversations *conversations, struct kept_turn *kept) {
    kept->newer = NULL;
    kept->older = conversations->newest;
    *(kept->older ? &kept->older->newer : &conversations->oldest) = kept;
    conversations->newest = kept;
}

static void take_out(struct conversations *conversations, struct kept_turn **link) {
    struct kept_turn *kept = *link;
    *link = kept->next_alike;
    unlink_use(conversations, kept);
    conversations->bytes -= kept->bytes;
    conversations->n--;
    read_turn_release(kept->turn);
    free(kept);
}

static void grow(struct conversations *conversations) {
    if ((size_t)conversations->n < conversations->n_buckets) return;
    free(conversations->buckets);
    conversations->n_buckets *= 2;
    conversations->buckets = xcalloc(conversations->n_buckets, sizeof(struct kept_turn *));
    for (struct kept_turn *kept = conversations->newest; kept; kept = kept->older) {
        struct kept_turn **bucket = bucket_of(conversations, kept->turn->key);
        kept->next_alike = *bucket;
        *bucket = kept;
    }
}

void conversations_close(struct conversations *conversations) {
    if (conversations == NULL) return;
    while (conversations->oldest)
        take_out(conversations, find_link(conversations, conversations->oldest->turn->key));
    pthread_mutex_destroy(&conversations->lock);
    free(conversations->buckets);
    free(conversations);
}

struct read_turn *conversations_find(struct conversations *conversations, struct turn_key key) {
    pthread_mutex_lock(&conversations->lock);
    struct kept_turn *kept = *find_link(conversations, key);
    struct read_turn *turn = kept ? read_turn_hold(kept->turn) : NULL;
    if (kept) {
        unlink_use(conversations, kept);
        link_newest(conversations, kept);
    }
    pthread_mutex_unlock(&conversations->lock);
    return turn;
}

void conversations_put(struct conversations *conversations, struct read_turn *turn) {
    struct kept_turn *kept = xcalloc(1, sizeof *kept);
    *kept = (struct kept_turn){.turn = turn, .bytes = count_bytes(turn)};
    pthread_mutex_lock(&conversations->lock);
    struct kept_turn **link = find_link(conversations, turn->key);
    if (*link) take_out(conversations, link);
    grow(conversations);
    struct kept_turn **bucket = bucket_of(conversations, turn->key);
    kept->next_alike = *bucket;
    *bucket = kept;
    link_newest(conversations, kept);
    conversations->bytes += kept->bytes;
    conversations->n++;
    while (conversations->bytes > conversations->most) {
        take_out(conversations, find_link(conversations, conversations->oldest->turn->key));
        conversations->evicted++;
    }
    pthread_mutex_unlock(&conversations->lock);
}

void conversations_note_rewrite(struct conversations *conversations, bool rewritten) {
    pthread_mutex_lock(&conversations->lock);
    if (rewritten)
        conversations->rewritten++;
    else
        conversations->unrewritten++;
    pthread_mutex_unlock(&conversations->lock);
}

struct conversation_counts conversations_count(struct conversations *conversations) {
    pthread_mutex_lock(&conversations->lock);
    struct conversation_counts counts = {conversations->n, (int64_t)conversations->bytes,
                                         conversations->evicted, conversations->rewritten,
                                         conversations->unrewritten};
    pthread_mutex_unlock(&conversations->lock);
    return counts;
}
