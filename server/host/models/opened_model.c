/* server/host/models/opened_model.c: opening all that a model needs, on every rank. See
 * opened_model.h. */
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

static const char *device_of(const struct config *config) {
    return backend_choose(config->model.device);
}

static int choose_comm(const struct config *config) {
    bool gpus =
        config->parallel.tensor * config->parallel.pipeline > 1 && is_gpu(device_of(config));
    return config->parallel.comm == COMM_AUTO && gpus ? COMM_NCCL : config->parallel.comm;
}

/* Every rank of a machine has its own GPU: "cuda:2" is the first one's. */
static const char *choose_device(const struct config *config, const struct comm *comm, char *text,
                                 size_t size) {
    const char *device = device_of(config), *colon = strchr(device, ':');
    if (comm->world->size == 1 || !is_gpu(device)) return device;
    snprintf(text, size, "cuda:%d", (colon ? atoi(colon + 1) : 0) + comm->local_rank);
    return text;
}

/* Options that a rank takes from its own configuration, and that must be rank 0's. */
static const char *const shared_options[] = {
    "model.dtype",
    "model.cache_dtype",
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

static void print_option(const struct config *config, const char *key, struct buffer *lines) {
    size_t offset;
    const struct option_row *row = options_find(&config_options, key, &offset);
    CHECK(row != NULL && (row->field.type == JSON_INT || row->field.type == JSON_CHOICE));
    int value = *(const int *)(const void *)((const char *)config + offset);
    const struct json_choice *choice = row->field.choices;
    while (choice && choice->value != value) choice++;
    if (choice)
        buffer_printf(lines, "%s %s\n", key, choice->name);
    else
        buffer_printf(lines, "%s %d\n", key, value);
}

/* Ranks that are processes are each told what to do and what to read, and are to be told the same.
 */
static enum status check_same(const struct opened_model *model, const struct config *config,
                              const char *folder, struct error *e) {
    struct buffer lines = {0};
    bool nccl = choose_comm(config) == COMM_NCCL;
    buffer_printf(&lines, "retro-server " RETRO_VERSION "\nparallel.comm %s\n",
                  nccl ? "nccl" : model->comm->ops->name);
    for (size_t i = 0; i < ARRAY_COUNT(shared_options); i++)
        print_option(config, shared_options[i], &lines);
    model_identify(folder, model->comm->world, &lines);
    enum status status = comm_same(model->comm->world, lines.data, e);
    buffer_free(&lines);
    return status;
}

/* The checks that come before a rank has loaded anything, and before any other has taken memory of
 * this machine. Options that follow from them are set. */
static enum status check_use(const struct opened_model *model, const char *folder,
                             const struct opened_model_use *use, struct model_options *options,
                             struct error *e) {
    if (use && use->start && model->comm->world->rank == 0 && use->start(use->context, e))
        return e->status;
    return budget_check(folder, model->backend, model->comm, options, use ? use->budget : NULL, e);
}

/* The parts that need the other ranks open after all have agreed to be there. */
static enum status open_rank(struct opened_model *model, const struct config *config,
                             const char *folder, const struct opened_model_use *use, int threads,
                             struct error *e) {
    char device[32];
    struct backend_options options = {.threads = threads};
    struct model_options model_options =
        model_options_of(config->model.dtype, config->model.cache_dtype);
    enum status status = backend_open(
        &model->backend, choose_device(config, model->comm, device, sizeof device), &options, e);
    if (comm_agree(model->comm->world, status, e)) return e->status;
    if (choose_comm(config) == COMM_NCCL &&
        comm_open_nccl(&model->comm, model->comm, model->backend, config->parallel.timeout, e))
        return e->status;
    if (comm_agree(model->comm->world, check_use(model, folder, use, &model_options, e), e))
        return e->status;
    status = model_open(&model->model, folder, model->backend, model->comm, &model_options, e);
    return comm_agree(model->comm->world, status, e);
}

static void close_rank(struct opened_model *model) {
    model_close(model->model);
    comm_close(model->comm);
    backend_close(model->backend);
    *model = (struct opened_model){0};
}

/* Errors reach rank 0 through the communicator, which names the rank. */
static void *run_follower(void *argument) {
    struct follower *follower = argument;
    struct error e = {0};
    if (open_rank(&follower->model, follower->config, follower->folder, follower->use,
                  follower->threads, &e) == STATUS_OK)
        session_follow(follower->model.model, &e);
    close_rank(&follower->model);
    return NULL;
}

/* The thread of a rank that cannot start fails the group, so that nobody waits for it. */
static void start_follower(struct follower *follower) {
    follower->started = pthread_create(&follower->thread, NULL, run_follower, follower) == 0;
    if (follower->started) return;
    struct error e;
    error_set(&e, STATUS_NO_MEMORY, "its thread could not be started");
    comm_leave(follower->model.comm, &e);
    comm_close(follower->model.comm);
}

static enum status open_ranks(struct opened_model *model, const struct config *config,
                              const char *folder, const struct opened_model_use *use,
                              struct error *e) {
    struct comm *ranks[COMM_MAX_RANKS];
    int n;
    struct comm_options options = {.kind = choose_comm(config),
                                   .size = config->parallel.tensor,
                                   .stages = config->parallel.pipeline,
                                   .timeout = (double)config->parallel.timeout,
                                   .rendezvous = config->parallel.rendezvous,
                                   .secret_file = config->parallel.secret_file,
                                   .host = config->parallel.host,
                                   .rank = config->parallel.rank};
    if (options.kind == COMM_NCCL && !is_gpu(device_of(config)))
        return error_set(e, STATUS_INVALID,
                         "parallel.comm is nccl, which is for GPUs, and model.device is %s",
                         device_of(config));
    if (comm_open(ranks, &n, &options, e)) return e->status;
    bool need_cpu = strcmp(ranks[0]->ops->name, "threads") == 0 && options.kind != COMM_NCCL;
    if (need_cpu && strcmp(device_of(config), "cpu") != 0) {
        for (int i = 0; i < n; i++) comm_close(ranks[i]);
        return error_set(e, STATUS_INVALID,
                         "ranks that are threads need model.device cpu, and it is %s; use %s",
                         device_of(config), is_gpu(device_of(config)) ? "nccl" : "mpi or sockets");
    }
    /* CPU threads are divided between the ranks of this process. */
    int threads = config->model.threads ? max_int(1, config->model.threads / n) : ranks[0]->cpus;
    model->comm = ranks[0];
    model->n_followers = n - 1;
    model->followers = xcalloc((size_t)n, sizeof *model->followers);
    for (int i = 0; i < n - 1; i++) {
        struct follower *follower = &model->followers[i];
        *follower = (struct follower){.model = {.comm = ranks[i + 1]},
                                      .config = config,
                                      .folder = folder,
                                      .use = use,
                                      .threads = threads};
        start_follower(follower);
    }
    if (n < options.size * options.stages && check_same(model, config, folder, e)) return e->status;
    return open_rank(model, config, folder, use, threads, e);
}

/* The ranks of this process; those that follow have ended or are about to. */
static void close_ranks(struct opened_model *model) {
    for (int i = 0; i < model->n_followers; i++)
        if (model->followers[i].started) pthread_join(model->followers[i].thread, NULL);
    free(model->followers);
    close_rank(model);
}

enum status opened_model_open(struct opened_model *model, const struct config *config,
                              const char *folder, const struct opened_model_use *use,
                              struct error *e) {
    *model = (struct opened_model){0};
    if (strcmp(config->model.device, "auto") == 0 && !is_gpu(device_of(config)))
        log_info("no CUDA device, using cpu");
    enum status status = open_ranks(model, config, folder, use, e);
    if (status) close_ranks(model);
    return status;
}

void opened_model_close(struct opened_model *model) {
    if (model->model && model->comm->world->rank == 0) session_release_followers(model->model);
    close_ranks(model);
}

enum status opened_model_follow(struct opened_model *model, struct error *e) {
    return session_follow(model->model, e);
}

enum status opened_model_check(const struct opened_model *model, struct error *e) {
    return comm_check(model->comm, e);
}
