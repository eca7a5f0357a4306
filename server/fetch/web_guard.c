/* server/fetch/web_guard.c: see web_guard.h. */
#include "server/fetch/web_guard.h"

#if HAVE_CURL
#include <arpa/inet.h>
#include <sys/socket.h>

#include "config/web/curl.h"

static bool take_address(struct net_address *out, const struct curl_sockaddr *from) {
    char text[ADDRESS_TEXT_BYTES];
    const void *bytes =
        from->family == AF_INET
            ? (const void *)&((const struct sockaddr_in *)(const void *)&from->addr)->sin_addr
            : (const void *)&((const struct sockaddr_in6 *)(const void *)&from->addr)->sin6_addr;
    if (from->family != AF_INET && from->family != AF_INET6) return false;
    return inet_ntop(from->family, bytes, text, sizeof text) && address_parse(out, text);
}

/* The address is the one that the connection goes to. */
static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *to) {
    struct web_guard *guard = context;
    struct net_address address;
    bool allowed = purpose == CURLSOCKTYPE_IPCXN && take_address(&address, to) &&
                   host_rule_connects(guard->rule, &address);
    if (!allowed) {
        guard->kept_out = true;
        return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

void web_guard_set(void *handle, struct web_guard *guard) {
    CURL *h = handle;
    curl_confine(h);
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(h, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(h, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "retro-server/" RETRO_VERSION);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, guard);
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(h, CURLOPT_QUICK_EXIT,
                     1L); /* else whoever gives up a slow lookup of a name waits for its end */
#endif
}
#endif
