/* server/access/address.h: addresses of clients, and lists of networks. */
#pragma once

#include "config/base/base.h"

/* IPv6; an IPv4 address is one of ::ffff:0:0/96. */
struct net_address {
    uint8_t bytes[16];
};

struct network {
    struct net_address address; /* bits beyond the prefix are zero */
    int prefix;                 /* bits of 128 */
};

/* "10.0.0.0/8", "::1", "192.168.1.7": without a prefix one address. */
enum status network_parse(struct network *out, const char *text, struct error *e);
bool network_has(const struct network *network, const struct net_address *address);

bool address_parse(struct net_address *out, const char *text);
/* 127.0.0.0/8 and ::1. */
bool address_is_local(const struct net_address *address);
/* Whether it may be anybody's on the Internet: no private, local, shared, reserved, documentation
 * or multicast address, and no IPv6 address that stands for such an IPv4 address (RFC 6890 and the
 * IANA registries of special purposes). */
bool address_is_public(const struct net_address *address);
/* The same number, the same client. The first half of an IPv6 address counts: the rest is the
 * client's to choose. */
uint64_t address_client(const struct net_address *address);
/* "10.0.0.1", "2001:db8::1" */
enum { ADDRESS_TEXT_BYTES = 48 };
void address_print(const struct net_address *address, char text[ADDRESS_TEXT_BYTES]);
