/* server/fetch/web_guard.h: what every connection to a server that somebody named keeps to: http
 * and https alone, no proxies, no redirections that are followed unseen, and an address that is
 * looked at as the connection is made. */
#pragma once

#include "server/access/hosts.h"

struct web_guard {
    const struct host_rule *rule; /* borrowed: says which addresses may be connected to */
    bool kept_out;                /* an address was none of those */
};

/* Holds a handle of libcurl's (a CURL *) to the rules; the guard lives as long as the transfer. */
void web_guard_set(void *handle, struct web_guard *guard);
