/* server/api/documents/search.c: /v1/retrieval/search: one query, answered by the retrieval thread. A picture is read
 * by the picture thread before. */
#include <stdlib.h>

#include "server/api/api.h"
#include "server/api/core/shared_answer.h"
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
};

static void search_free(struct shared_answer *base) {
    struct search_answer *s = (struct search_answer *)base;
    if (base->done && s->lookup.status == STATUS_OK) hits_free(&s->hits);
    snapshot_release(s->lookup.snapshot);
    free(s->picture.pixels);
    filter_release(s->filter);
    principal_release(&s->who);
    search_request_free(&s->request);
    free(s);
}

static void search_done(struct lookup *l) {
    struct search_answer *s = l->context;
    principal_charge(&s->who, s->n_embedded, 0);
    shared_answer_finish(&s->base);
}

static void write_results(const struct search_answer *s, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (int i = 0; i < s->hits.n; i++) {
        put_object(&w);
        neighbor_write(&w, &s->hits.list[i], principal_filter(&s->who));
        /* A chunk's number counts those of other documents. */
        if (principal_filter(&s->who) == NULL) put_key_int(&w, "chunk", s->hits.list[i].chunk);
        put_object_end(&w);
    }
    put_array_end(&w);
    put_object_end(&w);
}

static bool ask_retrieval(struct search_answer *s, struct failure *f) {
    struct error e;
    shared_answer_begin(&s->base);
    if (retrieval_thread_ask(s->model->retrieval, &s->lookup, &e) == STATUS_OK) return true;
    shared_answer_release(&s->base);
    return failure_from_error(f, &e);
}

static bool seek_picture(struct search_answer *s, struct failure *f) {
    struct picture_job *job = s->base.reading;
    if (job->error.status) return failure_from_error(f, &job->error);
    s->picture = job->files[0].pixels;
    s->query.picture = &s->picture;
    job->files[0].pixels = (struct embedder_picture){0};
    shared_answer_read(&s->base, NULL);
    return ask_retrieval(s, f);
}

static enum answer_progress search_poll(struct answer *a, struct buffer *out) {
    struct search_answer *s = (struct search_answer *)a;
    struct failure f;
    if (s->base.reading && picture_job_is_over(s->base.reading) && !seek_picture(s, &f)) {
        failure_answer(&f, a, out);
        return ANSWER_COMPLETE;
    }
    if (!shared_answer_is_done(&s->base)) return ANSWER_WAITING;
    if (s->lookup.status == STATUS_OK) {
        write_results(s, out);
        return ANSWER_COMPLETE;
    }
    failure_from_error(&f, &s->lookup.error);
    failure_answer(&f, a, out);
    return ANSWER_COMPLETE;
}

static bool parse_search(struct search_request *request, const struct served_model *model, const struct api_request *r,
                         struct failure *f) {
    bool ok = r->size > 0 ? search_request_parse(request, r->body, r->size, &model->limits, f)
                          : search_request_parse_query(request, r->arguments, r->n_arguments, &model->limits, f);
    return ok && retrieval_check_reranker(model, &request->choice, "rerank", f);
}

static struct filter *join_filters(const struct served_model *model, const struct principal *who,
                                   const struct search_request *request) {
    struct filter *outer = filter_join(model->filter, principal_filter(who));
    struct filter *all = filter_join(outer, request->filter);
    filter_release(outer);
    return all;
}

/* Takes the request. */
static struct search_answer *make_search(const struct served_model *model, const struct search_request *request,
                                         const struct principal *who, struct waker waker) {
    static const struct answer_ops ops = {search_poll, shared_answer_cancel, shared_answer_close};
    struct retrieval_choice choice = retrieval_choice_merge(&model->choice, &request->choice);
    bool by_picture = request->by_picture;
    int usual = retrieval_attends(choice.mode) ? model->usual_neighbors : model->usual_passages;
    struct search_answer *s = xcalloc(1, sizeof *s);
    shared_answer_init(&s->base, &ops, waker, search_free);
    s->model = model;
    s->request = *request;
    s->filter = join_filters(model, who, request);
    s->who = principal_hold(*who);
    s->query =
        (struct retriever_query){.filter = s->filter,
                                 .n_embedded = &s->n_embedded,
                                 .choice = by_picture ? (struct retriever_choice){0}
                                                      : retrieval_choice_ranking(&choice, model->rerank_candidates),
                                 .text = {request->query, request->query_size},
                                 .k = choice.k ? choice.k : usual,
                                 .min_similarity = (float)choice.min_similarity};
    s->lookup = (struct lookup){.queries = &s->query,
                                .hits = &s->hits,
                                .n = 1,
                                .cancelled = &s->base.cancelled,
                                .done = search_done,
                                .context = s};
    return s;
}

/* The picture of the request is on its way to the retrieval thread. */
static bool read_picture(struct search_answer *s, const struct principal *who, struct failure *f) {
    struct picture_reader reader = {.embedder = s->model->seer};
    struct search_request *r = &s->request;
    struct error e;
    struct picture_job *job = picture_job_open(&reader, 1, *who, s->base.waker);
    job->files[0].bytes = (struct buffer){.data = r->query, .size = r->query_size, .capacity = r->query_size + 1};
    r->query = NULL;
    s->query.text = (struct text_span){0};
    shared_answer_read(&s->base, job);
    if (picture_thread_ask(s->model->picture_thread, job, &e) == STATUS_OK) return true;
    failure_from_error(f, &e);
    f->retry_after = 1;
    return false;
}

/* Takes the request, which was parsed when `ok`. */
static struct answer *send_search(const struct served_model *model, struct search_request *request, bool ok,
                                  const struct principal *who, struct waker waker, struct failure *f) {
    if (!ok) {
        search_request_free(request);
        return NULL;
    }
    struct search_answer *s = make_search(model, request, who, waker);
    if (request->by_picture ? read_picture(s, who, f) : ask_retrieval(s, f)) return &s->base.base;
    answer_close(&s->base.base);
    return NULL;
}

static const struct served_model *model_with_collection(const struct api *a, struct failure *f) {
    const struct served_model *model = api_model(a, NULL, f);
    if (model->retrieval) return model;
    failure_set(f, 400, "no_collection", NULL, "this server has no collection to search (option retrieval.collection)");
    return NULL;
}

struct answer *search_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    const struct served_model *model = model_with_collection(a, f);
    struct search_request request;
    if (model == NULL) return NULL;
    bool ok = parse_search(&request, model, r, f);
    return send_search(model, &request, ok, &r->principal, waker, f);
}

struct answer *search_picture_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    const struct served_model *model = model_with_collection(a, f);
    struct search_request request;
    if (model == NULL) return NULL;
    bool ok = search_request_parse_picture(&request, r->body, r->size, &model->limits, f);
    return send_search(model, &request, ok, &r->principal, waker, f);
}
