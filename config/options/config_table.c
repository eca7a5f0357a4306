/* config/options/config_table.c: the option table itself and look-ups in it. To add an option, add its field to struct
 * config and one row here; the parser, --help, --print-config and docs/config.md follow. */
#include "config/options/config_table.h"

#include <stdio.h>
#include <string.h>

static const char *const dtype_names[] = {"auto", "f32", "f16", "bf16", "fp8", NULL};
static const char *const comm_names[] = {"auto", "single", "threads", "mpi", "sockets", "nccl", NULL};
static const char *const grid_names[] = {"end", "start", NULL};
static const char *const level_names[] = {"error", "warn", "info", "debug", NULL};

#define FIELD(section, name) .key = #section "." #name, .offset = offsetof(struct config, section.name)
#define BOOL(section, name, value, line) \
    { FIELD(section, name), .type = OPTION_BOOL, .number = (value), .max = 1, .help = (line) }
#define INT(section, name, value, low, high, line) \
    { FIELD(section, name), .type = OPTION_INT, .number = (value), .min = (low), .max = (high), .help = (line) }
#define DOUBLE(section, name, value, low, high, line) \
    { FIELD(section, name), .type = OPTION_DOUBLE, .number = (value), .min = (low), .max = (high), .help = (line) }
#define STRING(section, name, value, line) \
    { FIELD(section, name), .type = OPTION_STRING, .text = (value), .help = (line) }
#define PATH(section, name, line) \
    { FIELD(section, name), .type = OPTION_PATH, .text = "", .help = (line) }
#define ENUM(section, name, value, list, line) \
    { FIELD(section, name), .type = OPTION_ENUM, .number = (value), .names = (list), .help = (line) }

/* Rows of one section are neighbours: the printers start a section where the part before the dot changes. */
const struct option option_table[] = {
    PATH(model, path, "folder with config.json, safetensors and tokenizer"),
    STRING(model, name, "", "the id that /v1/models shows; empty: the folder's name"),
    STRING(model, device, "cpu",
           "where the model runs: cpu, cuda:N in a build with CUDA, or auto: the first GPU if there is one, else cpu"),
    ENUM(model, dtype, CONFIG_DTYPE_AUTO, dtype_names, "type the weights are kept in; auto: as stored; fp8: on GPUs"),
    INT(model, threads, 0, 0, 1024, "CPU threads of the engine; 0: as many as the process may use"),

    INT(parallel, tensor, 1, 1, 64, "ranks that share every layer: its heads, its MLP and the vocabulary"),
    INT(parallel, pipeline, 1, 1, 64, "stages that the layers are cut into, each of parallel.tensor ranks"),
    INT(parallel, micro_batch_rows, 0, 0, 1 << 20,
        "rows of a step above which stages work on its sequences in turn, so many rows at once; 0: never"),
    ENUM(parallel, comm, CONFIG_COMM_AUTO, comm_names,
         "what ranks are: threads, processes of mpirun or joined by sockets, GPUs with nccl; auto: what there is"),
    INT(parallel, timeout, 60, 1, 86400,
        "seconds that a rank waits for another to start, to come further in loading, and within a step"),
    PATH(parallel, rendezvous, "file by which ranks that are started one by one find each other; empty: they are not"),
    INT(parallel, rank, 0, 0, 63, "with parallel.rendezvous: which rank this process is"),
    STRING(parallel, host, "127.0.0.1", "with parallel.rendezvous: the address at which other ranks reach this one"),

    BOOL(retrieval, enabled, true, "false: no neighbours unless a request brings its own"),
    PATH(retrieval, collection, "folder made by retro-index; empty: no collection"),
    PATH(retrieval, embedder, "sentence-transformers folder of BERT kind; empty: as the collection's MANIFEST says"),
    ENUM(retrieval, embedder_dtype, CONFIG_DTYPE_AUTO, dtype_names, "type the embedder's weights are kept in"),
    STRING(retrieval, device, "cpu",
           "where the index is searched: cpu, or cuda:N with FAISS' GPU part (make deps CUDA=1)"),
    INT(retrieval, k, 0, 0, 1024, "neighbours per chunk; 0: as the model was trained"),
    INT(retrieval, max_k, 16, 1, 1024, "largest k a request may ask for"),
    DOUBLE(retrieval, min_similarity, -1, -1, 1, "cosine similarity below which a neighbour is dropped; -1: none is"),
    ENUM(retrieval, grid, CONFIG_GRID_END, grid_names, "chunks are aligned to the prompt's end or to its start"),
    INT(retrieval, threads, 0, 0, 1024, "CPU threads of embedding and search; 0: as model.threads"),

    STRING(server, host, "127.0.0.1", "address to listen on"),
    INT(server, port, 8080, 0, 65535, "TCP port; 0: any free one, printed at start"),
    INT(server, max_sequences, 8, 1, 4096, "sequences decoded together in one step"),
    INT(server, max_context, 0, 0, 1 << 24, "tokens per sequence, prompt and answer; 0: the model's own limit"),
    INT(server, max_step_tokens, 512, 1, 1 << 20, "prompt tokens processed in one step"),
    INT(server, max_queue, 64, 0, 1 << 20, "requests waiting for a sequence; more are refused with 503"),
    INT(server, max_body_bytes, 4 << 20, 1024, 1 << 30, "bytes of one request body"),
    INT(server, max_connections, 256, 1, 65536, "open connections; idle ones are closed when others wait"),
    INT(server, max_prompts, 16, 1, 4096, "prompts in one request"),
    INT(server, max_stops, 16, 0, 1024, "stop strings in one request"),
    INT(server, max_logprobs, 20, 0, 1024, "alternatives per token in logprobs"),
    INT(server, connection_timeout, 60, 1, 86400, "seconds a connection may idle"),
    INT(server, head_timeout, 20, 1, 86400, "seconds that request line and headers of one request may take"),
    INT(server, min_body_rate, 500, 0, 1 << 30,
        "bytes per second that a body must bring, on average over each server.head_timeout seconds; 0: any"),
    INT(server, drain_timeout, 30, 0, 86400, "seconds that SIGTERM waits for running requests"),

    ENUM(log, level, LOG_LEVEL_INFO, level_names, "least important messages that are written to stderr"),
};
const int option_count = (int)ARRAY_COUNT(option_table);

const struct option *option_find(const char *key) {
    for (int i = 0; i < option_count; i++)
        if (strcmp(option_table[i].key, key) == 0) return &option_table[i];
    return NULL;
}

size_t option_section_length(const struct option *o) { return strcspn(o->key, "."); }

enum { NAME_MAX_LENGTH = 64 };

/* Levenshtein distance of two names of at most NAME_MAX_LENGTH bytes, one row of the table at a time. */
static int edit_distance(const char *a, size_t a_size, const char *b, size_t b_size) {
    int row[NAME_MAX_LENGTH + 1];
    for (size_t j = 0; j <= b_size; j++) row[j] = (int)j;
    for (size_t i = 1; i <= a_size; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_size; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = min_int(replaced, min_int(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_size];
}

/* A third of the name may be wrong: farther names are no help to the reader. */
static int allowed_distance(size_t size) { return max_int(2, (int)size / 3); }

const struct option *option_nearest(const char *key) {
    size_t size = strlen(key);
    if (size > NAME_MAX_LENGTH) return NULL;
    const struct option *nearest = NULL;
    int best = allowed_distance(size) + 1;
    for (int i = 0; i < option_count; i++) {
        int d = edit_distance(key, size, option_table[i].key, strlen(option_table[i].key));
        if (d < best) {
            best = d;
            nearest = &option_table[i];
        }
    }
    return nearest;
}

bool section_known(const char *section) {
    size_t size = strlen(section);
    for (int i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        if (option_section_length(o) == size && memcmp(o->key, section, size) == 0) return true;
    }
    return false;
}

bool section_nearest(const char *section, char *name, size_t size) {
    size_t length = strlen(section);
    if (length > NAME_MAX_LENGTH) return false;
    int best = allowed_distance(length) + 1;
    for (int i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        int d = edit_distance(section, length, o->key, option_section_length(o));
        if (d < best) {
            best = d;
            snprintf(name, size, "%.*s", (int)option_section_length(o), o->key);
        }
    }
    return best <= allowed_distance(length);
}

const char *option_type_name(enum option_type type) {
    static const char *const names[] = {
        [OPTION_BOOL] = "true or false", [OPTION_INT] = "an integer", [OPTION_DOUBLE] = "a number",
        [OPTION_STRING] = "a string",    [OPTION_PATH] = "a path",    [OPTION_ENUM] = "one of",
    };
    return names[type];
}

const char *option_range_text(const struct option *o, char *text, size_t size) {
    text[0] = '\0';
    if (o->type == OPTION_INT || o->type == OPTION_DOUBLE) {
        snprintf(text, size, "%.10g .. %.10g", o->min, o->max);
    } else if (o->type == OPTION_ENUM) {
        size_t used = 0;
        for (int i = 0; o->names[i] != NULL && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", o->names[i]);
    }
    return text;
}
