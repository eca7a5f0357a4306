/* server/service.h: the protocol of a service manager such as systemd: sockets that it opened, and
 * what it is told. Without one none of this does anything. */
#pragma once

#include "config/base/base.h"

/* The socket that the manager listens on for us (LISTEN_PID, LISTEN_FDS): it stays open when this
 * process ends, so that clients find its successor there. *fd is -1 when there is none. */
enum status service_socket(int *fd, struct error *e);
/* "READY=1", "STOPPING=1" (NOTIFY_SOCKET). */
void service_tell(const char *state);
