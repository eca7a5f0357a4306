/* server/access/hosts.c: see hosts.h. */
#include "server/access/hosts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Parsing. */

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Labels of letters, digits, "-" and "_" with dots between them. */
static bool is_host_name(const char *text) {
    bool within = false;
    for (const char *at = text; *at; at++) {
        if (*at == '.' ? !within : !is_name_byte(*at)) return false;
        within = *at != '.';
    }
    return within;
}

/* The digits of a port; -1: none. */
static int port_parse(const char *text) {
    int port = 0;
    for (const char *at = text; *at; at++) {
        if (*at < '0' || *at > '9' || port > 65535) return -1;
        port = port * 10 + (*at - '0');
    }
    return port >= 1 && port <= 65535 ? port : -1;
}

/* Where ":PORT" begins; NULL: nowhere. An IPv6 address without brackets has colons of its own. */
static const char *find_port(const char *text) {
    const char *first = strchr(text, ':'), *last = strrchr(text, ':');
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        return close && close[1] == ':' ? close + 1 : NULL;
    }
    return first == last ? last : NULL;
}

/* A host that is an address, in brackets or without them. */
static bool literal_parse(struct net_address *out, const char *host) {
    char text[ADDRESS_TEXT_BYTES];
    size_t n = strlen(host);
    bool framed = n > 2 && host[0] == '[' && host[n - 1] == ']';
    if (framed) {
        host++;
        n -= 2;
    }
    if (n >= sizeof text) return false;
    memcpy(text, host, n);
    text[n] = '\0';
    return address_parse(out, text) && (!framed || strchr(text, ':') != NULL);
}

static void lower_copy(char *to, const char *from) {
    for (; *from; from++, to++)
        *to = *from >= 'A' && *from <= 'Z' ? (char)(*from - 'A' + 'a') : *from;
    *to = '\0';
}

enum status host_rule_parse(struct host_rule *out, const char *text, struct error *e) {
    const char *port = find_port(text);
    size_t n = port ? (size_t)(port - text) : strlen(text);
    char host[sizeof out->name] = "";
    *out = (struct host_rule){.port = port ? port_parse(port + 1) : 0};
    if (n < sizeof host) memcpy(host, text, n);
    out->literal = literal_parse(&out->address, host);
    out->below = strncmp(host, "*.", 2) == 0;
    const char *name = out->below ? host + 2 : host;
    bool named = is_host_name(name) && (!out->below || strchr(name, '.') != NULL);
    if (out->port < 0 || (!out->literal && !named))
        return error_set(e, STATUS_INVALID,
                         "\"%.100s\" is no host: expected something like example.org, "
                         "*.example.org, 192.0.2.7 or "
                         "[2001:db8::7], with a port behind \":\" or without",
                         text);
    if (!out->literal) lower_copy(out->name, name);
    return STATUS_OK;
}

enum status host_rules_open(struct host_rules *out, char *const *texts, size_t n, struct error *e) {
    *out = (struct host_rules){.rules = xcalloc(n + 1, sizeof *out->rules)};
    for (size_t i = 0; i < n; i++) {
        if (host_rule_parse(&out->rules[i], texts[i], e)) {
            host_rules_free(out);
            return e->status;
        }
        out->n++;
    }
    return STATUS_OK;
}

void host_rules_free(struct host_rules *rules) {
    free(rules->rules);
    *rules = (struct host_rules){0};
}

/* Matching. */

static bool has_name(const struct host_rule *rule, const char *host) {
    size_t n = strlen(host), tail = strlen(rule->name);
    if (!rule->below) return strcasecmp(host, rule->name) == 0;
    return n > tail + 1 && host[n - tail - 1] == '.' &&
           strcasecmp(host + n - tail, rule->name) == 0;
}

static bool same_address(const struct net_address *left, const struct net_address *right) {
    return memcmp(left->bytes, right->bytes, sizeof left->bytes) == 0;
}

const struct host_rule *host_rules_find(const struct host_rules *rules, const char *host, int port,
                                        bool usual) {
    struct net_address address;
    bool literal = literal_parse(&address, host);
    for (int i = 0; i < rules->n; i++) {
        const struct host_rule *rule = &rules->rules[i];
        bool same_port = rule->port ? rule->port == port : usual;
        bool same_host = literal ? rule->literal && same_address(&rule->address, &address)
                                 : !rule->literal && has_name(rule, host);
        if (same_port && same_host) return rule;
    }
    return NULL;
}

bool host_rule_connects(const struct host_rule *rule, const struct net_address *address) {
    return rule->literal ? same_address(&rule->address, address) : address_is_public(address);
}
