/* server/http/http.h: HTTP/1.1 on a socket: bytes become requests for api.c, its answers become bytes. */
#pragma once

#include "server/api/api.h"

struct http;

struct http_options {
    int socket; /* of http_bind; taken over, also on failure */
    int max_connections, max_body_bytes;
    int timeout;     /* seconds a connection may idle */
    struct api *api; /* borrowed */
};

/* Every connection is an open file: raises the limit of them for this process as far as needed, or says that it may
 * not. */
enum status http_reserve(int max_connections, struct error *e);
/* A socket bound to the address, which does not listen yet: a busy port fails here, and until http_open clients are
 * told at once that there is no server. Port 0: any free one. */
enum status http_bind(const char *host, int port, int *fd, struct error *e);
enum status http_open(struct http **out, const struct http_options *o, struct error *e);
int http_port(const struct http *h);
void http_quiesce(struct http *h); /* no new connections from here on; open ones go on */
int http_active(struct http *h);   /* requests that have begun and are not answered to the last byte */
/* Every answer must be complete or able to complete: engine and retrieval were stopped before. */
void http_close(struct http *h);
