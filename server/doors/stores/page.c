/* server/doors/stores/page.c: pages of lists that are in the order of time. */
#include <string.h>

#include "server/doors/stores/stores_private.h"

bool page_read(struct stores_query *out, const struct json_table *table, struct api *api,
               const struct api_request *request, struct failure *failure) {
    struct json *asked = NULL;
    bool ok = arguments_load(&asked, table, request->arguments, request->n_arguments, failure) &&
              fields_parse(table, out, asked, &api->largest, failure);
    json_close(asked);
    return ok;
}

static int place_of(const char *const *ids, int n, const char *id) {
    int i = 0;
    while (i < n && strcmp(ids[i], id) != 0) i++;
    return i < n ? i : -1;
}

static bool find_cursor(int *place, const char *const *ids, int n, const char *id,
                        const char *field, struct failure *failure) {
    *place = place_of(ids, n, id);
    return *place >= 0 || failure_set(failure, 400, "invalid_value", field,
                                      "%s: %.80s is none of the list", field, id);
}

bool page_cut(struct page_slice *out, const char *const *ids, int n,
              const struct stores_query *query, struct failure *failure) {
    int from = -1, end = n, limit = (int)query->limit;
    if (query->after && !find_cursor(&from, ids, n, query->after, "after", failure)) return false;
    if (query->before && !find_cursor(&end, ids, n, query->before, "before", failure)) return false;
    from = min_int(from + 1, end);
    *out = (struct page_slice){from, end, end - from > limit};
    if (query->before && query->after == NULL)
        out->from = max_int(from, end - limit);
    else
        out->end = min_int(end, from + limit);
    return true;
}

void put_page_end(struct json_writer *w, const char *first, const char *last, bool more) {
    put_array_end(w);
    put_key_string(w, "first_id", first);
    put_key_string(w, "last_id", last);
    put_key_bool(w, "has_more", more);
    put_object_end(w);
}
