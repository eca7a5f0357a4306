/* server/host/models/opened_model.c: opening all that a model needs, on every rank. See opened_model.h. */
#include "server/host/models/opened_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/model/identity.h"

/* A rank that is a thread of this process. */
struct follower {
    struct opened_model model; /* backend, communicator and model of its own; no followers */
    const struct config *config;
    const char *folder;
    const struct opened_model_use *use;
    int threads;
    pthread_t thread;
    bool started;
};

static bool is_gpu(const char *device) {
    return strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", strlen("cuda:")) == 0;
}

static const char *device_of(const struct config *c) { return backend_choose(c->model.device); }

static int choose_comm(const struct config *c) {
    bool gpus = c->parallel.tensor * c->parallel.pipeline > 1 && is_gpu(device_of(c));
    return c->parallel.comm == COMM_AUTO && gpus ? COMM_NCCL : c->parallel.comm;
}

/* Every rank of a machine has its own GPU: "cuda:2" is the first one's. */
static const char *choose_device(const struct config *c, const struct comm *comm, char *text, size_t size) {
    const char *device = device_of(c), *colon = strchr(device, ':');
    if (comm->world->size == 1 || !is_gpu(device)) return device;
    snprintf(text, size, "cuda:%d", (colon ? atoi(colon + 1) : 0) + comm->local_rank);
    return text;
}

/* Options that a rank takes from its own configuration, and that must be rank 0's. */
static const char *const shared_options[] = {
    "model.dtype",
    "parallel.timeout",
    "parallel.micro_batch_rows",
    "retrieval.k",
    "retrieval.max_k",
    "retrieval.max_neighbors",
    "server.max_sequences",
    "server.max_context",
    "server.max_step_tokens",
    "server.max_picture_patches",
};

static void print_option(const struct config *c, const char *key, struct buffer *lines) {
    size_t offset;
    const struct option_row *o = options_find(&config_options, key, &offset);
    CHECK(o != NULL && (o->field.type == JSON_INT || o->field.type == JSON_CHOICE));
    int value = *(const int *)(const void *)((const char *)c + offset);
    const struct json_choice *choice = o->field.choices;
    while (choice && choice->value != value) choice++;
    if (choice)
        buffer_printf(lines, "%s %s\n", key, choice->name);
    else
        buffer_printf(lines, "%s %d\n", key, value);
}

/* Ranks that are processes are each told what to do and what to read, and are to be told the same. */
static enum status check_same(const struct opened_model *o, const struct config *c, const char *folder,
                              struct error *e) {
    struct buffer lines = {0};
    bool nccl = choose_comm(c) == COMM_NCCL;
    buffer_printf(&lines, "retro-server " RETRO_VERSION "\nparallel.comm %s\n", nccl ? "nccl" : o->comm->ops->name);
    for (size_t i = 0; i < ARRAY_COUNT(shared_options); i++) print_option(c, shared_options[i], &lines);
    model_identify(folder, o->comm->world, &lines);
    enum status status = comm_same(o->comm->world, lines.data, e);
    buffer_free(&lines);
    return status;
}

/* The checks that come before a rank has loaded anything, and before any other has taken memory of this machine. */
static enum status check_use(const struct opened_model *o, const struct config *c, const char *folder,
                             const struct opened_model_use *use, struct error *e) {
    if (use && use->start && o->comm->world->rank == 0 && use->start(use->context, e)) return e->status;
    return budget_check(folder, o->backend, o->comm, model_options_of(c->model.dtype), use ? use->budget : NULL, e);
}

/* The parts that need the other ranks open after all have agreed to be there. */
static enum status open_rank(struct opened_model *o, const struct config *c, const char *folder,
                             const struct opened_model_use *use, int threads, struct error *e) {
    char device[32];
    struct backend_options options = {.threads = threads};
    struct model_options model_options = model_options_of(c->model.dtype);
    enum status status = backend_open(&o->backend, choose_device(c, o->comm, device, sizeof device), &options, e);
    if (comm_agree(o->comm->world, status, e)) return e->status;
    if (choose_comm(c) == COMM_NCCL && comm_open_nccl(&o->comm, o->comm, o->backend, c->parallel.timeout, e))
        return e->status;
    if (comm_agree(o->comm->world, check_use(o, c, folder, use, e), e)) return e->status;
    status = model_open(&o->model, folder, o->backend, o->comm, &model_options, e);
    return comm_agree(o->comm->world, status, e);
}

static void close_rank(struct opened_model *o) {
    model_close(o->model);
    comm_close(o->comm);
    backend_close(o->backend);
    *o = (struct opened_model){0};
}

/* Errors reach rank 0 through the communicator, which names the rank. */
static void *run_follower(void *argument) {
    struct follower *f = argument;
    struct error e = {0};
    if (open_rank(&f->model, f->config, f->folder, f->use, f->threads, &e) == STATUS_OK)
        session_follow(f->model.model, &e);
    close_rank(&f->model);
    return NULL;
}

/* The thread of a rank that cannot start fails the group, so that nobody waits for it. */
static void start_follower(struct follower *f) {
    f->started = pthread_create(&f->thread, NULL, run_follower, f) == 0;
    if (f->started) return;
    struct error e;
    error_set(&e, STATUS_NO_MEMORY, "its thread could not be started");
    comm_leave(f->model.comm, &e);
    comm_close(f->model.comm);
}

static enum status open_ranks(struct opened_model *o, const struct config *c, const char *folder,
                              const struct opened_model_use *use, struct error *e) {
    struct comm *ranks[COMM_MAX_RANKS];
    int n;
    struct comm_options options = {.kind = choose_comm(c),
                                   .size = c->parallel.tensor,
                                   .stages = c->parallel.pipeline,
                                   .timeout = (double)c->parallel.timeout,
                                   .rendezvous = c->parallel.rendezvous,
                                   .secret_file = c->parallel.secret_file,
                                   .host = c->parallel.host,
                                   .rank = c->parallel.rank};
    if (options.kind == COMM_NCCL && !is_gpu(device_of(c)))
        return error_set(e, STATUS_INVALID, "parallel.comm is nccl, which is for GPUs, and model.device is %s",
                         device_of(c));
    if (comm_open(ranks, &n, &options, e)) return e->status;
    bool need_cpu = strcmp(ranks[0]->ops->name, "threads") == 0 && options.kind != COMM_NCCL;
    if (need_cpu && strcmp(device_of(c), "cpu") != 0) {
        for (int i = 0; i < n; i++) comm_close(ranks[i]);
        return error_set(e, STATUS_INVALID, "ranks that are threads need model.device cpu, and it is %s; use %s",
                         device_of(c), is_gpu(device_of(c)) ? "nccl" : "mpi or sockets");
    }
    /* CPU threads are divided between the ranks of this process. */
    int threads = c->model.threads ? max_int(1, c->model.threads / n) : ranks[0]->cpus;
    o->comm = ranks[0];
    o->n_followers = n - 1;
    o->followers = xcalloc((size_t)n, sizeof *o->followers);
    for (int i = 0; i < n - 1; i++) {
        struct follower *f = &o->followers[i];
        *f = (struct follower){
            .model = {.comm = ranks[i + 1]}, .config = c, .folder = folder, .use = use, .threads = threads};
        start_follower(f);
    }
    if (n < options.size * options.stages && check_same(o, c, folder, e)) return e->status;
    return open_rank(o, c, folder, use, threads, e);
}

/* The ranks of this process; those that follow have ended or are about to. */
static void close_ranks(struct opened_model *o) {
    for (int i = 0; i < o->n_followers; i++)
        if (o->followers[i].started) pthread_join(o->followers[i].thread, NULL);
    free(o->followers);
    close_rank(o);
}

enum status opened_model_open(struct opened_model *o, const struct config *c, const char *folder,
                              const struct opened_model_use *use, struct error *e) {
    *o = (struct opened_model){0};
    if (strcmp(c->model.device, "auto") == 0 && !is_gpu(device_of(c))) log_info("no CUDA device, using cpu");
    enum status status = open_ranks(o, c, folder, use, e);
    if (status) close_ranks(o);
    return status;
}

void opened_model_close(struct opened_model *o) {
    if (o->model && o->comm->world->rank == 0) session_release_followers(o->model);
    close_ranks(o);
}

enum status opened_model_follow(struct opened_model *o, struct error *e) { return session_follow(o->model, e); }

enum status opened_model_check(const struct opened_model *o, struct error *e) { return comm_check(o->comm, e); }
