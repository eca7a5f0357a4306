/* kernels/comm/comm_tcp.h: TCP connections between ranks that are processes: addresses, and whole
 * messages within a time limit. Sockets are non-blocking, closed on exec, and -1 where there is
 * none. Deadlines are times of time_now.
 */
#pragma once

#include "config/base/buffer.h"
#include "kernels/comm/comm_greeting.h"

/* Splits "host:port", "[2001:db8::1]:port" into a seat without a machine; STATUS_INVALID when it is
 * neither. */
enum status endpoint_parse(struct seat *seat, const char *text, struct error *e);

/* Listens at the seat's address, a name or a number, and only there; the address becomes the
 * number. */
enum status tcp_listen(int *listener, struct seat *seat, struct error *e);
enum status tcp_open(int *fd, const struct seat *to, double deadline, struct error *e);
/* A connection that has come; -1 when there is none. */
int tcp_accept(int listener);
/* The address of this side (own) or of the other. */
void tcp_address(int fd, bool own, char *text, size_t size);
/* True when both ends are on this machine whatever its networks: 127.0.0.0/8, ::1. */
bool tcp_is_local(int fd);
/* True when the other side has ended it. */
bool tcp_ended(int fd);
void tcp_close(int *fd);

/* All bytes, before the deadline; else false, also when the other side ends the connection. */
bool tcp_write(int fd, struct text_span bytes, double deadline);
/* One message (comm_greeting.h) of less than `most` bytes, and nothing behind it; text [most]. */
bool tcp_read(int fd, char *text, size_t most, double deadline);
/* True when fd is ready for `events` (of poll) before the deadline. */
bool tcp_wait(int fd, short events, double deadline);
