/* server/api/core/traffic.h: how often each path was asked for, and how it was answered: counters
 * of /metrics. */
#pragma once

#include "config/base/buffer.h"

struct traffic;

struct traffic *traffic_open(void);
void traffic_close(struct traffic *traffic);
/* Any thread. `path` is constant and one of few. */
void traffic_note(struct traffic *traffic, const char *path, int status, double seconds);
/* Any thread: parts of a request that a door passed over. Both names are constant strings of few.
 */
void traffic_note_passed(struct traffic *traffic, const char *door, const char *what, int n);
/* Any thread: a request of MCP. All three are constant strings of few; tool: "" where none is
 * called. */
void traffic_note_mcp(struct traffic *traffic, const char *method, const char *tool,
                      const char *outcome);
/* As Prometheus reads it. */
void traffic_print(struct traffic *traffic, struct buffer *out);
