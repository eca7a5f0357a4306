/* server/host/models/budget.c: the parts of the memory that a rank will take, and what there is.
 * See budget.h. */
#include "server/host/models/budget.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/buffer.h"
#include "config/base/memory.h"

/* The memory that parts are compared with. */
struct room {
    size_t bytes;
    const char *whose; /* "", or why it is less than one might think */
    char limit[120];   /* the control group that decides, or empty */
};

/* "2.4 GB" */
struct amount {
    char text[24];
};

static struct amount amount_of(size_t bytes) {
    struct amount amount;
    bool large = bytes >= (size_t)1e9;
    snprintf(amount.text, sizeof amount.text, "%.1f %s", (large ? 1e-9 : 1e-6) * (double)bytes,
             large ? "GB" : "MB");
    return amount;
}

static void append(struct budget_parts *parts, const struct budget_part *part) {
    CHECK(parts->n < BUDGET_PARTS);
    parts->all[parts->n] = *part;
    parts->n++;
}

void budget_add(struct budget_parts *parts, struct budget_part part, const char *advice, ...) {
    va_list args;
    va_start(args, advice);
    vsnprintf(part.advice, sizeof part.advice, advice, args);
    va_end(args);
    append(parts, &part);
}

static size_t sum(const struct budget_parts *parts) {
    size_t all = 0;
    for (int i = 0; i < parts->n; i++)
        if (!parts->all[i].mapped && add_overflows(all, parts->all[i].bytes, &all)) return SIZE_MAX;
    return all;
}

/* "weights 2.4 GB, cache 1.1 GB, ..." */
static const char *describe(const struct budget_parts *parts, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < parts->n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s %s%s", i ? ", " : "",
                                 parts->all[i].name, amount_of(parts->all[i].bytes).text,
                                 parts->all[i].mapped ? " mapped" : "");
    return text;
}

static const struct budget_part *largest(const struct budget_parts *parts) {
    const struct budget_part *most = NULL;
    for (int i = 0; i < parts->n; i++)
        if (!parts->all[i].mapped && (most == NULL || parts->all[i].bytes > most->bytes))
            most = &parts->all[i];
    CHECK(most != NULL); /* or nothing would have been refused */
    return most;
}

static enum status judge(const struct budget_parts *budget_parts, const struct room *room,
                         bool tell, struct error *e) {
    char parts[360], which[200];
    struct amount all = amount_of(sum(budget_parts)), there = amount_of(room->bytes);
    describe(budget_parts, parts, sizeof parts);
    snprintf(which, sizeof which, "%s%s%s%s", room->whose, room->limit[0] ? " (" : "", room->limit,
             room->limit[0] ? ")" : "");
    if (sum(budget_parts) > room->bytes)
        return error_set(e, STATUS_NO_MEMORY,
                         "not enough memory: %s make %s, and %s are available%s: %s", parts,
                         all.text, there.text, which, largest(budget_parts)->advice);
    if (tell && budget_parts->n > 0)
        log_info("memory: %s: %s of %s available%s", parts, all.text,
                 room->bytes == SIZE_MAX ? "an unknown amount" : there.text, which);
    return STATUS_OK;
}

/* The host's memory, for parts beside a model that is on a GPU. */
static struct room room_on_host(void) {
    struct memory memory;
    struct room room = {.whose = " on the host"};
    memory_read(&memory, "");
    room.bytes = memory.available;
    snprintf(room.limit, sizeof room.limit, "%.*s", (int)sizeof room.limit - 1, memory.limit);
    return room;
}

/* A GPU is one rank's. Ranks on CPUs share the memory of their machine; they measure before any
 * takes its part, and all take about the same of a model. */
static struct room room_on_device(struct backend *backend, const struct comm *comm, bool cpu,
                                  size_t of_model) {
    struct room room = {.bytes = backend->ops->available(backend), .whose = ""};
    size_t others;
    if (cpu) memcpy(room.limit, room_on_host().limit, sizeof room.limit);
    if (!cpu || comm->local_ranks == 1 || room.bytes == SIZE_MAX) return room;
    room.whose = " beside the other ranks of this machine";
    if (mul_overflows(of_model, (size_t)(comm->local_ranks - 1), &others)) others = SIZE_MAX;
    room.bytes -= others < room.bytes ? others : room.bytes;
    return room;
}

/* On a CPU all is in one memory; on a GPU what is on the host is compared by itself. */
static enum status compare(const struct budget_parts *model, const struct budget_parts *beside,
                           struct backend *backend, const struct comm *comm, struct error *e) {
    bool cpu = strcmp(backend->ops->name, "cpu") == 0,
         tell = comm->world->rank == 0 && model->n > 1;
    struct budget_parts here = *model, host = {0};
    for (int i = 0; i < beside->n; i++)
        append(cpu || !beside->all[i].on_host ? &here : &host, &beside->all[i]);
    struct room device = room_on_device(backend, comm, cpu, sum(model));
    if (judge(&here, &device, tell, e)) return e->status;
    if (host.n == 0) return STATUS_OK;
    struct room memory = room_on_host();
    return judge(&host, &memory, tell, e);
}

/* Rows of a step that server.max_step_tokens has a say in. */
static int prompt_rows(const struct session_limits *limits) {
    return limits->max_step_rows - limits->max_sessions - limits->max_draft_rows;
}

/* Cross attention reads neighbours of chunks, or one encoded text a sequence. */
static void add_cross(struct budget_parts *parts, const struct model_info *info, size_t bytes,
                      const struct session_limits *limits) {
    int sequences = limits->max_sessions, rows = prompt_rows(limits);
    if (bytes == 0) return;
    if (info->reads_source)
        budget_add(parts, (struct budget_part){.name = "encoded prompts", .bytes = bytes},
                   "lower server.max_sequences (%d) or server.max_context (%d)", sequences,
                   limits->max_source);
    else
        budget_add(parts, (struct budget_part){.name = "neighbours", .bytes = bytes},
                   "lower retrieval.max_neighbors (%d), server.max_step_tokens (%d) or "
                   "server.max_sequences (%d)",
                   limits->max_neighbors, rows, sequences);
}

static enum status add_sessions(struct budget_parts *parts, const struct model *model,
                                const struct session_limits *limits, struct error *e) {
    struct session_bytes bytes;
    int sequences = limits->max_sessions, rows = prompt_rows(limits);
    if (session_pool_measure(&bytes, model, limits, e))
        return error_prefix(e, "server.max_sequences, max_context, max_step_tokens%s",
                            model_info(model)->chunk_length ? " and retrieval.max_neighbors" : "");
    bool narrows = model_info(model)->cache_narrows && limits->kv_dtype != DTYPE_INT8;
    budget_add(parts, (struct budget_part){.name = "cache", .bytes = bytes.cache},
               "lower server.max_sequences (%d) or server.max_context (%d)%s", sequences,
               limits->max_tokens, narrows ? ", or set model.cache_dtype to int8" : "");
    if (bytes.states > 0)
        budget_add(parts, (struct budget_part){.name = "states", .bytes = bytes.states},
                   "lower server.max_sequences (%d)", sequences);
    if (bytes.kept > 0)
        budget_add(parts, (struct budget_part){.name = "prefixes", .bytes = bytes.kept},
                   "lower server.prefix_cache_mb");
    add_cross(parts, model_info(model), bytes.cross, limits);
    struct budget_part steps = {.name = "step buffers", .bytes = bytes.steps};
    if (limits->max_picture_rows > 0 && model_info(model)->any_picture)
        budget_add(parts, steps,
                   "lower server.max_picture_patches (%d) or server.max_step_tokens (%d)",
                   limits->max_picture_rows, rows);
    else
        budget_add(parts, steps, "lower server.max_step_tokens (%d)", rows);
    return STATUS_OK;
}

size_t budget_picture_rows(const struct model_info *info, const struct session_limits *limits) {
    size_t row = (size_t)info->picture_columns * sizeof(float), prompt, all;
    if (limits->max_given == 0) return 0;
    if (mul_overflows(row, (size_t)limits->max_tokens, &prompt) ||
        mul_overflows(prompt, (size_t)limits->max_sessions + 1, &all))
        return SIZE_MAX;
    return all;
}

void budget_add_pictures(struct budget_parts *parts, const struct model_info *info,
                         const struct session_limits *limits) {
    size_t bytes = budget_picture_rows(info, limits);
    if (bytes > 0)
        budget_add(
            parts,
            (struct budget_part){.name = "rows of pictures", .bytes = bytes, .on_host = true},
            "lower server.max_sequences (%d) or server.max_context (%d)", limits->max_sessions,
            limits->max_tokens);
}

/* Estimates, from what programs with small and large tokenizers were seen to take (anonymous memory
 * beside the measured parts): a byte of a tokenizer's file becomes up to 16 while it is read, and
 * the rest is threads' stacks, libraries, buffers of connections and what the heap keeps. */
enum { BYTES_OF_TOKENIZER_BYTE = 16, PROGRAM_BYTES = 24 << 20, MARGIN_BYTES = 16 << 20 };

static size_t tokenizer_file_bytes(const char *folder) {
    static const char *const names[] = {"tokenizer.json", "vocab.json",   "merges.txt",
                                        "vocab.txt",      "spiece.model", "tokenizer.model",
                                        "tekken.json"};
    size_t bytes = 0;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct buffer path = {0};
        struct stat st;
        buffer_printf(&path, "%s/%s", folder, names[i]);
        if (stat(path.data, &st) == 0 && S_ISREG(st.st_mode)) bytes += (size_t)st.st_size;
        buffer_free(&path);
    }
    return bytes;
}

size_t budget_model_overhead(const char *folder) {
    return PROGRAM_BYTES + BYTES_OF_TOKENIZER_BYTE * tokenizer_file_bytes(folder);
}

void budget_add_program(struct budget_parts *parts, const char *const *folders, int n) {
    size_t bytes = PROGRAM_BYTES + MARGIN_BYTES;
    for (int i = 0; i < n; i++) bytes += BYTES_OF_TOKENIZER_BYTE * tokenizer_file_bytes(folders[i]);
    budget_add(parts, (struct budget_part){.name = "program", .bytes = bytes, .on_host = true},
               "give it more memory: this is the least that it runs in");
}

enum status budget_check_host(const struct budget_parts *parts, struct error *e) {
    struct room room = room_on_host();
    return judge(parts, &room, false, e);
}

/* A path that is longer is left to the reader: the message has other things to say. */
enum { PATH_IN_COMMAND = 120 };

/* The command that packs the model of a path, and the option that then names it. */
static void advise_packing(char *advice, size_t size, const char *path, size_t bytes) {
    static const char suffix[] = ".gguf";
    int n = (int)strlen(path), end = (int)strlen(suffix);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n > PATH_IN_COMMAND) {
        path = "MODEL";
        n = (int)strlen(path);
    }
    bool file = n > end && strncmp(path + n - end, suffix, (size_t)end) == 0;
    int stem = file ? n - end : n;
    snprintf(
        advice, size,
        "of a packed model the experts need not fit. Pack it once (the disk needs %s), and set "
        "model.path to the new folder: retro-convert %.*s %.*s-packed --to packed",
        amount_of(bytes).text, n, path, stem, path);
}

/* The way to make a model without experts smaller: numbers of fewer bits than it has. */
static const char *advise_dtype(enum dtype dtype) {
    if (dtype == DTYPE_F32)
        return "set model.dtype to bf16, take a quantised or smaller model, or more ranks";
    if (dtype_quantised(dtype) || dtype == DTYPE_FP8) return "take a smaller model, or more ranks";
    return "take a quantised or smaller model, or more ranks";
}

/* Weights are one part; those of a file that memory does not hold, with experts, are two. `path` is
 * that of a model which would fit if it were packed, else NULL. */
static void add_weights(struct budget_parts *parts, const struct model_info *info, bool fetches,
                        const char *path) {
    struct budget_part weights = {
        .name = "weights", .bytes = info->weight_bytes, .mapped = info->mapped && !fetches};
    if (fetches) {
        weights.bytes -= info->expert_bytes;
        budget_add(parts, weights, "take a smaller model: all but the experts has to fit");
        budget_add(
            parts,
            (struct budget_part){.name = "experts", .bytes = info->expert_bytes, .mapped = true},
            "-");
    } else if (path) {
        advise_packing(weights.advice, sizeof weights.advice, path, info->weight_bytes);
        append(parts, &weights);
    } else if (info->expert_bytes > 0) {
        budget_add(parts, weights,
                   "take a smaller model; on a CPU, experts of a model that retro-convert --to "
                   "packed wrote need not fit, all else has to");
    } else {
        budget_add(parts, weights, "%s", advise_dtype(info->dtype));
    }
}

/* The parts of a model's use on this rank, and of what is beside it. */
struct use_parts {
    struct budget_parts sessions, beside;
};

static enum status collect_use(struct use_parts *parts, const struct model *model,
                               struct backend *backend, const struct comm *comm,
                               const struct budget_use *use, struct error *e) {
    const struct model_info *info = model_info(model);
    struct session_limits limits;
    if (use->limits(use->context, info, &limits, e) ||
        add_sessions(&parts->sessions, model, &limits, e))
        return e->status;
    if (use->beside && comm->world->rank == 0)
        return use->beside(use->context, info, backend, &parts->beside, e);
    return STATUS_OK;
}

/* Memory that is left for weights beside the rest; mapped ones are on a CPU. */
static size_t room_beside(const struct use_parts *parts, struct backend *backend) {
    size_t all, available = backend->ops->available(backend);
    if (add_overflows(sum(&parts->sessions), sum(&parts->beside), &all)) return 0;
    return all < available ? available - all : 0;
}

/* Of a model that fetches experts: those that memory holds at a time. */
static size_t held_expert_bytes(const struct model_info *info, size_t room) {
    size_t shared = info->weight_bytes - info->expert_bytes;
    return room > shared ? room - shared : 0;
}

/* Mapped weights are read again and again when they do not fit beside the rest. */
static void warn_of_mapped(const struct model_info *info, size_t room, bool fetches) {
    if (!fetches) {
        log_warn(
            "memory: the %s of mapped weights do not stay in memory beside the rest: every step "
            "will read some from disk",
            amount_of(info->weight_bytes).text);
        return;
    }
    size_t held = held_expert_bytes(info, room);
    double part = (double)held / (double)info->expert_bytes;
    size_t read = (size_t)((1 - part) * (double)info->decode_expert_bytes);
    log_warn(
        "memory: experts are %s mapped, of which memory holds %s: a token uses %s of them, and "
        "reads %s from disk if it uses all alike",
        amount_of(info->expert_bytes).text, amount_of(held).text,
        amount_of(info->decode_expert_bytes).text, amount_of(read).text);
}

/* A rank's model, of which nothing is loaded yet. */
struct checked_model {
    const struct model *model;
    const char *path;
    struct backend *backend;
    struct comm *comm;
};

/* Whether retro-convert can pack the model as it would be loaded, and all but its experts fits. */
static bool can_pack(const struct checked_model *checked, const struct model_options *options,
                     size_t room) {
    const struct model_info *info = model_info(checked->model);
    bool here = checked->backend->ops->packed_layout && checked->comm->world->size == 1;
    return here && !info->mapped && !options->convert && info->expert_bytes > 0 &&
           info->weight_bytes - info->expert_bytes <= room;
}

static enum status check_model(const struct checked_model *checked, struct model_options *options,
                               const struct budget_use *use, struct error *e) {
    const struct model_info *info = model_info(checked->model);
    struct backend *backend = checked->backend;
    struct use_parts parts = {0};
    struct budget_parts model = {0};
    if (use && collect_use(&parts, checked->model, backend, checked->comm, use, e))
        return e->status;
    size_t room = room_beside(&parts, backend);
    bool stays = !info->mapped || info->weight_bytes <= room,
         fetches = !stays && info->expert_bytes > 0;
    options->fetch_experts = fetches;
    options->held_expert_bytes = fetches ? held_expert_bytes(info, room) : 0;

    add_weights(&model, info, fetches, can_pack(checked, options, room) ? checked->path : NULL);
    for (int i = 0; i < parts.sessions.n; i++) append(&model, &parts.sessions.all[i]);
    if (compare(&model, &parts.beside, backend, checked->comm, e)) return e->status;
    if (!stays) warn_of_mapped(info, room, fetches);
    return STATUS_OK;
}

enum status budget_check(const char *folder, struct backend *backend, struct comm *comm,
                         struct model_options *options, const struct budget_use *use,
                         struct error *e) {
    struct model *model;
    struct model_options check = *options;
    check.check_only = true;
    if (model_open(&model, folder, backend, comm, &check, e)) return e->status;
    struct checked_model checked = {model, folder, backend, comm};
    enum status status = check_model(&checked, options, use, e);
    model_close(model);
    return status;
}
