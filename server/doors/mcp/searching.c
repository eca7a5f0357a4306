/* server/doors/mcp/searching.c: the tool search, over the search of the API. */
#include "server/doors/mcp/searching.h"

#include <string.h>

#include "retrieval/filter/scope.h"
#include "server/api/text/neighbor_json.h"
#include "server/doors/mcp/tools.h"
#include "server/doors/mcp/words.h"

void mcp_put_links(struct json_writer *w, const char *address, const char *id, uint64_t start,
                   uint64_t end) {
    struct buffer uri = {0}, url = {0};
    if (start == 0 && end == 0)
        mcp_uri_print(id, &uri);
    else
        mcp_uri_print_bytes(id, start, end, &uri);
    if (address) {
        buffer_printf(&url, "%s/v1/documents/", address);
        mcp_segment_print(id, &url);
    }
    put_key_string(w, "url", address ? url.data : uri.data);
    put_key_string(w, "uri", uri.data);
    buffer_free(&uri);
    buffer_free(&url);
}

/* A title that is never empty. */
static void put_title(struct json_writer *w, const struct hit *hit) {
    const char *title = hit->title[0] ? hit->title : hit->path;
    put_key(w, "title");
    neighbor_write_shown(w, (struct text_span){title, strlen(title)});
}

static void write_result(struct json_writer *w, const struct mcp_call *call, const struct hit *hit,
                         const struct filter *viewer) {
    const char *id = scope_show(viewer, hit->document);
    put_object(w);
    put_key_string(w, "id", id);
    put_key_string(w, "path", hit->path);
    put_title(w, hit);
    mcp_put_links(w, call->address, id, hit->start, hit->end);
    put_key_int(w, "start", (int64_t)hit->start);
    put_key_int(w, "end", (int64_t)hit->end);
    neighbor_write_marks(w, hit);
    put_key_float(w, "similarity", hit->similarity);
    if (hit->relevance >= 0) put_key_float(w, "relevance", hit->relevance);
    hit_put_lists(w, hit);
    put_key_string_n(w, "text", hit->text.text, hit->text.size);
    put_object_end(w);
}

static void write_results(void *context, struct json_writer *w, const struct hits *hits,
                          const struct filter *viewer) {
    put_object(w);
    put_key_array(w, "results");
    for (int i = 0; i < hits->n; i++) write_result(w, context, &hits->list[i], viewer);
    put_array_end(w);
    put_object_end(w);
}

struct answer *mcp_search(struct mcp_call *call, struct search_request *request,
                          struct search_writer writer, struct failure *failure) {
    const struct served_model *model = search_model(call->api, failure);
    struct search_asker asker = {model, &call->who, call->waker, writer};
    if (model) return search_ask(&asker, request, failure);
    search_request_free(request);
    return NULL;
}

struct answer *mcp_tool_search(struct mcp_call *call, const struct json *arguments,
                               struct failure *failure) {
    const struct served_model *model = search_model(call->api, failure);
    struct search_request request;
    if (model == NULL) return NULL;
    if (search_request_read(&request, arguments, &model->limits, failure))
        return mcp_search(call, &request, (struct search_writer){write_results, call, NULL},
                          failure);
    search_request_free(&request);
    return NULL;
}
