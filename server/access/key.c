/* server/access/key.c: keys, and what they have used of their limits. See key.h. */
#include "server/access/key.h"

#include <inttypes.h>
#include <math.h>
#include <nettle/memops.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/base/hash.h"

static const double minute = 60, day = 86400;

/* A budget that fills up evenly over `period` seconds. */
struct allowance {
    double used, since; /* so much, as of then */
};

struct key_usage {
    pthread_mutex_t lock; /* guards all but references */
    atomic_int references;
    struct allowance requests, minute_tokens, day_tokens;
    struct key_counts counts;
};

void key_hash(struct text_span secret, uint8_t hash[KEY_HASH_BYTES]) {
    sha256_hash(&secret, 1, hash);
}

const char key_owner_name[] = "$owner";

static atomic_bool parted; /* documents have owners */

void keys_part(void) { atomic_store(&parted, true); }

struct filter *key_filter(const struct key *key) {
    if (!atomic_load(&parted)) return key->filter;
    CHECK(key->own_filter);
    return key->own_filter;
}

/* Hashed once more: whoever reads the owner of a document learns nothing of the key. */
void key_finish(struct key *key) {
    uint64_t halves[2] = {hash_bytes(key->hash, sizeof key->hash, 1),
                          hash_bytes(key->hash, sizeof key->hash, 2)};
    snprintf(key->owner, sizeof key->owner, "%016" PRIx64 "%016" PRIx64, halves[0], halves[1]);
    key->own_filter = filter_owned(key->filter, key_owner_name, key->owner);
}

bool key_hash_is(const uint8_t a[KEY_HASH_BYTES], const uint8_t b[KEY_HASH_BYTES]) {
    return memeql_sec(a, b, KEY_HASH_BYTES) != 0;
}

/* Allowances. */

static void allowance_refill(struct allowance *allowance, double limit, double period, double now) {
    allowance->used = fmax(0, allowance->used - limit * (now - allowance->since) / period);
    allowance->since = now;
}

/* Seconds until `wanted` more fit, 0 when they do. */
static double allowance_wait(struct allowance *allowance, double limit, double period,
                             double wanted, double now) {
    if (limit == 0) return 0;
    allowance_refill(allowance, limit, period, now);
    return fmax(0, (allowance->used + wanted - limit) * period / limit);
}

/* Keys. */

struct key *key_open(void) {
    struct key *key = xcalloc(1, sizeof *key);
    atomic_init(&key->references, 1);
    key->usage = xcalloc(1, sizeof *key->usage);
    atomic_init(&key->usage->references, 1);
    pthread_mutex_init(&key->usage->lock, NULL);
    return key;
}

static void usage_release(struct key_usage *usage) {
    if (atomic_fetch_sub(&usage->references, 1) != 1) return;
    pthread_mutex_destroy(&usage->lock);
    free(usage);
}

void key_share_usage(struct key *key, const struct key *before) {
    usage_release(key->usage);
    key->usage = before->usage;
    atomic_fetch_add(&key->usage->references, 1);
}

void key_hold(struct key *key) { atomic_fetch_add(&key->references, 1); }

void key_release(struct key *key) {
    if (key == NULL || atomic_fetch_sub(&key->references, 1) != 1) return;
    usage_release(key->usage);
    filter_release(key->filter);
    filter_release(key->own_filter);
    free(key->name);
    free(key);
}

/* Limits. */

static bool refuse(struct key_refusal *refusal, const char *what, const char *field, int64_t limit,
                   double wait) {
    *refusal = (struct key_refusal){what, field, limit, (int)fmax(1, ceil(wait))};
    return false;
}

/* One token has to be left of a budget of tokens: how many the request takes is not known yet. */
static bool usage_allows(struct key_usage *usage, const struct key_limits *limits, double now,
                         struct key_refusal *refusal) {
    double wait;
    if (limits->concurrent > 0 && usage->counts.concurrent >= limits->concurrent)
        return refuse(refusal, "requests at a time", "concurrent", limits->concurrent, 1);
    wait = allowance_wait(&usage->requests, limits->requests_per_minute, minute, 1, now);
    if (wait > 0)
        return refuse(refusal, "requests a minute", "requests_per_minute",
                      limits->requests_per_minute, wait);
    wait = allowance_wait(&usage->minute_tokens, (double)limits->tokens_per_minute, minute, 1, now);
    if (wait > 0)
        return refuse(refusal, "tokens a minute", "tokens_per_minute", limits->tokens_per_minute,
                      wait);
    wait = allowance_wait(&usage->day_tokens, (double)limits->tokens_per_day, day, 1, now);
    if (wait > 0)
        return refuse(refusal, "tokens a day", "tokens_per_day", limits->tokens_per_day, wait);
    return true;
}

bool key_enter(struct key *key, struct key_refusal *refusal) {
    struct key_usage *usage = key->usage;
    pthread_mutex_lock(&usage->lock);
    bool allowed = usage_allows(usage, &key->limits, time_now(), refusal);
    if (allowed) {
        usage->requests.used++;
        usage->counts.requests++;
        usage->counts.concurrent++;
    } else {
        usage->counts.refused++;
    }
    pthread_mutex_unlock(&usage->lock);
    return allowed;
}

void key_leave(struct key *key) {
    pthread_mutex_lock(&key->usage->lock);
    key->usage->counts.concurrent--;
    pthread_mutex_unlock(&key->usage->lock);
}

void key_charge(struct key *key, int64_t tokens) {
    struct key_usage *usage = key->usage;
    pthread_mutex_lock(&usage->lock);
    usage->minute_tokens.used += (double)tokens;
    usage->day_tokens.used += (double)tokens;
    usage->counts.tokens += tokens;
    pthread_mutex_unlock(&usage->lock);
}

void key_note_stored(struct key *key, int64_t bytes) {
    pthread_mutex_lock(&key->usage->lock);
    key->usage->counts.stored = bytes;
    pthread_mutex_unlock(&key->usage->lock);
}

struct key_counts key_counts(struct key *key) {
    pthread_mutex_lock(&key->usage->lock);
    struct key_counts counts = key->usage->counts;
    pthread_mutex_unlock(&key->usage->lock);
    return counts;
}
