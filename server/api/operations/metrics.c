/* server/api/operations/metrics.c: GET /metrics: counters, gauges and histograms as Prometheus
 * reads them (text format 0.0.4). Names are vLLM's where it has one, with a prefix of our own and
 * without colons, which belong to recording rules. */
#include <stdio.h>
#include <stdlib.h>

#include "retrieval/store/embed_progress.h"
#include "server/api/api.h"
#include "server/api/core/traffic.h"
#include "server/api/operations/metrics_server.h"
#include "server/host/prompt/conversations.h"
#include "server/tools/tools.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* All that the scrape shows of one model, read once. */
struct model_metrics {
    char labels[160]; /* model_name="m" */
    struct engine_counts counts;
    struct engine_metrics engine;
    struct retrieval_metrics retrieval;
    bool retrieves;
    int64_t kept_bytes;
    struct conversation_counts conversations;
};

/* A label's value: backslashes, quotes and line ends escaped. */
static void print_label(const char *value, char *to, size_t size) {
    struct buffer text = {0};
    buffer_append_string(&text, "model_name=\"");
    for (const char *at = value; *at; at++) {
        if (*at == '\\' || *at == '"') buffer_append(&text, "\\", 1);
        buffer_append(&text, *at == '\n' ? " " : at, 1);
        if (text.size > size - 4) break;
    }
    buffer_append_string(&text, "\"");
    snprintf(to, size, "%s", text.data);
    buffer_free(&text);
}

static void read_model(const struct served_model *model, struct model_metrics *metrics) {
    *metrics = (struct model_metrics){.counts = engine_counts(model->engine),
                                      .retrieves = model->retrieval != NULL};
    print_label(model->id, metrics->labels, sizeof metrics->labels);
    engine_metrics_read(model->engine, &metrics->engine);
    metrics->kept_bytes =
        (int64_t)metrics->engine.blocks.kept * (int64_t)metrics->engine.blocks.bytes;
    metrics->conversations = conversations_count(model->conversations);
    if (metrics->retrieves) retrieval_thread_metrics(model->retrieval, &metrics->retrieval);
}

/* One number of each model. `offset` is of an int or int64_t in model_metrics. */
struct metric_row {
    const char *name, *type, *help;
    size_t offset;
    bool wide;
};
#define AT(member) offsetof(struct model_metrics, member)
static const struct metric_row numbers[] = {
    {"retro_num_requests_running", "gauge", "Prompts that are written.", AT(counts.running), false},
    {"retro_num_requests_waiting", "gauge", "Prompts that wait for a sequence.", AT(counts.waiting),
     false},
    {"retro_num_requests_parked", "gauge", "Of those running, prompts that wait for neighbours.",
     AT(counts.parked), false},
    {"retro_kv_blocks_used", "gauge", "Blocks of keys and values in use.", AT(engine.blocks.used),
     false},
    {"retro_kv_blocks", "gauge", "Blocks of keys and values that running prompts may use.",
     AT(engine.blocks.all), false},
    {"retro_prefix_cache_blocks", "gauge", "Blocks of keys and values kept for later prompts.",
     AT(engine.blocks.kept), false},
    {"retro_prefix_cache_blocks_max", "gauge", "Blocks that may be kept.",
     AT(engine.blocks.kept_most), false},
    {"retro_prefix_cache_bytes", "gauge", "Bytes of the kept blocks, on this rank.", AT(kept_bytes),
     true},
    {"retro_prefix_cache_evictions_total", "counter",
     "Kept blocks that were given up for newer ones.", AT(engine.blocks.evicted), true},
    {"retro_prefix_cache_queries_total", "counter",
     "Prompt tokens that were looked for in kept blocks.", AT(engine.prefix_queries), true},
    {"retro_prefix_cache_hits_total", "counter",
     "Prompt tokens that were found there and not computed.", AT(engine.prefix_hits), true},
    {"retro_chunks_encoded_total", "counter", "Chunks whose neighbours the encoder has read.",
     AT(engine.chunks.encoded), true},
    {"retro_chunks_found_total", "counter",
     "Chunks that read what was encoded for an earlier prompt instead.", AT(engine.chunks.found),
     true},
    {"retro_chunks_kept", "gauge", "Chunks whose encoded neighbours are kept for later prompts.",
     AT(engine.chunks.kept), false},
    {"retro_cache_folder_hits_total", "counter",
     "Of these, prompt tokens whose rows were read from files.", AT(engine.file_hits), true},
    {"retro_cache_folder_blocks", "gauge", "Blocks in files of server.cache_folder.",
     AT(engine.files.blocks), true},
    {"retro_cache_folder_bytes", "gauge", "Bytes of these files.", AT(engine.files.bytes), true},
    {"retro_cache_folder_written_total", "counter", "Blocks that were written to files.",
     AT(engine.files.written), true},
    {"retro_cache_folder_dropped_total", "counter",
     "Blocks that were not written, because too many waited or the disk refused.",
     AT(engine.files.dropped), true},
    {"retro_cache_folder_evictions_total", "counter", "Files that were removed for newer ones.",
     AT(engine.files.evicted), true},
    {"retro_cache_folder_forgotten_total", "counter",
     "Files that were removed because a document that they read was deleted or changed.",
     AT(engine.files.forgotten), true},
    {"retro_cache_folder_failures_total", "counter",
     "Files that were damaged when they were to be read.", AT(engine.files.failed), true},
    {"retro_conversation_turns", "gauge", "Turns of conversations whose passages are known.",
     AT(conversations.turns), true},
    {"retro_conversation_bytes", "gauge", "Bytes of what is known of them.",
     AT(conversations.bytes), true},
    {"retro_conversation_evictions_total", "counter", "Turns that were forgotten for newer ones.",
     AT(conversations.evicted), true},
    {"retro_conversation_passages_kept_total", "counter",
     "Passages of earlier turns in prompts, where they had stood.", AT(engine.passages_kept), true},
    {"retro_conversation_passages_again_total", "counter",
     "Passages that were found again and named by their numbers.", AT(engine.passages_again), true},
    {"retro_conversation_passages_gone_total", "counter",
     "Passages of earlier turns that were not shown: their documents had changed, had gone, or "
     "were not for the request.",
     AT(engine.passages_gone), true},
    {"retro_questions_rewritten_total", "counter",
     "Questions of chats that the model has rewritten for the search.", AT(conversations.rewritten),
     true},
    {"retro_questions_not_rewritten_total", "counter",
     "Questions that it was to rewrite and has not, which is told in their answers.",
     AT(conversations.unrewritten), true},
    {"retro_lookups_ahead_total", "counter",
     "Lookups of neighbours of chunks that were not complete yet.", AT(engine.lookups_ahead), true},
    {"retro_lookups_ahead_used_total", "counter",
     "Of these, lookups whose chunk became what was foretold.", AT(engine.lookups_used), true},
    {"retro_expert_read_bytes_total", "counter",
     "Bytes of experts that were read from disk, of a packed model that memory does not hold.",
     AT(engine.fetched_bytes), true},
    {"retro_expert_mapped_bytes", "gauge",
     "Bytes of experts of a packed model that memory does not hold; 0 where it holds all.",
     AT(engine.mapped_expert_bytes), true},
    {"retro_expert_held_bytes", "gauge", "Of these, bytes that memory had room for at the start.",
     AT(engine.held_expert_bytes), true},
    {"retro_engine_steps_total", "counter", "Batch steps of the model.", AT(counts.steps), true},
    {"retro_prompt_tokens_total", "counter", "Prompt tokens that were computed.",
     AT(counts.prompt_tokens), true},
    {"retro_generation_tokens_total", "counter", "Tokens that were written.",
     AT(counts.generated_tokens), true},
};

struct histogram_row {
    const char *name, *help;
    size_t offset; /* of a histogram in model_metrics */
};
static const struct histogram_row histograms[] = {
    {"retro_time_to_first_token_seconds", "From a prompt's arrival to its first token.",
     AT(engine.first_token)},
    {"retro_time_per_output_token_seconds", "From each token of an answer to the next.",
     AT(engine.per_token)},
    {"retro_e2e_request_latency_seconds", "From a prompt's arrival to its end.",
     AT(engine.request)},
    {"retro_request_queue_time_seconds", "From a prompt's arrival to its sequence.",
     AT(engine.queue)},
};
static const struct histogram_row phases[] = {
    {"queue", NULL, AT(retrieval.queue)},
    {"embed", NULL, AT(retrieval.embed)},
    {"search", NULL, AT(retrieval.search)},
};
#undef AT

static const void *member_of(const struct model_metrics *metrics, size_t offset) {
    return (const char *)metrics + offset;
}

static void print_numbers(const struct model_metrics *all, int n, struct buffer *out) {
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        const struct metric_row *row = &numbers[i];
        metrics_print_head(out, row->name, row->type, row->help);
        for (int j = 0; j < n; j++) {
            const void *at = member_of(&all[j], row->offset);
            int64_t value = row->wide ? *(const int64_t *)at : *(const int *)at;
            buffer_printf(out, "%s{%s} %lld\n", row->name, all[j].labels, (long long)value);
        }
    }
    metrics_print_head(out, "retro_kv_cache_usage_perc", "gauge",
                       "Share of the blocks of keys and values in use, 1 is all.");
    for (int j = 0; j < n; j++)
        buffer_printf(out, "retro_kv_cache_usage_perc{%s} %.6g\n", all[j].labels,
                      (double)all[j].engine.blocks.used / max_int(1, all[j].engine.blocks.all));
}

static void print_finished(const struct model_metrics *all, int n, struct buffer *out) {
    static const char *const reasons[FINISH_KINDS] = {
        [FINISH_STOP] = "stop", [FINISH_LENGTH] = "length", [FINISH_ERROR] = "abort"};
    metrics_print_head(out, "retro_request_success_total", "counter",
                       "Prompts that are over, by how they ended.");
    for (int j = 0; j < n; j++)
        for (int how = FINISH_STOP; how < FINISH_KINDS; how++)
            buffer_printf(out, "retro_request_success_total{%s,finished_reason=\"%s\"} %lld\n",
                          all[j].labels, reasons[how], (long long)all[j].engine.finished[how]);
}

static void print_draft_counts(const struct model_metrics *all, int n, const char *name,
                               size_t offset, struct buffer *out) {
    static const char *const sources[DRAFT_KINDS] = {[DRAFT_PROMPT] = "prompt",
                                                     [DRAFT_ANSWER] = "answer",
                                                     [DRAFT_NEIGHBORS] = "neighbors",
                                                     [DRAFT_PREDICTED] = "prediction"};
    for (int j = 0; j < n; j++) {
        const char *at = (const char *)&all[j].engine.drafts + offset;
        for (int kind = 0; kind < DRAFT_KINDS; kind++)
            buffer_printf(out, "%s{%s,source=\"%s\"} %lld\n", name, all[j].labels, sources[kind],
                          (long long)((const int64_t *)(const void *)at)[kind]);
    }
}

static void print_drafts(const struct model_metrics *all, int n, struct buffer *out) {
    static const char drafted[] = "retro_drafted_tokens_total",
                      accepted[] = "retro_accepted_drafted_tokens_total";
    metrics_print_head(out, drafted, "counter",
                       "Tokens that were guessed ahead and computed, by the text they stand in.");
    print_draft_counts(all, n, drafted, offsetof(struct draft_counts, drafted), out);
    metrics_print_head(out, accepted, "counter", "Of these, tokens that the answer then had.");
    print_draft_counts(all, n, accepted, offsetof(struct draft_counts, accepted), out);
}

static void print_embed_chunks(const struct model_metrics *all, const struct embed_progress *found,
                               int n, bool done, struct buffer *out) {
    const char *name = done ? "retro_embed_chunks_done" : "retro_embed_chunks";
    metrics_print_head(out, name, "gauge",
                       done ? "Chunks with vectors of the embedder that the collection turns to."
                            : "Chunks that are to have such.");
    for (int j = 0; j < n; j++)
        if (found[j].all >= 0)
            buffer_printf(out, "%s{%s} %lld\n", name, all[j].labels,
                          (long long)(done ? found[j].done : found[j].all));
}

/* Both numbers of a collection are of one moment. */
static void print_embed(const struct api *api, const struct model_metrics *all,
                        struct buffer *out) {
    struct embed_progress *found = xcalloc((size_t)api->n_models + 1, sizeof *found);
    for (int j = 0; j < api->n_models; j++) {
        const char *collection = api->models[j].collection_name;
        if (collection == NULL || !embed_progress_read(collection, &found[j])) found[j].all = -1;
    }
    print_embed_chunks(all, found, api->n_models, true, out);
    print_embed_chunks(all, found, api->n_models, false, out);
    free(found);
}

static void print_histograms(const struct model_metrics *all, int n, struct buffer *out) {
    for (size_t i = 0; i < ARRAY_COUNT(histograms); i++) {
        const struct histogram_row *row = &histograms[i];
        metrics_print_head(out, row->name, "histogram", row->help);
        for (int j = 0; j < n; j++)
            histogram_print(member_of(&all[j], row->offset), row->name, all[j].labels, out);
    }
    metrics_print_head(
        out, "retro_retrieval_seconds", "histogram",
        "Of lookups in the queue, and of batches of them in the embedder and in the index.");
    for (int j = 0; j < n; j++) {
        for (size_t i = 0; i < ARRAY_COUNT(phases) && all[j].retrieves; i++) {
            char labels[200];
            snprintf(labels, sizeof labels, "%s,phase=\"%s\"", all[j].labels, phases[i].name);
            histogram_print(member_of(&all[j], phases[i].offset), "retro_retrieval_seconds", labels,
                            out);
        }
    }
}

struct answer *metrics_open(struct api *api, const struct api_request *request, struct waker waker,
                            struct failure *failure) {
    struct model_metrics *all = xcalloc((size_t)api->n_models, sizeof *all);
    struct buffer body = {0};
    (void)request, (void)waker, (void)failure;
    for (int i = 0; i < api->n_models; i++) read_model(&api->models[i], &all[i]);
    metrics_print_head(&body, "retro_build_info", "gauge", "The program, always 1.");
    buffer_printf(&body, "retro_build_info{version=\"%s\"} 1\n", RETRO_VERSION);
    print_numbers(all, api->n_models, &body);
    print_finished(all, api->n_models, &body);
    print_drafts(all, api->n_models, &body);
    print_embed(api, all, &body);
    print_histograms(all, api->n_models, &body);
    traffic_print(api->traffic, &body);
    tools_print_counts(api->tools, &body);
    metrics_print_keys(api, &body);
    metrics_print_process(api, &body);
    free(all);
    return answer_text(200, METRICS_TYPE, &body);
}
