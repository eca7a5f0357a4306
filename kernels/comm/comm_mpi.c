/* kernels/comm/comm_mpi.c: ranks that are the processes of an MPI job, on any backend: rows go
 * through host memory. A rank that dies is noticed by mpirun, which stops the job. See
 * comm_pairs.h. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/comm/comm_pairs.h"

struct mpi {
    struct transport base;
    MPI_Request requests[2 * TRANSPORT_POSTS * COMM_MAX_RANKS];
    int peers[2 * TRANSPORT_POSTS * COMM_MAX_RANKS]; /* of each request */
    int n_requests;
};

/* MPI starts once in a process and cannot start again, so it ends with the process, if all went
 * well: a process that ends without finalising makes mpirun stop the others. Starting waits for all
 * processes of the job, for ever if one of them hangs, and what starts MPI has to end it, so a
 * thread does both. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool begun, over, end; /* over: MPI has started, or will not; end: it is to be finalised */
    bool works;
} job = {.lock = PTHREAD_MUTEX_INITIALIZER};
static bool broken;
static int n_open;

static void *job_run(void *unused) {
    int level;
    (void)unused;
    bool works = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) == MPI_SUCCESS &&
                 level >= MPI_THREAD_SERIALIZED;
    if (works) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    pthread_mutex_lock(&job.lock);
    job.works = works;
    job.over = true;
    pthread_cond_broadcast(&job.changed);
    while (!job.end) pthread_cond_wait(&job.changed, &job.lock);
    pthread_mutex_unlock(&job.lock);
    MPI_Finalize();
    return NULL;
}

static void job_finalise(void) {
    if (broken || n_open > 0) return;
    pthread_mutex_lock(&job.lock);
    job.end = true;
    pthread_cond_broadcast(&job.changed);
    pthread_mutex_unlock(&job.lock);
    pthread_join(job.thread, NULL);
}

static enum status job_begin(struct error *e) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&job.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    job.begun = true;
    if (pthread_create(&job.thread, NULL, job_run, NULL) != 0) {
        job.over = true;
        return error_set(e, STATUS_NO_MEMORY, "MPI's thread could not be started");
    }
    return STATUS_OK;
}

/* Seconds are counted one by one, so that a process that was stopped for long still has its time
 * when it goes on. */
static void job_wait(double seconds) {
    struct timespec until;
    pthread_mutex_lock(&job.lock);
    for (double left = seconds; left > 0 && !job.over; left--) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&job.changed, &job.lock, &until);
    }
    pthread_mutex_unlock(&job.lock);
}

static enum status job_start(double timeout, struct error *e) {
    bool first = !job.begun;
    if (first && job_begin(e)) return e->status;
    if (first) job_wait(timeout);
    pthread_mutex_lock(&job.lock);
    bool over = job.over, works = job.works;
    pthread_mutex_unlock(&job.lock);
    if (!over)
        return error_set(e, STATUS_IO,
                         "waited %g s (parallel.timeout) for all processes of the MPI job to "
                         "start; one of them hangs "
                         "or does something else",
                         timeout);
    if (!works)
        return error_set(e, STATUS_UNSUPPORTED,
                         "this MPI does not start, or lets only the main thread call it");
    if (first) atexit(job_finalise);
    return STATUS_OK;
}

int comm_mpi_size(double timeout) {
    int size = 1;
    struct error e;
    enum status status = job_start(timeout, &e);
    if (status == STATUS_IO) return -1;
    return status == STATUS_OK && MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS ? size : 1;
}

static struct mpi *mpi_of(struct transport *transport) { return (struct mpi *)transport; }

static void code_check(struct transport *transport, int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    if (code == MPI_SUCCESS) return;
    MPI_Error_string(code, text, &length);
    transport_fail(transport, "failed %s: MPI: %.200s", what, text);
}

static MPI_Request *request_next(struct transport *transport, int peer) {
    struct mpi *mpi = mpi_of(transport);
    CHECK((size_t)mpi->n_requests < ARRAY_COUNT(mpi->requests));
    mpi->peers[mpi->n_requests] = peer;
    mpi->n_requests++;
    return &mpi->requests[mpi->n_requests - 1];
}

static void mpi_send(struct transport *transport, int to, const void *data, size_t bytes) {
    code_check(
        transport,
        MPI_Isend(data, (int)bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD, request_next(transport, to)),
        "sending");
}

static void mpi_receive(struct transport *transport, int from, void *data, size_t bytes) {
    code_check(transport,
               MPI_Irecv(data, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD,
                         request_next(transport, from)),
               "receiving");
}

static bool mpi_look(struct transport *transport) {
    struct mpi *mpi = mpi_of(transport);
    int done = 0;
    code_check(transport, MPI_Testall(mpi->n_requests, mpi->requests, &done, MPI_STATUSES_IGNORE),
               "waiting");
    if (done) mpi->n_requests = 0;
    return done;
}

static void mpi_sleep(struct transport *transport) {
    (void)transport;
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Nothing tells for whom the others wait: the first that this rank waits for. */
static int mpi_waits_for(struct transport *transport) {
    struct mpi *mpi = mpi_of(transport);
    for (int i = 0; i < mpi->n_requests; i++) {
        int done = 0;
        if (MPI_Request_get_status(mpi->requests[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            !done)
            return mpi->peers[i];
    }
    return -1;
}

/* mpirun stops all ranks when one ends. */
static void mpi_failed(struct transport *transport) { (void)transport; }

static enum status mpi_check(const struct transport *transport, struct error *e) {
    (void)transport;
    (void)e;
    return STATUS_OK;
}

static void mpi_close(struct transport *transport) {
    broken = broken || transport->failure.status;
    n_open--;
    free(transport);
}

static const struct transport_ops mpi_ops = {
    .name = "mpi",
    .send = mpi_send,
    .receive = mpi_receive,
    .look = mpi_look,
    .sleep = mpi_sleep,
    .waits_for = mpi_waits_for,
    .failed = mpi_failed,
    .check = mpi_check,
    .close = mpi_close,
};

enum status comm_open_mpi(struct comm **out, const struct comm_options *options, struct error *e) {
    int started = 1, wanted = options->size * options->stages, length;
    if (job_start(options->timeout, e)) return e->status;
    MPI_Comm_size(MPI_COMM_WORLD, &started);
    if (started != wanted) {
        broken = true; /* other ranks, if started with other options, would wait for this one */
        return error_set(e, STATUS_INVALID,
                         "parallel.tensor times parallel.pipeline is %d and the MPI job has %d "
                         "process%s; start it with "
                         "mpirun -n %d",
                         wanted, started, started == 1 ? "" : "es", wanted);
    }
    struct mpi *mpi = xcalloc(1, sizeof *mpi);
    char machine[MPI_MAX_PROCESSOR_NAME + 1] = "";
    mpi->base.ops = &mpi_ops;
    mpi->base.size = started;
    mpi->base.unnamed = true;
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi->base.rank);
    MPI_Get_processor_name(machine, &length);
    snprintf(mpi->base.machine, sizeof mpi->base.machine, "%.250s", machine);
    n_open++;
    return comm_open_pairs(out, &mpi->base, options, e);
}
