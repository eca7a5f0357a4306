/* server/documents/document_jobs.c: see document_jobs.h. */
#include "server/documents/document_jobs.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { JOBS_IN_ALL = 10000 }; /* of all owners: beyond, the oldest that ended go */

struct document_jobs {
    pthread_mutex_t lock;
    struct posted_job *first; /* newest first */
    int n;
};

/* The key, or all clients of a server without keys. */
static uint64_t owner_of(const struct principal *who) { return who->key ? who->client : 0; }

struct document_jobs *document_jobs_open(void) {
    struct document_jobs *jobs = xcalloc(1, sizeof *jobs);
    pthread_mutex_init(&jobs->lock, NULL);
    return jobs;
}

static void job_free(struct posted_job *job) {
    buffer_free(&job->outcome);
    free(job);
}

void document_jobs_close(struct document_jobs *jobs) {
    if (jobs == NULL) return;
    while (jobs->first) {
        struct posted_job *job = jobs->first;
        jobs->first = job->next;
        job_free(job);
    }
    pthread_mutex_destroy(&jobs->lock);
    free(jobs);
}

/* Below, all under the lock. */

static void unlink_job(struct document_jobs *jobs, struct posted_job *job) {
    struct posted_job **at = &jobs->first;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
    jobs->n--;
    job_free(job);
}

/* The oldest of an owner that ended; NULL: of any. */
static struct posted_job *oldest_ended(const struct document_jobs *jobs, const uint64_t *owner) {
    struct posted_job *oldest = NULL;
    for (struct posted_job *job = jobs->first; job; job = job->next)
        if (job->ended > 0 && (owner == NULL || job->owner == *owner)) oldest = job;
    return oldest;
}

static void drop_late(struct document_jobs *jobs) {
    double now = time_now();
    struct posted_job **at = &jobs->first;
    while (*at) {
        struct posted_job *job = *at;
        if (job->ended > 0 && job->ended + JOBS_SECONDS < now)
            unlink_job(jobs, job);
        else
            at = &job->next;
    }
}

static void make_room(struct document_jobs *jobs, uint64_t owner) {
    int n = 0;
    for (const struct posted_job *job = jobs->first; job; job = job->next) n += job->owner == owner;
    struct posted_job *oldest = n >= JOBS_KEPT ? oldest_ended(jobs, &owner) : NULL;
    if (oldest == NULL && jobs->n >= JOBS_IN_ALL) oldest = oldest_ended(jobs, NULL);
    if (oldest) unlink_job(jobs, oldest);
}

/* Whether the owner may have another one under way. */
static bool is_full(const struct document_jobs *jobs, uint64_t owner, size_t bytes) {
    int n = 0;
    for (const struct posted_job *job = jobs->first; job; job = job->next) {
        if (job->owner != owner || job->ended > 0) continue;
        n++;
        bytes += job->bytes;
    }
    return n >= JOBS_RUNNING || (n > 0 && bytes > JOBS_BYTES);
}

static struct posted_job *find(const struct document_jobs *jobs, uint64_t owner, const char *id) {
    struct posted_job *job = jobs->first;
    while (job && (job->owner != owner || strcmp(job->id, id) != 0)) job = job->next;
    return job;
}

static enum posted_state state_of(const struct posted_job *job) {
    if (atomic_load(&job->cancelled)) return POSTED_CANCELLED;
    if (job->ended > 0) return job->failed ? POSTED_FAILED : POSTED_DONE;
    return atomic_load(&job->steps.begun) ? POSTED_RUNNING : POSTED_WAITING;
}

static void view(const struct posted_job *job, struct posted_view *out) {
    *out = (struct posted_view){.state = state_of(job),
                                .n_done = atomic_load(&job->steps.items),
                                .n_files = job->n_files,
                                .n_chunks = (int64_t)atomic_load(&job->steps.chunks),
                                .created = job->created};
    memcpy(out->id, job->id, sizeof out->id);
}

/* With the lock taken inside. */

static struct posted_job *make_job(uint64_t owner, int n_files, size_t bytes) {
    uint64_t number[2];
    struct posted_job *job = xcalloc(1, sizeof *job);
    CHECK(getrandom(number, sizeof number, 0) == sizeof number);
    snprintf(job->id, sizeof job->id, "job_%016" PRIx64 "%016" PRIx64, number[0], number[1]);
    job->owner = owner;
    job->n_files = n_files;
    job->bytes = bytes;
    job->created = (int64_t)time(NULL);
    return job;
}

enum status document_jobs_begin(struct document_jobs *jobs, const struct principal *who,
                                int n_files, size_t bytes, struct posted_job **out,
                                struct error *e) {
    uint64_t owner = owner_of(who);
    pthread_mutex_lock(&jobs->lock);
    drop_late(jobs);
    bool full = is_full(jobs, owner, bytes);
    if (!full) {
        make_room(jobs, owner);
        *out = make_job(owner, n_files, bytes);
        (*out)->next = jobs->first;
        jobs->first = *out;
        jobs->n++;
    }
    pthread_mutex_unlock(&jobs->lock);
    if (!full) return STATUS_OK;
    return error_set(e, STATUS_BUSY,
                     "jobs that are not over yet have reached the limit, which is %d jobs and %d "
                     "MiB; wait for one of them, or DELETE /v1/jobs/ID cancels it",
                     JOBS_RUNNING, JOBS_BYTES >> 20);
}

void document_jobs_forget(struct document_jobs *jobs, struct posted_job *job) {
    pthread_mutex_lock(&jobs->lock);
    unlink_job(jobs, job);
    pthread_mutex_unlock(&jobs->lock);
}

void document_jobs_end(struct document_jobs *jobs, struct posted_job *job, struct buffer *outcome,
                       bool failed) {
    pthread_mutex_lock(&jobs->lock);
    job->outcome = *outcome;
    *outcome = (struct buffer){0};
    job->failed = failed;
    job->ended = time_now();
    pthread_mutex_unlock(&jobs->lock);
}

bool document_jobs_look(struct document_jobs *jobs, const struct principal *who, const char *id,
                        bool cancel, struct posted_view *out) {
    pthread_mutex_lock(&jobs->lock);
    drop_late(jobs);
    struct posted_job *job = find(jobs, owner_of(who), id);
    if (job) {
        if (cancel && job->ended <= 0) atomic_store(&job->cancelled, true);
        view(job, out);
        buffer_append(&out->outcome, job->outcome.data, job->outcome.size);
    }
    pthread_mutex_unlock(&jobs->lock);
    return job != NULL;
}

int document_jobs_list(struct document_jobs *jobs, const struct principal *who,
                       struct posted_view *out) {
    uint64_t owner = owner_of(who);
    int n = 0;
    pthread_mutex_lock(&jobs->lock);
    drop_late(jobs);
    for (const struct posted_job *job = jobs->first; job && n < JOBS_KEPT; job = job->next) {
        if (job->owner != owner) continue;
        view(job, &out[n]);
        n++;
    }
    pthread_mutex_unlock(&jobs->lock);
    return n;
}
