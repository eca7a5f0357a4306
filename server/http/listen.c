/* server/http/listen.c: the address, and the open files that connections are. See listen.h. */
#include "server/http/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/access/address.h"
#include "server/http/connection.h"

enum {
    PROGRAM_FILES = 88, /* threads, ranks, and what starting reads */
    OTHER_FILES = PROGRAM_FILES + CONNECTION_RESERVE + CONNECTION_LINGERING
};

static enum status bind_to(const struct addrinfo *addrinfo, int *out, struct error *e) {
    int one = 1,
        fd = socket(addrinfo->ai_family, addrinfo->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                    addrinfo->ai_protocol);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, addrinfo->ai_addr, addrinfo->ai_addrlen) == 0) {
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
                         "server.max_connections %d needs %llu open files, this process may have "
                         "%llu: lower it or "
                         "raise the limit (ulimit -n, LimitNOFILE)",
                         max_connections, (unsigned long long)need,
                         (unsigned long long)limit.rlim_max);
    limit.rlim_cur = need;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? STATUS_OK
                                                 : error_errno(e, "limit of open files");
}

enum status http_bind(const char *host, int port, int *fd, struct error *e) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    char text[8];
    snprintf(text, sizeof text, "%d", port);
    int failed = getaddrinfo(host, text, &hints, &found);
    if (failed)
        return error_set(e, STATUS_INVALID, "server.host %s: %s", host, gai_strerror(failed));
    enum status status = bind_to(found, fd, e);
    freeaddrinfo(found);
    return status ? error_prefix(e, "server.host %s, server.port %d", host, port) : STATUS_OK;
}

/* The name of a socket in the file system; "unix:@..." is one of Linux' own, "unix:" has none. */
static void place_unix(struct http_place *out, const struct sockaddr_un *at, socklen_t size) {
    size_t n = size > offsetof(struct sockaddr_un, sun_path)
                   ? size - offsetof(struct sockaddr_un, sun_path)
                   : 0;
    bool abstract = n > 0 && at->sun_path[0] == '\0';
    out->local = true;
    snprintf(out->text, sizeof out->text, "unix:%s%.*s", abstract ? "@" : "", (int)(n - abstract),
             n > 0 ? at->sun_path + abstract : "");
}

static void place_internet(struct http_place *out, const struct sockaddr_storage *at) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)at;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)at;
    struct net_address address = {{[10] = 0xFF, [11] = 0xFF}};
    char text[ADDRESS_TEXT_BYTES];
    if (at->ss_family == AF_INET)
        memcpy(address.bytes + 12, &four->sin_addr, sizeof four->sin_addr);
    else
        memcpy(address.bytes, &six->sin6_addr, sizeof address.bytes);
    address_print(&address, text);
    out->port = ntohs(at->ss_family == AF_INET ? four->sin_port : six->sin6_port);
    out->local = address_is_local(&address);
    bool framed = strchr(text, ':') != NULL;
    snprintf(out->text, sizeof out->text, "%s%s%s:%d", framed ? "[" : "", text, framed ? "]" : "",
             out->port);
}

enum status http_place_of(int fd, struct http_place *out, struct error *e) {
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;
    *out = (struct http_place){0};
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return error_errno(e, "the socket that listens");
    if (at.ss_family == AF_UNIX)
        place_unix(out, (const struct sockaddr_un *)&at, size);
    else if (at.ss_family == AF_INET || at.ss_family == AF_INET6)
        place_internet(out, &at);
    else
        return error_set(e, STATUS_UNSUPPORTED,
                         "the socket that listens is none of the Internet, nor a local one");
    return STATUS_OK;
}

/* Two programs may have bound one address as long as neither listens; then the second learns it
 * here. */
enum status http_listen(int fd, struct error *e) {
    struct http_place place;
    if (http_place_of(fd, &place, e)) return e->status;
    return listen(fd, SOMAXCONN) == 0 ? STATUS_OK : error_errno(e, "%s: listen", place.text);
}
