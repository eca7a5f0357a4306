/* server/service.c: see service.h. The protocols are those of sd_listen_fds(3) and sd_notify(3). */
#include "server/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3 };

/* A number in the environment, 0: none. */
static long environment_number(const char *name) {
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

enum status service_socket(int *fd, struct error *e) {
    int listens = 0;
    socklen_t size = sizeof listens;
    *fd = -1;
    if (environment_number("LISTEN_PID") != (long)getpid()) return STATUS_OK;
    long n = environment_number("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    if (n <= 0) return STATUS_OK;
    if (n != 1)
        return error_set(e, STATUS_INVALID,
                         "the service manager hands over %ld sockets, expected one", n);
    if (getsockopt(FIRST_FD, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0)
        return error_errno(e, "the socket of the service manager");
    if (!listens)
        return error_set(
            e, STATUS_INVALID,
            "the socket of the service manager does not listen (ListenStream=, Accept=no)");
    if (fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC) != 0 || fcntl(FIRST_FD, F_SETFL, O_NONBLOCK) != 0)
        return error_errno(e, "the socket of the service manager");
    *fd = FIRST_FD;
    return STATUS_OK;
}

void service_tell(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = path ? strlen(path) : 0;
    if (size == 0 || size >= sizeof address.sun_path) return;
    memcpy(address.sun_path, path, size);
    if (path[0] == '@') address.sun_path[0] = '\0'; /* an abstract name */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    if (fd < 0) return;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address, length) <
        0)
        log_warn("the service manager cannot be told %s: %s", state, strerror(errno));
    close(fd);
}
