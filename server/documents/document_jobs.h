/* server/documents/document_jobs.h: uploads that are answered at once: what is known of each, while
 * it is carried out and for an hour behind that. A job belongs to the key that asked for it, or to
 * all clients of a server without keys; nobody else can tell that it is there. Any thread. */
#pragma once

#include "server/access/principal.h"
#include "server/documents/document_thread.h"

enum {
    JOBS_RUNNING = 16,      /* that an owner may have unfinished */
    JOBS_BYTES = 128 << 20, /* of the requests of these, beside the first */
    JOBS_KEPT = 100,        /* that an owner has in all: the oldest that ended go */
    JOBS_SECONDS = 3600,
    JOB_ID_SIZE = 4 + 32 + 1
};

enum posted_state { POSTED_WAITING, POSTED_RUNNING, POSTED_DONE, POSTED_FAILED, POSTED_CANCELLED };

/* One job: the registry makes it, and whoever carries it out fills in how far it is. */
struct posted_job {
    char id[JOB_ID_SIZE]; /* "job_" and 32 digits that nobody can guess */
    int64_t created;      /* seconds since 1970 */
    int n_files;          /* files and texts of the request */
    struct document_steps steps;
    atomic_bool cancelled;
    /* Private to the registry. */
    uint64_t owner;
    size_t bytes; /* of its request */
    double ended; /* of time_now; 0: not yet */
    bool failed;
    struct buffer outcome; /* members of a JSON object */
    struct posted_job *next;
};

struct document_jobs;
struct document_jobs *document_jobs_open(void);
/* Nobody has a job any more. Of NULL: nothing. */
void document_jobs_close(struct document_jobs *jobs);

/* A new job, held for whoever carries it out. STATUS_BUSY where the owner has JOBS_RUNNING that are
 * not over, or their requests have JOBS_BYTES together; `bytes` are this one's. */
enum status document_jobs_begin(struct document_jobs *jobs, const struct principal *who,
                                int n_files, size_t bytes, struct posted_job **out,
                                struct error *e);
/* It was refused after all, and is forgotten. */
void document_jobs_forget(struct document_jobs *jobs, struct posted_job *job);
/* It is over. `outcome` is taken: members of the job's object, among them "data". `failed`: none of
 * its documents was put. Lets go of it. */
void document_jobs_end(struct document_jobs *jobs, struct posted_job *job, struct buffer *outcome,
                       bool failed);

/* A job at one moment. */
struct posted_view {
    enum posted_state state;
    int n_done, n_files;
    int64_t n_chunks, created;
    char id[JOB_ID_SIZE];
    struct buffer outcome; /* a copy; empty before the end */
};
/* The job of that id, which is cancelled first where `cancel` is set: of its documents those stay
 * that were put already. False: the owner has none of that id. Free the view's outcome. */
bool document_jobs_look(struct document_jobs *jobs, const struct principal *who, const char *id,
                        bool cancel, struct posted_view *out);
/* The owner's jobs, newest first, without their outcomes, into out [JOBS_KEPT]; returns how many.
 */
int document_jobs_list(struct document_jobs *jobs, const struct principal *who,
                       struct posted_view *out);
