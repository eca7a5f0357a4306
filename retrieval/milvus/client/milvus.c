/* retrieval/milvus/client/milvus.c: see milvus.h. */
#include "retrieval/milvus/client/milvus.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/base/hash.h"
#include "retrieval/milvus/client/answers.h"

/* Operations that fail in a row before the breaker opens; how long it stays open at first and at most. */
enum { BREAKER_FAILURES = 3 };
static const double breaker_first_seconds = 0.5, breaker_most_seconds = 10;
/* Before the second attempt; each later one waits twice as long. Half of it is drawn, so that programs that failed
 * together do not come back together. */
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

enum status milvus_open(struct milvus **out, const char *server, const struct milvus_settings *s, struct error *e) {
    struct link_options o = {.url = server, .token = s->token, .authority = s->authority};
    struct milvus_link *link;
    if (link_open(&link, &o, e)) return e->status;
    struct milvus *m = xcalloc(1, sizeof *m);
    m->link = link;
    m->settings = *s;
    m->server = xstrdup(server);
    m->settings.token = m->settings.authority = NULL; /* the link has them */
    m->drawn = hash_bytes(&m, sizeof m, (uint64_t)(1e9 * time_now()));
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return STATUS_OK;
}

void milvus_close(struct milvus *m) {
    if (m == NULL) return;
    link_close(m->link);
    pthread_mutex_destroy(&m->lock);
    free(m->server);
    free(m);
}

const struct milvus_settings *milvus_settings_of(const struct milvus *m) { return &m->settings; }

struct milvus_health milvus_health(struct milvus *m) {
    pthread_mutex_lock(&m->lock);
    struct milvus_health health = m->health;
    health.open = m->open_until > 0;
    pthread_mutex_unlock(&m->lock);
    return health;
}

/* The breaker. */

/* Whether a call may be made. While the breaker is open none is; then one, which decides for the others. */
static enum status breaker_ask(struct milvus *m, bool *probes, struct error *e) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&m->lock);
    double left = m->open_until - time_now();
    *probes = m->open_until > 0 && left <= 0 && !m->probing;
    if (*probes) m->probing = true;
    if (m->open_until > 0 && !*probes) {
        m->health.refused++;
        status = error_set(e, STATUS_BUSY, "Milvus at %s is not asked for another %.1f s, because it failed: %.300s",
                           m->server, left > 0 ? left : 0.0, m->latest.text);
    }
    pthread_mutex_unlock(&m->lock);
    return status;
}

static void breaker_tell(struct milvus *m, bool probes, enum status status, const struct error *e) {
    bool away = status == STATUS_BUSY;
    pthread_mutex_lock(&m->lock);
    if (probes) m->probing = false;
    m->health.calls++;
    m->health.failures += away;
    m->n_failed = away ? m->n_failed + 1 : status == STATUS_CANCELLED ? m->n_failed : 0;
    if (away && (probes || m->n_failed >= BREAKER_FAILURES)) {
        double next = 2 * m->open_seconds;
        m->open_seconds = next < breaker_first_seconds  ? breaker_first_seconds
                          : next > breaker_most_seconds ? breaker_most_seconds
                                                        : next;
        m->open_until = time_now() + m->open_seconds;
        m->latest = *e;
    } else if (!away && status != STATUS_CANCELLED) {
        m->open_until = m->open_seconds = 0;
    }
    pthread_mutex_unlock(&m->lock);
}

/* Attempts. */

static double draw_pause(struct milvus *m, int attempt) {
    double pause = first_pause_seconds * (double)(1 << min_int(attempt, 6));
    pthread_mutex_lock(&m->lock);
    m->drawn = hash_bytes(&m->drawn, sizeof m->drawn, 1);
    double share = (double)(m->drawn >> 11) / 9007199254740992.0;
    m->health.retries++;
    pthread_mutex_unlock(&m->lock);
    return pause * (0.5 + 0.5 * share);
}

static void sleep_for(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    while (nanosleep(&t, &t) == -1 && errno == EINTR) continue;
}

static bool is_cancelled(const struct milvus_call *c) { return c->cancelled && atomic_load(c->cancelled); }

static enum status attempt_call(struct milvus *m, const struct milvus_call *c, double seconds, struct buffer *reply,
                                bool *again, struct error *e) {
    struct link_request request = {
        .method = c->method, .message = c->message, .seconds = seconds, .cancelled = c->cancelled};
    struct text_span answer;
    if (link_call(m->link, &request, reply, again, e)) return e->status;
    answer = (struct text_span){reply->data ? reply->data : "", reply->size};
    return answer_status_check(answer, c->answers_status, again, e);
}

enum status milvus_call(struct milvus *m, const struct milvus_call *c, struct buffer *reply, struct error *e) {
    double limit = c->seconds > 0 ? c->seconds : m->settings.seconds, until = time_now() + limit;
    bool again = true, probes;
    enum status status = breaker_ask(m, &probes, e);
    if (status) return status;
    for (int i = 0; i < m->settings.attempts && again; i++) {
        double pause = i > 0 ? draw_pause(m, i - 1) : 0, left = until - time_now() - pause;
        if (i > 0 && left < least_attempt_seconds) break;
        if (pause > 0) sleep_for(pause);
        again = false;
        status = is_cancelled(c) ? error_set(e, STATUS_CANCELLED, "nobody waits for Milvus any more")
                                 : attempt_call(m, c, left, reply, &again, e);
        again = again && status != STATUS_OK;
    }
    breaker_tell(m, probes, status, e);
    return status == STATUS_BUSY ? error_prefix(e, "Milvus at %s, %s", m->server, c->method) : status;
}
