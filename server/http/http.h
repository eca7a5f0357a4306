/* server/http/http.h: HTTP/1.1 on a socket: bytes become requests for api.c, its answers become
 * bytes. */
#pragma once

#include "server/api/api.h"
#include "server/http/connection.h"

struct http;
struct tls;

struct http_options {
    int socket;  /* of http_bind, or one that listens already; taken over, also on failure */
    bool shared; /* other processes listen on it too */
    struct connection_limits connections;
    int max_body_bytes;
    int request_threads, max_requests; /* that read requests; and that wait for them */
    struct api *api;                   /* borrowed */
    struct tls *tls;                   /* borrowed; NULL: plain HTTP */
};

enum status http_open(struct http **out, const struct http_options *options, struct error *e);
void http_quiesce(struct http *http);    /* no new connections from here on; open ones go on */
int http_connections(struct http *http); /* that are open */
int http_active(
    struct http *http); /* requests that have begun and are not answered to the last byte */
/* Every answer must be complete or able to complete: engine and retrieval were stopped before. */
void http_close(struct http *http);
