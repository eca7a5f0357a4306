/* server/api/documents/search.c: /v1/retrieval/search: one query, answered by the retrieval thread.
 * A picture is read by the picture thread before. */
#include <stdlib.h>

#include "server/api/api.h"
#include "server/api/core/shared_answer.h"
#include "server/api/documents/search.h"
#include "server/api/text/neighbor_json.h"
#include "server/api/text/retrieval_ask.h"

struct search_answer {
    struct shared_answer base; /* first; `reading` is the picture, until it is sought by */
    struct search_request request;
    struct retriever_query query;
    const struct served_model *model;
    struct embedder_picture picture;
    struct filter *filter; /* of the server, of the client and of the request */
    struct principal who;  /* held */
    int n_embedded;        /* tokens of the query and of what was reranked */
    struct hits hits;
    struct lookup lookup;
    struct search_writer writer;
};

static void search_free(struct shared_answer *base) {
    struct search_answer *answer = (struct search_answer *)base;
    if (answer->writer.free) answer->writer.free(answer->writer.context);
    if (base->done && answer->lookup.status == STATUS_OK) hits_free(&answer->hits);
    snapshot_release(answer->lookup.snapshot);
    free(answer->picture.pixels);
    filter_release(answer->filter);
    principal_release(&answer->who);
    search_request_free(&answer->request);
    free(answer);
}

static void search_done(struct lookup *lookup) {
    struct search_answer *answer = lookup->context;
    principal_charge(&answer->who, answer->n_embedded, 0);
    shared_answer_finish(&answer->base);
}

static void write_results(const struct search_answer *answer, struct json_writer *w) {
    const struct filter *viewer = principal_filter(&answer->who);
    put_object(w);
    put_key_string(w, "object", "list");
    put_key_array(w, "data");
    for (int i = 0; i < answer->hits.n; i++) {
        put_object(w);
        neighbor_write(w, &answer->hits.list[i], viewer);
        if (answer->request.boxes) hit_put_boxes(w, &answer->hits.list[i]);
        if (answer->request.explain) hit_put_worth(w, &answer->hits.list[i]);
        /* A chunk's number counts those of other documents. */
        if (viewer == NULL) put_key_int(w, "chunk", answer->hits.list[i].chunk);
        put_object_end(w);
    }
    put_array_end(w);
    put_object_end(w);
}

static void write_answer(struct search_answer *answer, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    if (answer->writer.write)
        answer->writer.write(answer->writer.context, &w, &answer->hits,
                             principal_filter(&answer->who));
    else
        write_results(answer, &w);
}

static bool ask_retrieval(struct search_answer *answer, struct failure *failure) {
    struct error e;
    shared_answer_begin(&answer->base);
    if (retrieval_thread_ask(answer->model->retrieval, &answer->lookup, &e) == STATUS_OK)
        return true;
    shared_answer_release(&answer->base);
    return failure_from_error(failure, &e);
}

static bool seek_picture(struct search_answer *answer, struct failure *failure) {
    struct picture_job *job = answer->base.reading;
    if (job->error.status) return failure_from_error(failure, &job->error);
    answer->picture = job->files[0].pixels;
    answer->query.picture = &answer->picture;
    job->files[0].pixels = (struct embedder_picture){0};
    shared_answer_read(&answer->base, NULL);
    return ask_retrieval(answer, failure);
}

static enum answer_progress search_poll(struct answer *answer, struct buffer *out) {
    struct search_answer *search_answer = (struct search_answer *)answer;
    struct failure failure;
    if (search_answer->base.reading && picture_job_is_over(search_answer->base.reading) &&
        !seek_picture(search_answer, &failure)) {
        failure_answer(&failure, answer, out);
        return ANSWER_COMPLETE;
    }
    if (!shared_answer_is_done(&search_answer->base)) return ANSWER_WAITING;
    if (search_answer->lookup.status == STATUS_OK) {
        write_answer(search_answer, out);
        return ANSWER_COMPLETE;
    }
    failure_from_error(&failure, &search_answer->lookup.error);
    failure_answer(&failure, answer, out);
    return ANSWER_COMPLETE;
}

static bool parse_search(struct search_request *request, const struct served_model *model,
                         const struct api_request *api_request, struct failure *failure) {
    return api_request->size > 0
               ? search_request_parse(request, api_request->body, api_request->size, &model->limits,
                                      failure)
               : search_request_parse_query(request, api_request->arguments,
                                            api_request->n_arguments, &model->limits, failure);
}

static struct filter *join_filters(const struct served_model *model, const struct principal *who,
                                   const struct search_request *request) {
    struct filter *outer = filter_join(model->filter, principal_filter(who));
    struct filter *all = filter_join(outer, request->filter);
    filter_release(outer);
    return all;
}

/* Takes the request. */
static struct search_answer *make_search(const struct served_model *model,
                                         const struct search_request *request,
                                         const struct principal *who, struct waker waker) {
    static const struct answer_ops ops = {search_poll, shared_answer_cancel, shared_answer_close};
    struct retrieval_choice choice = retrieval_choice_merge(&model->choice, &request->choice);
    bool by_picture = request->by_picture;
    int usual = retrieval_attends(choice.mode) ? model->usual_neighbors : model->usual_passages;
    struct search_answer *answer = xcalloc(1, sizeof *answer);
    shared_answer_init(&answer->base, &ops, waker, search_free);
    answer->model = model;
    answer->request = *request;
    answer->filter = join_filters(model, who, request);
    answer->who = principal_hold(*who);
    answer->query = (struct retriever_query){
        .filter = answer->filter,
        .n_embedded = &answer->n_embedded,
        .choice = by_picture ? (struct retriever_choice){0}
                             : retrieval_choice_ranking(&choice, model->rerank_candidates),
        .text = {request->query, request->query_size},
        .k = choice.k ? choice.k : usual,
        .min_similarity = (float)choice.min_similarity};
    answer->query.choice.operators = request->operators;
    answer->lookup = (struct lookup){.queries = &answer->query,
                                     .hits = &answer->hits,
                                     .n = 1,
                                     .cancelled = &answer->base.cancelled,
                                     .done = search_done,
                                     .context = answer};
    return answer;
}

/* The picture of the request is on its way to the retrieval thread. */
static bool read_picture(struct search_answer *answer, const struct principal *who,
                         struct failure *failure) {
    struct picture_reader reader = {.embedder = answer->model->seer};
    struct search_request *request = &answer->request;
    struct error e;
    struct picture_job *job = picture_job_open(&reader, 1, *who, answer->base.waker);
    job->files[0].bytes = (struct buffer){
        .data = request->query, .size = request->query_size, .capacity = request->query_size + 1};
    request->query = NULL;
    answer->query.text = (struct text_span){0};
    shared_answer_read(&answer->base, job);
    if (picture_thread_ask(answer->model->picture_thread, job, &e) == STATUS_OK) return true;
    failure_from_error(failure, &e);
    failure->retry_after = 1;
    return false;
}

struct answer *search_ask(const struct search_asker *asker, struct search_request *request,
                          struct failure *failure) {
    if (!request->by_picture &&
        !retrieval_check_reranker(asker->model, &request->choice, "rerank", failure)) {
        search_request_free(request);
        if (asker->writer.free) asker->writer.free(asker->writer.context);
        return NULL;
    }
    struct search_answer *answer = make_search(asker->model, request, asker->who, asker->waker);
    answer->writer = asker->writer;
    if (request->by_picture ? read_picture(answer, asker->who, failure)
                            : ask_retrieval(answer, failure))
        return &answer->base.base;
    answer_close(&answer->base.base);
    return NULL;
}

const struct served_model *search_model(const struct api *api, struct failure *failure) {
    const struct served_model *model = api_model(api, NULL, failure);
    if (model->retrieval) return model;
    failure_set(failure, 400, "no_collection", NULL,
                "this server has no collection to search (option retrieval.collection)");
    return NULL;
}

/* Takes the request, which was parsed when `ok`. */
static struct answer *send_search(const struct search_asker *asker, struct search_request *request,
                                  bool ok, struct failure *failure) {
    if (ok) return search_ask(asker, request, failure);
    search_request_free(request);
    return NULL;
}

struct answer *search_open(struct api *api, const struct api_request *api_request,
                           struct waker waker, struct failure *failure) {
    const struct served_model *model = search_model(api, failure);
    struct search_request request;
    if (model == NULL) return NULL;
    bool ok = parse_search(&request, model, api_request, failure);
    struct search_asker asker = {model, &api_request->principal, waker, {NULL, NULL, NULL}};
    return send_search(&asker, &request, ok, failure);
}

struct answer *search_picture_open(struct api *api, const struct api_request *api_request,
                                   struct waker waker, struct failure *failure) {
    const struct served_model *model = search_model(api, failure);
    struct search_request request;
    if (model == NULL) return NULL;
    bool ok = search_request_parse_picture(&request, api_request->body, api_request->size,
                                           &model->limits, failure);
    struct search_asker asker = {model, &api_request->principal, waker, {NULL, NULL, NULL}};
    return send_search(&asker, &request, ok, failure);
}
