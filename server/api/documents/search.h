/* server/api/documents/search.h: a search of the collection, for all doors that have one. */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/api.h"

/* Writes what was found as one value, for clients of the filter `viewer` (NULL: none). It is called
 * while the answer is polled, at most once. */
struct search_writer {
    void (*write)(void *context, struct json_writer *w, const struct hits *hits,
                  const struct filter *viewer);
    void *context;
    void (*free)(void *context); /* NULL: it is borrowed */
};

/* Without writer.write the answer is the API's own list. */
struct search_asker {
    const struct served_model *model; /* with a collection: search_model */
    const struct principal *who;
    struct waker waker;
    struct search_writer writer;
};

/* The model whose collection is searched; NULL with *failure set: there is none. */
const struct served_model *search_model(const struct api *api, struct failure *failure);
/* Takes the request. NULL with *failure set where the search cannot begin. */
struct answer *search_ask(const struct search_asker *asker, struct search_request *request,
                          struct failure *failure);
