/* server/http/listen.c: the address, and the open files that connections are. See listen.h. */
#include "server/http/listen.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/connection.h"

enum {
    PROGRAM_FILES = 88, /* threads, ranks, and what starting reads */
    OTHER_FILES = PROGRAM_FILES + CONNECTION_RESERVE + CONNECTION_LINGERING
};

static enum status bind_to(const struct addrinfo *a, int *out, struct error *e) {
    int one = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, a->ai_addr, a->ai_addrlen) == 0) {
        *out = fd;
        return STATUS_OK;
    }
    enum status status = error_errno(e, "listen");
    if (fd >= 0) close(fd);
    return status;
}

/* At the limit the library asks for the next connection again and again, as fast as it can. */
enum status http_reserve(int max_connections, struct error *e) {
    struct rlimit limit;
    rlim_t need = (rlim_t)max_connections + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return error_errno(e, "limit of open files");
    if (limit.rlim_cur >= need) return STATUS_OK;
    if (limit.rlim_max < need)
        return error_set(e, STATUS_INVALID,
                         "server.max_connections %d needs %llu open files, this process may have %llu: lower it or "
                         "raise the limit (ulimit -n, LimitNOFILE)",
                         max_connections, (unsigned long long)need, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = need;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? STATUS_OK : error_errno(e, "limit of open files");
}

enum status http_bind(const char *host, int port, int *fd, struct error *e) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    char text[8];
    snprintf(text, sizeof text, "%d", port);
    int failed = getaddrinfo(host, text, &hints, &found);
    if (failed) return error_set(e, STATUS_INVALID, "server.host %s: %s", host, gai_strerror(failed));
    enum status status = bind_to(found, fd, e);
    freeaddrinfo(found);
    return status ? error_prefix(e, "server.host %s, server.port %d", host, port) : STATUS_OK;
}

/* Two programs may have bound one address as long as neither listens; then the second learns it here. */
enum status http_listen(int fd, int *port, struct error *e) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char text[8] = "0";
    if (getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
        getnameinfo((struct sockaddr *)&address, size, NULL, 0, text, sizeof text, NI_NUMERICSERV) == 0)
        *port = atoi(text);
    return listen(fd, SOMAXCONN) == 0 ? STATUS_OK : error_errno(e, "server.port %d: listen", *port);
}
