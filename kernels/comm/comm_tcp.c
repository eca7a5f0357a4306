/* kernels/comm/comm_tcp.c: see comm_tcp.h. */
#include "kernels/comm/comm_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The system's own time limits stay as long as they are: the ranks' watch is earlier, and leaves
 * out the time in which this process was stopped. */
static int tcp_set_up(int fd) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

enum status endpoint_parse(struct seat *seat, const char *text, struct error *e) {
    *seat = (struct seat){0};
    int end = 0;
    bool ok =
        sscanf(text, "[%63[0-9a-fA-F:.%%a-z]]:%5[0-9]%n", seat->address, seat->port, &end) == 2 ||
        sscanf(text, "%63[a-zA-Z0-9._-]:%5[0-9]%n", seat->address, seat->port, &end) == 2;
    int port = ok ? atoi(seat->port) : 0;
    if (ok && text[end] == '\0' && port >= 1 && port <= 65535 - COMM_MAX_RANKS) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "parallel.rendezvous is \"%.100s\"; expected host:port, an address of rank "
                     "0's machine and a port "
                     "of 1 .. %d",
                     text, 65535 - COMM_MAX_RANKS);
}

static struct addrinfo *seat_find(const struct seat *seat, struct error *e) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int code = getaddrinfo(seat->address, seat->port, &hints, &found);
    if (code == 0) return found;
    error_set(e, STATUS_INVALID, "%s: %s", seat->address, gai_strerror(code));
    return NULL;
}

static void address_print(const struct sockaddr *sockaddr, socklen_t size, char *text,
                          size_t most) {
    if (getnameinfo(sockaddr, size, text, (socklen_t)most, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(text, most, "?");
}

enum status tcp_listen(int *listener, struct seat *seat, struct error *e) {
    int yes = 1;
    struct addrinfo *addrinfo = seat_find(seat, e);
    if (addrinfo == NULL) return e->status;
    int fd = socket(addrinfo->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    bool ok = fd >= 0 && bind(fd, addrinfo->ai_addr, addrinfo->ai_addrlen) == 0 &&
              listen(fd, COMM_MAX_RANKS) == 0;
    if (ok)
        address_print(addrinfo->ai_addr, addrinfo->ai_addrlen, seat->address, sizeof seat->address);
    else
        error_errno(e, "cannot listen for other ranks at %s port %s", seat->address, seat->port);
    freeaddrinfo(addrinfo);
    if (!ok) tcp_close(&fd);
    *listener = fd;
    return ok ? STATUS_OK : e->status;
}

bool tcp_wait(int fd, short events, double deadline) {
    struct pollfd polled = {.fd = fd, .events = events};
    for (;;) {
        double left = deadline - time_now();
        int ready = poll(&polled, 1, left > 0 ? (int)(1e3 * left) + 1 : 0);
        if (ready != 0 && !(ready < 0 && errno == EINTR)) return ready > 0;
        if (left <= 0) return false;
    }
}

enum status tcp_open(int *fd, const struct seat *to, double deadline, struct error *e) {
    int failed = ETIMEDOUT;
    socklen_t size = sizeof failed;
    struct addrinfo *addrinfo = seat_find(to, e);
    *fd = -1;
    if (addrinfo == NULL) return e->status;
    int new = socket(addrinfo->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (new < 0 ||
        (connect(new, addrinfo->ai_addr, addrinfo->ai_addrlen) != 0 && errno != EINPROGRESS))
        failed = errno;
    else if (tcp_wait(new, POLLOUT, deadline))
        getsockopt(new, SOL_SOCKET, SO_ERROR, &failed, &size);
    freeaddrinfo(addrinfo);
    if (failed == 0) {
        *fd = tcp_set_up(new);
        return STATUS_OK;
    }
    tcp_close(&new);
    return error_set(e, STATUS_IO, "%s", strerror(failed));
}

int tcp_accept(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return fd < 0 ? -1 : tcp_set_up(fd);
}

void tcp_address(int fd, bool own, char *text, size_t size) {
    struct sockaddr_storage storage = {0};
    socklen_t bytes = sizeof storage;
    int failed = own ? getsockname(fd, (struct sockaddr *)&storage, &bytes)
                     : getpeername(fd, (struct sockaddr *)&storage, &bytes);
    if (failed)
        snprintf(text, size, "?");
    else
        address_print((struct sockaddr *)&storage, bytes, text, size);
}

bool tcp_is_local(int fd) {
    struct sockaddr_storage storage = {0};
    socklen_t bytes = sizeof storage;
    if (getsockname(fd, (struct sockaddr *)&storage, &bytes) != 0) return false;
    if (storage.ss_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)&storage;
        return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    const struct sockaddr_in6 *six = (const void *)&storage;
    return storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

bool tcp_ended(int fd) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void tcp_close(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

bool tcp_write(int fd, struct text_span bytes, double deadline) {
    while (bytes.size > 0) {
        ssize_t n =
            tcp_wait(fd, POLLOUT, deadline) ? send(fd, bytes.text, bytes.size, MSG_NOSIGNAL) : -1;
        if (n <= 0) return false;
        bytes.text += n;
        bytes.size -= (size_t)n;
    }
    return true;
}

/* Byte by byte, because the bytes behind a message are another's to read. */
bool tcp_read(int fd, char *text, size_t most, double deadline) {
    size_t size = 0;
    while (size + 1 < most) {
        ssize_t n = tcp_wait(fd, POLLIN, deadline) ? recv(fd, text + size, 1, 0) : -1;
        if (n <= 0 || text[size] == '\0') return false;
        size++;
        text[size] = '\0';
        if (size >= 2 && memcmp(text + size - 2, "\n\n", 2) == 0) return true;
    }
    return false;
}
