/* server/doors/mcp/batch.c: see batch.h. */
#include "server/doors/mcp/batch.h"

#include <stdlib.h>

struct batch_answer {
    struct answer base; /* first */
    struct json *json;
    struct answer **parts; /* [n] */
    int n, n_done;         /* those before n_done are complete */
    struct buffer *bodies; /* [n] */
};

static void write_list(const struct batch_answer *batch, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_array(&w);
    for (int i = 0; i < batch->n; i++)
        if (batch->bodies[i].size > 0)
            put_raw(&w, (struct text_span){batch->bodies[i].data, batch->bodies[i].size});
    put_array_end(&w);
}

static bool says_anything(const struct batch_answer *batch) {
    for (int i = 0; i < batch->n; i++)
        if (batch->bodies[i].size > 0) return true;
    return false;
}

static enum answer_progress batch_poll(struct answer *base, struct buffer *out) {
    struct batch_answer *batch = (struct batch_answer *)base;
    while (batch->n_done < batch->n) {
        struct answer *part = batch->parts[batch->n_done];
        enum answer_progress progress = part->ops->poll(part, &batch->bodies[batch->n_done]);
        if (progress == ANSWER_WAITING) return ANSWER_WAITING;
        if (progress == ANSWER_COMPLETE) batch->n_done++;
    }
    if (says_anything(batch))
        write_list(batch, out);
    else
        base->http = 202;
    return ANSWER_COMPLETE;
}

static void batch_cancel(struct answer *base) {
    struct batch_answer *batch = (struct batch_answer *)base;
    for (int i = 0; i < batch->n; i++) batch->parts[i]->ops->cancel(batch->parts[i]);
}

static void batch_close(struct answer *base) {
    struct batch_answer *batch = (struct batch_answer *)base;
    for (int i = 0; i < batch->n; i++) {
        answer_close(batch->parts[i]);
        buffer_free(&batch->bodies[i]);
    }
    json_close(batch->json);
    free(batch->bodies);
    free(batch->parts);
    free(batch);
}

struct answer *mcp_batch_open(const struct mcp_request *request, struct json *json) {
    static const struct answer_ops ops = {batch_poll, batch_cancel, batch_close};
    size_t n = json_count(json);
    struct mcp_fault fault = {0};
    if (n == 0 || n > MCP_BATCH) {
        json_close(json);
        mcp_fault_set(&fault, MCP_NO_REQUEST, "a batch has 1 to %d messages, this one has %zu",
                      MCP_BATCH, n);
        return mcp_fault_answer(&fault, NULL);
    }
    struct batch_answer *batch = xcalloc(1, sizeof *batch);
    answer_init(&batch->base, &ops, JSON_TYPE);
    batch->json = json;
    batch->n = (int)n;
    batch->parts = xcalloc(n, sizeof(struct answer *));
    batch->bodies = xcalloc(n, sizeof *batch->bodies);
    for (size_t i = 0; i < n; i++) batch->parts[i] = mcp_take(request, json_item(json, i), NULL);
    return &batch->base;
}
