/* config/base/log.h: the log of a service. base.h has the calls that write a line.
 *
 * A program writes its lines to stderr as they come, and waits for whoever reads them. A service
 * must not wait: between log_queue_open and log_queue_close lines go into a bounded queue, and a
 * thread writes them. Lines that do not fit are dropped and counted; the next line that fits comes
 * behind one that tells the count. */
#pragma once

#include "config/base/base.h"

enum log_format {
    LOG_FORMAT_TEXT, /* time level message */
    LOG_FORMAT_JSON  /* {"time":"...","level":"info","message":"..."} */
};
/* Before threads that log. */
void log_set_format(enum log_format format);
enum log_format log_format(void);
/* In LOG_FORMAT_JSON: a line with members of its own in the message's place, as JSON without the
 * braces. */
void log_members(enum log_level level, const char *members, size_t size);

/* Lines that were dropped so far. */
long log_dropped(void);

/* Starts the thread. Call it once, before threads that log. */
enum status log_queue_open(struct error *e);
/* Writes what is queued, for at most `seconds`: nobody may be reading. Lines that come later are
 * lost when the time ran out, else written as they come. Does nothing without log_queue_open. */
void log_queue_close(double seconds);
