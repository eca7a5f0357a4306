/* kernels/comm_mpi.c: ranks that are the processes of an MPI job, on any backend: rows go through host memory. A rank
 * that dies is noticed by mpirun, which stops the job. See comm_pairs.h. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/comm_pairs.h"

struct mpi {
    struct transport base;
    MPI_Request requests[2 * TRANSPORT_POSTS * COMM_MAX_RANKS];
    int n_requests;
};

/* MPI starts once in a process and cannot start again, so it ends with the process, if all went well: a process that
 * ends without finalising makes mpirun stop the others. */
static bool broken;
static int n_open;

static void finalise(void) {
    if (!broken && n_open == 0) MPI_Finalize();
}

static bool start(struct error *e) {
    int started, level;
    if (MPI_Initialized(&started) == MPI_SUCCESS && started) return true;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED) {
        error_set(e, STATUS_UNSUPPORTED, "this MPI does not start, or lets only the main thread call it");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    atexit(finalise);
    return true;
}

int comm_mpi_size(void) {
    int size = 1;
    return start(NULL) && MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS ? size : 1;
}

static struct mpi *mpi_of(struct transport *t) { return (struct mpi *)t; }

static void check_code(struct transport *t, int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    if (code == MPI_SUCCESS) return;
    MPI_Error_string(code, text, &length);
    transport_fail(t, "failed %s: MPI: %.200s", what, text);
}

static MPI_Request *next_request(struct transport *t) {
    struct mpi *m = mpi_of(t);
    CHECK((size_t)m->n_requests < ARRAY_COUNT(m->requests));
    return &m->requests[m->n_requests++];
}

static void mpi_send(struct transport *t, int to, const void *data, size_t bytes) {
    check_code(t, MPI_Isend(data, (int)bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD, next_request(t)), "sending");
}

static void mpi_receive(struct transport *t, int from, void *data, size_t bytes) {
    check_code(t, MPI_Irecv(data, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, next_request(t)), "receiving");
}

static bool mpi_look(struct transport *t) {
    struct mpi *m = mpi_of(t);
    int done = 0;
    check_code(t, MPI_Testall(m->n_requests, m->requests, &done, MPI_STATUSES_IGNORE), "waiting");
    if (done) m->n_requests = 0;
    return done;
}

static void mpi_sleep(struct transport *t) {
    (void)t;
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static enum status mpi_check(const struct transport *t, struct error *e) {
    (void)t;
    (void)e;
    return STATUS_OK;
}

static void mpi_close(struct transport *t) {
    broken = broken || t->failure.status;
    n_open--;
    free(t);
}

static const struct transport_ops mpi_ops = {
    .name = "mpi",
    .send = mpi_send,
    .receive = mpi_receive,
    .look = mpi_look,
    .sleep = mpi_sleep,
    .check = mpi_check,
    .close = mpi_close,
};

enum status comm_open_mpi(struct comm **out, const struct comm_options *o, struct error *e) {
    int started = 1, wanted = o->size * o->stages, length;
    if (!start(e)) return e->status;
    MPI_Comm_size(MPI_COMM_WORLD, &started);
    if (started != wanted) {
        broken = true; /* other ranks, if started with other options, would wait for this one */
        return error_set(
            e, STATUS_INVALID,
            "parallel.tensor times parallel.pipeline is %d and the MPI job has %d process%s; start it with "
            "mpirun -n %d",
            wanted, started, started == 1 ? "" : "es", wanted);
    }
    struct mpi *m = xcalloc(1, sizeof *m);
    char machine[MPI_MAX_PROCESSOR_NAME + 1] = "";
    m->base.ops = &mpi_ops;
    m->base.size = started;
    MPI_Comm_rank(MPI_COMM_WORLD, &m->base.rank);
    MPI_Get_processor_name(machine, &length);
    snprintf(m->base.machine, sizeof m->base.machine, "%.250s", machine);
    n_open++;
    return comm_open_pairs(out, &m->base, o, e);
}
