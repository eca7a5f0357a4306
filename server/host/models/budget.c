/* server/host/models/budget.c: the parts of the memory that a rank will take, and what there is. See budget.h. */
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
    struct amount a;
    bool large = bytes >= (size_t)1e9;
    snprintf(a.text, sizeof a.text, "%.1f %s", (large ? 1e-9 : 1e-6) * (double)bytes, large ? "GB" : "MB");
    return a;
}

void budget_add(struct budget_parts *p, struct budget_part part, const char *advice, ...) {
    va_list args;
    CHECK(p->n < BUDGET_PARTS);
    va_start(args, advice);
    vsnprintf(part.advice, sizeof part.advice, advice, args);
    va_end(args);
    p->all[p->n] = part;
    p->n++;
}

static size_t sum(const struct budget_parts *p) {
    size_t all = 0;
    for (int i = 0; i < p->n; i++)
        if (!p->all[i].mapped && add_overflows(all, p->all[i].bytes, &all)) return SIZE_MAX;
    return all;
}

/* "weights 2.4 GB, cache 1.1 GB, ..." */
static const char *describe(const struct budget_parts *p, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < p->n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s %s%s", i ? ", " : "", p->all[i].name,
                                 amount_of(p->all[i].bytes).text, p->all[i].mapped ? " mapped" : "");
    return text;
}

static const struct budget_part *largest(const struct budget_parts *p) {
    const struct budget_part *most = NULL;
    for (int i = 0; i < p->n; i++)
        if (!p->all[i].mapped && (most == NULL || p->all[i].bytes > most->bytes)) most = &p->all[i];
    CHECK(most != NULL); /* or nothing would have been refused */
    return most;
}

static enum status judge(const struct budget_parts *p, const struct room *r, bool tell, struct error *e) {
    char parts[320], which[200];
    struct amount all = amount_of(sum(p)), there = amount_of(r->bytes);
    describe(p, parts, sizeof parts);
    snprintf(which, sizeof which, "%s%s%s%s", r->whose, r->limit[0] ? " (" : "", r->limit, r->limit[0] ? ")" : "");
    if (sum(p) > r->bytes)
        return error_set(e, STATUS_NO_MEMORY, "not enough memory: %s make %s, and %s are available%s: %s", parts,
                         all.text, there.text, which, largest(p)->advice);
    if (tell && p->n > 0)
        log_info("memory: %s: %s of %s available%s", parts, all.text,
                 r->bytes == SIZE_MAX ? "an unknown amount" : there.text, which);
    return STATUS_OK;
}

/* The host's memory, for parts beside a model that is on a GPU. */
static struct room room_on_host(void) {
    struct memory m;
    struct room r = {.whose = " on the host"};
    memory_read(&m, "");
    r.bytes = m.available;
    snprintf(r.limit, sizeof r.limit, "%.*s", (int)sizeof r.limit - 1, m.limit);
    return r;
}

/* A GPU is one rank's. Ranks on CPUs share the memory of their machine; they measure before any takes its part, and all
 * take about the same of a model. */
static struct room room_on_device(struct backend *b, const struct comm *c, bool cpu, size_t of_model) {
    struct room r = {.bytes = b->ops->available(b), .whose = ""};
    size_t others;
    if (cpu) memcpy(r.limit, room_on_host().limit, sizeof r.limit);
    if (!cpu || c->local_ranks == 1 || r.bytes == SIZE_MAX) return r;
    r.whose = " beside the other ranks of this machine";
    if (mul_overflows(of_model, (size_t)(c->local_ranks - 1), &others)) others = SIZE_MAX;
    r.bytes -= others < r.bytes ? others : r.bytes;
    return r;
}

/* On a CPU all is in one memory; on a GPU what is on the host is compared by itself. */
static enum status compare(const struct budget_parts *model, const struct budget_parts *beside, struct backend *b,
                           const struct comm *c, struct error *e) {
    bool cpu = strcmp(b->ops->name, "cpu") == 0, tell = c->world->rank == 0 && model->n > 1;
    struct budget_parts here = *model, host = {0};
    for (int i = 0; i < beside->n; i++) {
        struct budget_parts *to = cpu || !beside->all[i].on_host ? &here : &host;
        CHECK(to->n < BUDGET_PARTS);
        to->all[to->n] = beside->all[i];
        to->n++;
    }
    struct room device = room_on_device(b, c, cpu, sum(model));
    if (judge(&here, &device, tell, e)) return e->status;
    if (host.n == 0) return STATUS_OK;
    struct room memory = room_on_host();
    return judge(&host, &memory, tell, e);
}

/* Cross attention reads neighbours of chunks, or one encoded text a sequence. */
static void add_cross(struct budget_parts *p, const struct model_info *info, size_t bytes,
                      const struct session_limits *l) {
    int sequences = l->max_sessions, rows = l->max_step_rows - sequences;
    if (bytes == 0) return;
    if (info->reads_source)
        budget_add(p, (struct budget_part){.name = "encoded prompts", .bytes = bytes},
                   "lower server.max_sequences (%d) or server.max_context (%d)", sequences, l->max_source);
    else
        budget_add(p, (struct budget_part){.name = "neighbours", .bytes = bytes},
                   "lower retrieval.max_neighbors (%d), server.max_step_tokens (%d) or server.max_sequences (%d)",
                   l->max_neighbors, rows, sequences);
}

static enum status add_sessions(struct budget_parts *p, const struct model *m, const struct session_limits *l,
                                struct error *e) {
    struct session_bytes s;
    int sequences = l->max_sessions, rows = l->max_step_rows - sequences;
    if (session_pool_measure(&s, m, l, e))
        return error_prefix(e, "server.max_sequences, max_context, max_step_tokens%s",
                            model_info(m)->chunk_length ? " and retrieval.max_neighbors" : "");
    budget_add(p, (struct budget_part){.name = "cache", .bytes = s.cache},
               "lower server.max_sequences (%d) or server.max_context (%d)", sequences, l->max_tokens);
    if (s.kept > 0)
        budget_add(p, (struct budget_part){.name = "prefixes", .bytes = s.kept}, "lower server.prefix_cache_mb");
    add_cross(p, model_info(m), s.cross, l);
    struct budget_part steps = {.name = "step buffers", .bytes = s.steps};
    if (l->max_picture_rows > 0 && model_info(m)->any_picture)
        budget_add(p, steps, "lower server.max_picture_patches (%d) or server.max_step_tokens (%d)",
                   l->max_picture_rows, rows);
    else
        budget_add(p, steps, "lower server.max_step_tokens (%d)", rows);
    return STATUS_OK;
}

/* Estimates, from what programs with small and large tokenizers were seen to take (anonymous memory beside the measured
 * parts): a byte of a tokenizer's file becomes up to 16 while it is read, and the rest is threads' stacks, libraries,
 * buffers of connections and what the heap keeps. */
enum { BYTES_OF_TOKENIZER_BYTE = 16, PROGRAM_BYTES = 24 << 20, MARGIN_BYTES = 16 << 20 };

static size_t tokenizer_file_bytes(const char *folder) {
    static const char *const names[] = {"tokenizer.json", "vocab.json",   "merges.txt",
                                        "vocab.txt",      "spiece.model", "tokenizer.model"};
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

void budget_add_program(struct budget_parts *p, const char *const *folders, int n) {
    size_t bytes = PROGRAM_BYTES + MARGIN_BYTES;
    for (int i = 0; i < n; i++) bytes += BYTES_OF_TOKENIZER_BYTE * tokenizer_file_bytes(folders[i]);
    budget_add(p, (struct budget_part){.name = "program", .bytes = bytes, .on_host = true},
               "give it more memory: this is the least that it runs in");
}

enum status budget_check_host(const struct budget_parts *parts, struct error *e) {
    struct room room = room_on_host();
    return judge(parts, &room, false, e);
}

/* Mapped weights are read again and again when they do not fit beside the rest. */
static void warn_of_mapped(const struct budget_parts *parts, size_t mapped, size_t available) {
    size_t all;
    if (!add_overflows(sum(parts), mapped, &all) && all <= available) return;
    log_warn(
        "memory: the %s of mapped weights do not stay in memory beside the rest: every step will read some from disk",
        amount_of(mapped).text);
}

static enum status check_model(const struct model *m, struct backend *b, struct comm *c, const struct budget_use *use,
                               struct error *e) {
    const struct model_info *info = model_info(m);
    struct budget_parts model = {0}, beside = {0};
    struct session_limits limits;
    budget_add(&model, (struct budget_part){.name = "weights", .bytes = info->weight_bytes, .mapped = info->mapped},
               "set model.dtype to bf16, take a quantised or smaller model, or more ranks");
    if (use == NULL) return compare(&model, &beside, b, c, e);
    if (use->limits(use->context, info, &limits, e) || add_sessions(&model, m, &limits, e)) return e->status;
    if (use->beside && c->world->rank == 0 && use->beside(use->context, info, b, &beside, e)) return e->status;
    if (info->mapped) warn_of_mapped(&model, info->weight_bytes, b->ops->available(b));
    return compare(&model, &beside, b, c, e);
}

enum status budget_check(const char *folder, struct backend *b, struct comm *c, struct model_options o,
                         const struct budget_use *use, struct error *e) {
    struct model *m;
    o.check_only = true;
    if (model_open(&m, folder, b, c, &o, e)) return e->status;
    enum status status = check_model(m, b, c, use, e);
    model_close(m);
    return status;
}
