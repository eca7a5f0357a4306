/* server/access/pages.h: requests that web pages make of a server that asks for no keys.
 *
 * A browser sends what any page tells it to, also to servers on its own machine, where a page of
 * the Internet has no business. It says which page asks (Fetch Metadata, RFC 6454), and which name
 * it called the server by. A page whose name was pointed at this machine meanwhile (DNS rebinding)
 * counts as the server's own, and is known by that name. Programs that are no browsers say nothing
 * of the kind. */
#pragma once

#include "server/access/hosts.h"

/* Headers; NULL: none. */
struct page_head {
    const char *host, *origin;
    const char *fetch_site, *fetch_mode, *fetch_dest; /* Sec-Fetch-Site and so on */
};

/* Whether Host is an address, a loopback name, or one of the hosts; a request that has no Host
 * comes from no page. */
bool page_host_is_known(const struct page_head *head, const struct host_rules *hosts);
/* Whether the page is the server's own, of an origin [n], of which "*" means any, or none at all;
 * or a person follows a link to the server, whose answer the page does not see. `reads`: the method
 * changes nothing. */
bool page_origin_is_known(const struct page_head *head, const char *const *origins, int n,
                          bool reads);
