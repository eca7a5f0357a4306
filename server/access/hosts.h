/* server/access/hosts.h: the hosts that the server may fetch from, as option server.image_urls
 * lists them. */
#pragma once

#include "server/access/address.h"

/* "example.org" is that host, "*.example.org" every host below it, "192.0.2.7" and "[2001:db8::7]"
 * an address; each at the usual port of http or https, or at the one behind ":". A name may lead to
 * public addresses only. An address that is listed may be any: who lists a private one means it. */
struct host_rule {
    char name[256]; /* in lower case; of an address "" */
    bool below;     /* hosts below the name, not it itself */
    bool literal;
    struct net_address address; /* of a literal */
    int port;                   /* 0: the usual one */
};

struct host_rules {
    struct host_rule *rules; /* [n] owned */
    int n;
};

enum status host_rule_parse(struct host_rule *out, const char *text, struct error *e);
/* Of all texts [n]. */
enum status host_rules_open(struct host_rules *out, char *const *texts, size_t n, struct error *e);
void host_rules_free(struct host_rules *rules);

/* The rule that allows a URL's host, as the URL has it, at this port; `usual`: it is the scheme's.
 * NULL: none does. */
const struct host_rule *host_rules_find(const struct host_rules *rules, const char *host, int port,
                                        bool usual);
/* Whether a connection may go to this address for a host that the rule allows. */
bool host_rule_connects(const struct host_rule *rule, const struct net_address *address);
