/* server/access/pages.c: see pages.h. */
#include "server/access/pages.h"

#include <string.h>
#include <strings.h>

#include "config/base/buffer.h"

/* "Name", "name:80", "[::1]:80" to the host and its port, 0: it has none. False: it is too long, or
 * no such thing. */
static bool authority_split(const char *text, char host[256], int *port) {
    const char *close = strchr(text, ']'), *colon = strchr(close ? close : text, ':');
    size_t size = colon ? (size_t)(colon - text) : strlen(text);
    *port = 0;
    if (size == 0 || size >= 256) return false;
    for (const char *at = colon ? colon + 1 : ""; *at; at++) {
        if (*at < '0' || *at > '9' || *port > 65535) return false;
        *port = *port * 10 + (*at - '0');
    }
    if (text[size - 1] == '.') size--; /* the root of names, which changes nothing */
    memcpy(host, text, size);
    host[size] = '\0';
    return size > 0;
}

/* RFC 6761, 6.3: these lead nowhere else. */
static bool is_loopback_name(const char *host) {
    static const char name[] = "localhost";
    size_t size = strlen(host), tail = sizeof name - 1;
    if (size < tail || strcasecmp(host + size - tail, name) != 0) return false;
    return size == tail || host[size - tail - 1] == '.';
}

/* An address is what it is: only names can be pointed elsewhere. */
static bool is_address(const char *host) {
    struct net_address address;
    char text[ADDRESS_TEXT_BYTES] = "";
    size_t size = strlen(host);
    if (host[0] != '[') return address_parse(&address, host);
    if (size < 3 || host[size - 1] != ']' || size - 2 >= sizeof text) return false;
    memcpy(text, host + 1, size - 2);
    return address_parse(&address, text);
}

bool page_host_is_known(const struct page_head *head, const struct host_rules *hosts) {
    char host[256];
    int port;
    if (head->host == NULL) return true;
    if (!authority_split(head->host, host, &port)) return false;
    if (is_loopback_name(host) || is_address(host)) return true;
    return host_rules_find(hosts, host, port, true) != NULL;
}

/* The page's own server, by whichever scheme: a proxy in front may speak TLS. */
static bool is_own(const struct page_head *head) {
    const char *behind = strstr(head->origin, "://");
    return behind && head->host && strcasecmp(behind + 3, head->host) == 0;
}

static bool is_among(const char *origin, const char *const *origins, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(origins[i], "*") == 0 || (origin && strcasecmp(origins[i], origin) == 0))
            return true;
    return false;
}

static bool is_link(const struct page_head *head, bool reads) {
    return reads && head->fetch_mode && strcmp(head->fetch_mode, "navigate") == 0 &&
           head->fetch_dest && strcmp(head->fetch_dest, "document") == 0;
}

bool page_origin_is_known(const struct page_head *head, const char *const *origins, int n,
                          bool reads) {
    if (is_among(head->origin, origins, n)) return true;
    if (head->origin) return is_own(head);
    bool foreign = head->fetch_site && (strcmp(head->fetch_site, "cross-site") == 0 ||
                                        strcmp(head->fetch_site, "same-site") == 0);
    return !foreign || is_link(head, reads);
}
