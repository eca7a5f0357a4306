/* server/access/key.c: keys, and what they have used of their limits. See key.h. */
#include "server/access/key.h"

#include <math.h>
#include <nettle/memops.h>
#include <pthread.h>
#include <stdlib.h>

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

void key_hash(struct text_span secret, uint8_t hash[KEY_HASH_BYTES]) { sha256_hash(&secret, 1, hash); }

bool key_hash_is(const uint8_t a[KEY_HASH_BYTES], const uint8_t b[KEY_HASH_BYTES]) {
    return memeql_sec(a, b, KEY_HASH_BYTES) != 0;
}

/* Allowances. */

static void allowance_refill(struct allowance *a, double limit, double period, double now) {
    a->used = fmax(0, a->used - limit * (now - a->since) / period);
    a->since = now;
}

/* Seconds until `wanted` more fit, 0 when they do. */
static double allowance_wait(struct allowance *a, double limit, double period, double wanted, double now) {
    if (limit == 0) return 0;
    allowance_refill(a, limit, period, now);
    return fmax(0, (a->used + wanted - limit) * period / limit);
}

/* Keys. */

struct key *key_open(void) {
    struct key *k = xcalloc(1, sizeof *k);
    atomic_init(&k->references, 1);
    k->usage = xcalloc(1, sizeof *k->usage);
    atomic_init(&k->usage->references, 1);
    pthread_mutex_init(&k->usage->lock, NULL);
    return k;
}

static void usage_release(struct key_usage *u) {
    if (atomic_fetch_sub(&u->references, 1) != 1) return;
    pthread_mutex_destroy(&u->lock);
    free(u);
}

void key_share_usage(struct key *k, const struct key *before) {
    usage_release(k->usage);
    k->usage = before->usage;
    atomic_fetch_add(&k->usage->references, 1);
}

void key_hold(struct key *k) { atomic_fetch_add(&k->references, 1); }

void key_release(struct key *k) {
    if (k == NULL || atomic_fetch_sub(&k->references, 1) != 1) return;
    usage_release(k->usage);
    filter_release(k->filter);
    free(k->name);
    free(k);
}

/* Limits. */

static bool refuse(struct key_refusal *r, const char *what, const char *field, int64_t limit, double wait) {
    *r = (struct key_refusal){what, field, limit, (int)fmax(1, ceil(wait))};
    return false;
}

/* One token has to be left of a budget of tokens: how many the request takes is not known yet. */
static bool usage_allows(struct key_usage *u, const struct key_limits *l, double now, struct key_refusal *r) {
    double wait;
    if (l->concurrent > 0 && u->counts.concurrent >= l->concurrent)
        return refuse(r, "requests at a time", "concurrent", l->concurrent, 1);
    wait = allowance_wait(&u->requests, l->requests_per_minute, minute, 1, now);
    if (wait > 0) return refuse(r, "requests a minute", "requests_per_minute", l->requests_per_minute, wait);
    wait = allowance_wait(&u->minute_tokens, (double)l->tokens_per_minute, minute, 1, now);
    if (wait > 0) return refuse(r, "tokens a minute", "tokens_per_minute", l->tokens_per_minute, wait);
    wait = allowance_wait(&u->day_tokens, (double)l->tokens_per_day, day, 1, now);
    if (wait > 0) return refuse(r, "tokens a day", "tokens_per_day", l->tokens_per_day, wait);
    return true;
}

bool key_enter(struct key *k, struct key_refusal *r) {
    struct key_usage *u = k->usage;
    pthread_mutex_lock(&u->lock);
    bool allowed = usage_allows(u, &k->limits, time_now(), r);
    if (allowed) {
        u->requests.used++;
        u->counts.requests++;
        u->counts.concurrent++;
    } else {
        u->counts.refused++;
    }
    pthread_mutex_unlock(&u->lock);
    return allowed;
}

void key_leave(struct key *k) {
    pthread_mutex_lock(&k->usage->lock);
    k->usage->counts.concurrent--;
    pthread_mutex_unlock(&k->usage->lock);
}

void key_charge(struct key *k, int64_t tokens) {
    struct key_usage *u = k->usage;
    pthread_mutex_lock(&u->lock);
    u->minute_tokens.used += (double)tokens;
    u->day_tokens.used += (double)tokens;
    u->counts.tokens += tokens;
    pthread_mutex_unlock(&u->lock);
}

void key_note_stored(struct key *k, int64_t bytes) {
    pthread_mutex_lock(&k->usage->lock);
    k->usage->counts.stored = bytes;
    pthread_mutex_unlock(&k->usage->lock);
}

struct key_counts key_counts(struct key *k) {
    pthread_mutex_lock(&k->usage->lock);
    struct key_counts counts = k->usage->counts;
    pthread_mutex_unlock(&k->usage->lock);
    return counts;
}
