/* server/api/operations/metrics_server.h: the part of /metrics that is about the process and its
 * clients, not about models. */
#pragma once

#include "server/api/api.h"

/* "# HELP" and "# TYPE" of one metric. */
void metrics_print_head(struct buffer *out, const char *name, const char *type, const char *help);
/* The figures of a process that Prometheus' own client libraries tell, under the names that they
 * have there. */
void metrics_print_process(const struct api *api, struct buffer *out);
/* The requests of each key; nothing where there are no keys. */
void metrics_print_keys(const struct api *api, struct buffer *out);
