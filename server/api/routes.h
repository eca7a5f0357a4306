/* server/api/routes.h: the table of routes: by it requests find their handlers, and /openapi.json
 * tells clients of them.
 */
#pragma once

#include "server/api/api.h"

/* The clients that are answered: those that have a key, where keys are asked for; those that
 * server.operations lets; anybody; anybody, where server.page lets the page be shown. Routes of
 * the API refuse once the process is stopping, all others answer as long as it lives. */
enum route_access { ACCESS_API, ACCESS_OPERATIONS, ACCESS_PUBLIC, ACCESS_PAGE };

/* A path that ends in '/' stands for everything below it, but for "/" itself; "{id}" in it for
 * one segment. A route of GET
 * takes HEAD too, which is GET without the body, and HTTP leaves that out. */
struct route {
    const char *method, *path;
    route_handler *open;
    enum route_access access;
    const char *const
        *types;      /* of a body, NULL-terminated; NULL: any, as a body means nothing here */
    size_t max_body; /* bytes; 0: what server.max_body_bytes lets in */
    const struct json_table *body; /* what its body may hold; NULL: nothing is read */
    const struct json_table
        *query; /* what its query string may hold; NULL: anything, as it means nothing here */
    const char *answer_type; /* of a 200; NULL: JSON */
    const char *stream_type; /* of its events, where a request may ask for a stream; else NULL */
    const char *required; /* members that a JSON answer always has: "a b"; NULL: it is no object */
    bool lists;           /* a JSON answer is an array */
    bool checks_pages;    /* route_checks_pages */
    bool foreign; /* its answers are another protocol's: 202 too, and errors that have a message */
    bool accepts; /* 202 with a job, where the request asks for it */
    const char *summary;
};
extern const struct route api_routes[];
extern const int n_api_routes;

/* Of a path that no route has: what the API asks for. */
enum route_access route_access_of(const char *path);
bool route_matches(const struct route *route, const char *path);
/* Segment i of a path, from 0: "b" is 1 of "/a/b". False, with what fits in `out`, where it is
 * empty, longer than `size`, or not there. */
bool route_segment(const char *path, int i, char *out, size_t size);
/* Whether the path stands for everything below it. */
bool route_has_children(const struct route *route);
/* Whether pages of other origins are refused even where they have a key. */
bool route_checks_pages(const char *path);
/* Whether the server's options leave it in. */
bool route_is_served(const struct api *api, const struct route *route);
