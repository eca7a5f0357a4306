/* server/host/models/budget.h: whether what is to be loaded fits into the memory there is, said
 * before any of it is taken. */
#pragma once

#include "retro/run/session/session.h"

/* One of the things that take memory. */
struct budget_part {
    char name[24]; /* "cache" */
    size_t bytes;
    bool mapped;      /* of files: the system can take their pages back, so they count as nothing */
    bool on_host;     /* in the host's memory, also where the model is on a GPU */
    char advice[400]; /* what to change when it is the largest: "lower server.max_sequences (8)" */
};

enum { BUDGET_PARTS = 16 };
struct budget_parts {
    struct budget_part all[BUDGET_PARTS];
    int n;
};
/* `advice` is a format. */
void budget_add(struct budget_parts *parts, struct budget_part part, const char *advice, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds what a program takes beside what it measures: the tables of the tokenizers in these folders,
 * its threads, requests and the heap's losses, which are estimated, and a margin.
 * tests/http/test_memory.py compares. */
void budget_add_program(struct budget_parts *parts, const char *const *folders, int n);
/* The same for one more model of the program: its tokenizer, threads and requests. */
size_t budget_model_overhead(const char *folder);
/* The rows of pictures that prompts hold while they are read, on the host: a prompt may be pictures
 * alone, and the tower makes those of one more prompt. 0: the model reads none. */
size_t budget_picture_rows(const struct model_info *info, const struct session_limits *limits);
/* Adds them, where there are any. */
void budget_add_pictures(struct budget_parts *parts, const struct model_info *info,
                         const struct session_limits *limits);
/* Parts of a program without a model against the host's memory. `program` is added by the caller.
 */
enum status budget_check_host(const struct budget_parts *parts, struct error *e);

/* The parts that a process will have open beside a model. The callbacks are called once the model
 * is known, and get `context`. */
struct budget_use {
    /* A pool of sessions. */
    enum status (*limits)(void *context, const struct model_info *info,
                          struct session_limits *session_limits, struct error *e);
    /* Anything else, on rank 0 only; the backend is its device. NULL: nothing. */
    enum status (*beside)(void *context, const struct model_info *info, struct backend *backend,
                          struct budget_parts *parts, struct error *e);
    void *context;
};

/* This rank's part of the folder's model, and of its use (NULL: none), against what its device can
 * still give, and for parts on the host against what that has left. Rank 0 logs one line with the
 * parts where there is a use. STATUS_NO_MEMORY has all parts and names the option to lower. Loads
 * nothing, but verifies the folder as model_open does. Sets options->fetch_experts and
 * held_expert_bytes where mapped weights do not stay in memory beside the rest. */
enum status budget_check(const char *folder, struct backend *backend, struct comm *comm,
                         struct model_options *options, const struct budget_use *use,
                         struct error *e);
