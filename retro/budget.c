/* retro/budget.c: the parts of the memory that a rank will take, and what there is. See budget.h. */
#include "retro/budget.h"

#include <stdio.h>
#include <string.h>

struct budget {
    struct session_limits limits;
    struct session_bytes sessions;
    size_t weights;     /* 0 when they are mapped: the system can take those pages back */
    bool mapped, pools; /* there will be sessions */
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

static size_t budget_all(const struct budget *u) { return u->weights + session_bytes_all(&u->sessions); }

/* Ranks on CPUs share the memory of their machine; they measure before any takes its part, and all take about the same.
 * A GPU is one rank's. */
static size_t available_here(struct backend *b, const struct comm *c) {
    size_t all = b->ops->available(b);
    bool shared = strcmp(b->ops->name, "cpu") == 0 && all < SIZE_MAX;
    return shared ? all / (size_t)c->local_ranks : all;
}

/* "weights 2.4 GB, cache 1.1 GB, ..." */
static const char *describe(const struct budget *u, char *text, size_t size) {
    const struct session_bytes *s = &u->sessions;
    struct amount weights = amount_of(u->weights);
    size_t used = (size_t)snprintf(text, size, "weights %s", u->mapped ? "mapped" : weights.text);
    if (u->pools && used < size)
        used += (size_t)snprintf(text + used, size - used, ", cache %s", amount_of(s->cache).text);
    if (s->neighbors && used < size)
        used += (size_t)snprintf(text + used, size - used, ", neighbours %s", amount_of(s->neighbors).text);
    if (u->pools && used < size) snprintf(text + used, size - used, ", step buffers %s", amount_of(s->steps).text);
    return text;
}

/* What to change about the largest part. */
static void advise(const struct budget *u, char *text, size_t size) {
    const struct session_bytes *s = &u->sessions;
    const struct session_limits *l = &u->limits;
    int sequences = l->max_sessions, rows = l->max_step_rows - sequences;
    if (u->weights >= s->cache && u->weights >= s->steps && u->weights >= s->neighbors)
        snprintf(text, size, "set model.dtype to bf16, take a quantised or smaller model, or more ranks");
    else if (s->cache >= s->steps && s->cache >= s->neighbors)
        snprintf(text, size, "lower server.max_sequences (%d) or server.max_context (%d)", sequences, l->max_tokens);
    else if (s->steps >= s->neighbors)
        snprintf(text, size, "lower server.max_step_tokens (%d)", rows);
    else
        snprintf(text, size, "lower retrieval.max_k (%d), server.max_step_tokens (%d) or server.max_sequences (%d)",
                 l->max_neighbors, rows, sequences);
}

static enum status budget_judge(const struct budget *u, const struct comm *c, size_t available, struct error *e) {
    char parts[160], advice[160];
    struct amount all = amount_of(budget_all(u)), there = amount_of(available);
    describe(u, parts, sizeof parts);
    if (budget_all(u) > available) {
        advise(u, advice, sizeof advice);
        return error_set(e, STATUS_NO_MEMORY, "not enough memory: %s make %s, and %s are available: %s", parts,
                         all.text, there.text, advice);
    }
    if (u->pools && c->world->rank == 0)
        log_info("memory%s: %s: %s of %s available", c->world->size > 1 ? " of rank 0" : "", parts, all.text,
                 available == SIZE_MAX ? "an unknown amount" : there.text);
    return STATUS_OK;
}

enum status budget_check(const char *folder, struct backend *b, struct comm *c, struct model_options o,
                         const struct budget_sessions *sessions, struct error *e) {
    struct budget u = {.pools = sessions != NULL};
    struct model *m;
    o.check_only = true;
    if (model_open(&m, folder, b, c, &o, e)) return e->status;
    const struct model_info *info = model_info(m);
    u.mapped = info->mapped;
    u.weights = info->mapped ? 0 : info->weight_bytes;
    enum status status = STATUS_OK;
    if (sessions) status = sessions->limits(sessions->context, info, &u.limits, e);
    if (status == STATUS_OK && sessions && session_pool_measure(&u.sessions, m, &u.limits, e))
        status = error_prefix(e, "server.max_sequences, max_context, max_step_tokens and retrieval.max_k");
    if (status == STATUS_OK) status = budget_judge(&u, c, available_here(b, c), e);
    model_close(m);
    return status;
}
