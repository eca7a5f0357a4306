/* server/api/operations/metrics_server.h: the part of /metrics that is about the process and its clients, not about
 * models. */
#pragma once

#include "server/api/api.h"

/* "# HELP" and "# TYPE" of one metric. */
void metrics_print_head(struct buffer *out, const char *name, const char *type, const char *help);
/* What Prometheus' own client libraries tell of a process, under the names that they have there. */
void metrics_print_process(const struct api *a, struct buffer *out);
/* What each key has asked for; nothing where there are no keys. */
void metrics_print_keys(const struct api *a, struct buffer *out);
