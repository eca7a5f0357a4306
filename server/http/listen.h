/* server/http/listen.h: the address that clients reach, and the open files that connections are. */
#pragma once

#include "config/base/base.h"

/* Every connection is an open file: raises the limit of them for this process as far as needed, or
 * says that it may not. */
enum status http_reserve(int max_connections, struct error *e);
/* A socket bound to the address, which does not listen yet: a busy port fails here, and until
 * http_open clients are told at once that there is no server. Port 0: any free one. */
enum status http_bind(const char *host, int port, int *fd, struct error *e);
/* Where a socket listens, as the system has it: a service manager's may be anywhere. */
struct http_place {
    char text[160]; /* "127.0.0.1:8080", "[::1]:8080", "unix:/run/retro.sock" */
    int port;       /* 0: it has none */
    bool local;     /* only programs on this machine reach it */
};
enum status http_place_of(int fd, struct http_place *out, struct error *e);
/* Clients may connect from here on. */
enum status http_listen(int fd, struct error *e);
