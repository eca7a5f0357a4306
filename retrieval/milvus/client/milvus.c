/* retrieval/milvus/client/milvus.c: see milvus.h. */
#include "retrieval/milvus/client/milvus.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/base/hash.h"
#include "retrieval/milvus/client/answers.h"

/* Operations that fail in a row before the breaker opens; how long it stays open at first and at
 * most. */
enum { BREAKER_FAILURES = 3 };
static const double breaker_first_seconds = 0.5, breaker_most_seconds = 10;
/* Before the second attempt; each later one waits twice as long. Half of it is drawn, so that
 * programs that failed together do not come back together. */
static const double first_pause_seconds = 0.05;
/* Time that an attempt needs to be worth beginning. */
static const double least_attempt_seconds = 0.01;

struct milvus {
    struct milvus_link *link;
    struct milvus_settings settings;
    char *server;

    pthread_mutex_t lock; /* all below */
    int n_failed;         /* in a row */
    double open_until;    /* the breaker: 0: closed */
    double open_seconds;
    bool probing; /* one call finds out whether it is back */
    uint64_t drawn;
    struct error latest; /* why the breaker is open */
    struct milvus_health health;
};

/* The first line of a file. */
static enum status read_token_file(char **out, const char *path, struct error *e) {
    enum { TOKEN_LIMIT = 4096 };
    struct buffer text = {0};
    enum status status = file_read(path, TOKEN_LIMIT, &text, e);
    if (status == STATUS_OK) *out = xstrndup(text.data, strcspn(text.data, "\r\n"));
    if (text.data) explicit_bzero(text.data, text.size);
    buffer_free(&text);
    return status;
}

enum status milvus_token_read(char **out, const char *path, struct error *e) {
    const char *given = getenv("RETRO_MILVUS_TOKEN");
    *out = NULL;
    if (given == NULL && path[0]) return read_token_file(out, path, e);
    *out = xstrdup(given ? given : "");
    if (strpbrk(*out, "\r\n") == NULL) return STATUS_OK;
    free(*out);
    *out = NULL;
    return error_set(e, STATUS_INVALID, "RETRO_MILVUS_TOKEN has more than one line");
}

enum status milvus_open(struct milvus **out, const char *server,
                        const struct milvus_settings *settings, struct error *e) {
    struct link_options options = {
        .url = server, .token = settings->token, .authority = settings->authority};
    struct milvus_link *link;
    if (link_open(&link, &options, e)) return e->status;
    struct milvus *milvus = xcalloc(1, sizeof *milvus);
    milvus->link = link;
    milvus->settings = *settings;
    milvus->server = xstrdup(server);
    milvus->settings.token = milvus->settings.authority = NULL; /* the link has them */
    milvus->drawn = hash_bytes(&milvus, sizeof milvus, (uint64_t)(1e9 * time_now()));
    pthread_mutex_init(&milvus->lock, NULL);
    *out = milvus;
    return STATUS_OK;
}

void milvus_close(struct milvus *milvus) {
    if (milvus == NULL) return;
    link_close(milvus->link);
    pthread_mutex_destroy(&milvus->lock);
    free(milvus->server);
    free(milvus);
}

const struct milvus_settings *milvus_settings_of(const struct milvus *milvus) {
    return &milvus->settings;
}

struct milvus_health milvus_health(struct milvus *milvus) {
    pthread_mutex_lock(&milvus->lock);
    struct milvus_health health = milvus->health;
    health.open = milvus->open_until > 0;
    pthread_mutex_unlock(&milvus->lock);
    return health;
}

/* The breaker. */

/* Whether a call may be made. While the breaker is open none is; then one, which decides for the
 * others. */
static enum status breaker_ask(struct milvus *milvus, bool *probes, struct error *e) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&milvus->lock);
    double left = milvus->open_until - time_now();
    *probes = milvus->open_until > 0 && left <= 0 && !milvus->probing;
    if (*probes) milvus->probing = true;
    if (milvus->open_until > 0 && !*probes) {
        milvus->health.refused++;
        status =
            error_set(e, STATUS_BUSY,
                      "Milvus at %s is not asked for another %.1f s, because it failed: %.300s",
                      milvus->server, left > 0 ? left : 0.0, milvus->latest.text);
    }
    pthread_mutex_unlock(&milvus->lock);
    return status;
}

static void breaker_tell(struct milvus *milvus, bool probes, enum status status,
                         const struct error *e) {
    bool away = status == STATUS_BUSY;
    pthread_mutex_lock(&milvus->lock);
    if (probes) milvus->probing = false;
    milvus->health.calls++;
    milvus->health.failures += away;
    milvus->n_failed = away                         ? milvus->n_failed + 1
                       : status == STATUS_CANCELLED ? milvus->n_failed
                                                    : 0;
    if (away && (probes || milvus->n_failed >= BREAKER_FAILURES)) {
        double next = 2 * milvus->open_seconds;
        milvus->open_seconds = next < breaker_first_seconds  ? breaker_first_seconds
                               : next > breaker_most_seconds ? breaker_most_seconds
                                                             : next;
        milvus->open_until = time_now() + milvus->open_seconds;
        milvus->latest = *e;
    } else if (!away && status != STATUS_CANCELLED) {
        milvus->open_until = milvus->open_seconds = 0;
    }
    pthread_mutex_unlock(&milvus->lock);
}

/* Attempts. */

static double draw_pause(struct milvus *milvus, int attempt) {
    double pause = first_pause_seconds * (double)(1 << min_int(attempt, 6));
    pthread_mutex_lock(&milvus->lock);
    milvus->drawn = hash_bytes(&milvus->drawn, sizeof milvus->drawn, 1);
    double share = (double)(milvus->drawn >> 11) / 9007199254740992.0;
    milvus->health.retries++;
    pthread_mutex_unlock(&milvus->lock);
    return pause * (0.5 + 0.5 * share);
}

static void sleep_for(double seconds) {
    struct timespec timespec = {.tv_sec = (time_t)seconds,
                                .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    while (nanosleep(&timespec, &timespec) == -1 && errno == EINTR) continue;
}

static bool is_cancelled(const struct milvus_call *call) {
    return call->cancelled && atomic_load(call->cancelled);
}

static enum status attempt_call(struct milvus *milvus, const struct milvus_call *call,
                                double seconds, struct buffer *reply, bool *again,
                                struct error *e) {
    struct link_request request = {.method = call->method,
                                   .message = call->message,
                                   .seconds = seconds,
                                   .cancelled = call->cancelled};
    struct text_span answer;
    if (link_call(milvus->link, &request, reply, again, e)) return e->status;
    answer = (struct text_span){reply->data ? reply->data : "", reply->size};
    return answer_status_check(answer, call->answers_status, again, e);
}

enum status milvus_call(struct milvus *milvus, const struct milvus_call *call, struct buffer *reply,
                        struct error *e) {
    double limit = call->seconds > 0 ? call->seconds : milvus->settings.seconds,
           until = time_now() + limit;
    bool again = true, probes;
    enum status status = breaker_ask(milvus, &probes, e);
    if (status) return status;
    for (int i = 0; i < milvus->settings.attempts && again; i++) {
        double pause = i > 0 ? draw_pause(milvus, i - 1) : 0, left = until - time_now() - pause;
        if (i > 0 && left < least_attempt_seconds) break;
        if (pause > 0) sleep_for(pause);
        again = false;
        status = is_cancelled(call)
                     ? error_set(e, STATUS_CANCELLED, "nobody waits for Milvus any more")
                     : attempt_call(milvus, call, left, reply, &again, e);
        again = again && status != STATUS_OK;
    }
    breaker_tell(milvus, probes, status, e);
    return status == STATUS_BUSY ? error_prefix(e, "Milvus at %s, %s", milvus->server, call->method)
                                 : status;
}
