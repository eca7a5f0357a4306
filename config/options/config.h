/* config/options/config.h: every option of the programs, in one table: name, type, default, range, help.
 *
 * The table (config_table.c) fills struct config from a JSON file, then from --set key=value, and generates --help,
 * --print-config and docs/config.md. Keys are dotted ("retrieval.k"), in the file they nest: {"retrieval": {"k": 2}}.
 * An unknown key, wrong type or value out of range is an error with file, line, allowed range and nearest known name.
 * Relative paths are relative to the configuration file's folder (for --set: to the working directory). */
#pragma once

#include <stdio.h>

#include "config/base/base.h"

enum config_dtype { CONFIG_DTYPE_AUTO, CONFIG_DTYPE_F32, CONFIG_DTYPE_F16, CONFIG_DTYPE_BF16, CONFIG_DTYPE_FP8 };
enum config_comm {
    CONFIG_COMM_AUTO,
    CONFIG_COMM_SINGLE,
    CONFIG_COMM_THREADS,
    CONFIG_COMM_MPI,
    CONFIG_COMM_SOCKETS,
    CONFIG_COMM_NCCL
};
enum config_grid { CONFIG_GRID_END, CONFIG_GRID_START };

/* Strings are owned by the config and never NULL; an empty path means "not given". */
struct config {
    struct {
        char *path;   /* folder with config.json, safetensors, tokenizer */
        char *name;   /* the id that /v1/models shows; empty: the folder's name */
        char *device; /* "cpu" */
        int dtype;    /* enum config_dtype; auto: as stored */
        int threads;  /* CPU threads of all ranks of this process; 0: as many as it may use */
    } model;
    struct {
        int tensor;           /* ranks that share every layer */
        int pipeline;         /* stages that the layers are cut into */
        int micro_batch_rows; /* rows of a step that stages hand on at once; 0: all */
        int comm;             /* enum config_comm: what a rank is and how they talk */
        int timeout;          /* seconds that a rank waits for another */
        char *rendezvous;     /* file by which ranks started by hand find each other; empty: they are not */
        int rank;             /* which of them this process is */
        char *host;           /* the address at which the others reach it */
    } parallel;
    struct {
        bool enabled;          /* false: the model runs without neighbours unless a request brings its own */
        char *collection;      /* folder made by retro-index; empty: no collection */
        char *embedder;        /* BERT-style sentence-transformers folder; empty: as the collection's MANIFEST says */
        int embedder_dtype;    /* enum config_dtype */
        char *device;          /* "cpu" or "cuda:N": where the index is searched */
        int k;                 /* neighbours per chunk; 0: as the model was trained */
        int max_k;             /* largest k a request may ask for */
        double min_similarity; /* cosine floor in [-1, 1]; neighbours below are dropped */
        int grid;              /* enum config_grid, design: chunk grid */
        int threads;           /* CPU threads of embedding and search; 0: as model.threads */
    } retrieval;
    struct {
        char *host;
        int port;            /* 0: any free port, printed at start */
        int max_sequences;   /* sequences decoded together in one step */
        int max_context;     /* tokens per sequence, prompt and answer; 0: the model's own limit */
        int max_step_tokens; /* prompt tokens processed in one step */
        int max_queue;       /* requests waiting for a sequence; more get 503 */
        int max_body_bytes;
        int max_connections;
        int max_prompts;        /* prompts in one request */
        int max_stops;          /* stop strings in one request */
        int max_logprobs;       /* alternatives per token */
        int connection_timeout; /* seconds a connection may idle */
        int head_timeout;       /* seconds that request line and headers may take */
        int min_body_rate;      /* bytes per second that a body must bring; 0: any */
        int drain_timeout;      /* seconds SIGTERM waits for running requests */
    } server;
    struct {
        int level; /* enum log_level */
    } log;
};

/* Defaults for every option; then config_read and config_set on top; then config_check once. */
void config_init(struct config *c);
void config_free(struct config *c);
enum status config_read(struct config *c, const char *path, struct error *e);
/* The text of a file, for tests and the fuzzer; `name` is what errors call it, `base` resolves relative paths. */
enum status config_parse(struct config *c, const char *text, size_t size, const char *name, const char *base,
                         struct error *e);
/* "retrieval.k=4" */
enum status config_set(struct config *c, const char *assignment, struct error *e);
/* Cross-option rules that no single range expresses. */
enum status config_check(const struct config *c, struct error *e);

void config_print_json(const struct config *c, FILE *out); /* the effective values, as a file config_read accepts */
void config_print_help(FILE *out);                         /* one option a line */
void config_print_markdown(FILE *out);                     /* docs/config.md */
