/* server/access/address.c: addresses and networks. See address.h. */
#include "server/access/address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF}; /* of an IPv4 address */

static bool is_mapped(const struct net_address *address) {
    return memcmp(address->bytes, mapped, sizeof mapped) == 0;
}

bool address_parse(struct net_address *out, const char *text) {
    memcpy(out->bytes, mapped, sizeof mapped);
    return inet_pton(AF_INET, text, out->bytes + sizeof mapped) == 1 ||
           inet_pton(AF_INET6, text, out->bytes) == 1;
}

/* Digits of a prefix; -1: none. */
static int prefix_parse(const char *text, int most) {
    char *end;
    long n = strtol(text, &end, 10);
    return text[0] < '0' || text[0] > '9' || *end != '\0' || n > most ? -1 : (int)n;
}

static void clear_behind(struct net_address *address, int prefix) {
    for (int i = prefix; i < 128; i++) address->bytes[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
}

enum status network_parse(struct network *out, const char *text, struct error *e) {
    const char *slash = strchr(text, '/');
    size_t size = slash ? (size_t)(slash - text) : strlen(text);
    char address[ADDRESS_TEXT_BYTES] = "";
    if (size < sizeof address) memcpy(address, text, size);
    bool v4 = strchr(address, ':') == NULL, ok = address_parse(&out->address, address);
    int most = v4 ? 32 : 128, prefix = slash ? prefix_parse(slash + 1, most) : most;
    if (!ok || prefix < 0)
        return error_set(e, STATUS_INVALID,
                         "\"%.100s\" is no network: expected something like 10.0.0.0/8 or ::1",
                         text);
    out->prefix = prefix + (v4 ? 96 : 0);
    clear_behind(&out->address, out->prefix);
    return STATUS_OK;
}

bool network_has(const struct network *network, const struct net_address *address) {
    struct net_address first = *address;
    clear_behind(&first, network->prefix);
    return memcmp(first.bytes, network->address.bytes, sizeof first.bytes) == 0;
}

bool address_is_local(const struct net_address *address) {
    static const struct net_address six = {{[15] = 1}};
    return is_mapped(address) ? address->bytes[12] == 127
                              : memcmp(address->bytes, six.bytes, sizeof six.bytes) == 0;
}

/* Of all IPv4 addresses, and of the global ones of IPv6, 2000::/3. */
static const char *const special[] = {
    "0.0.0.0/8",      "10.0.0.0/8",        "100.64.0.0/10",   "127.0.0.0/8",     "169.254.0.0/16",
    "172.16.0.0/12",  "192.0.0.0/24",      "192.0.2.0/24",    "192.31.196.0/24", "192.52.193.0/24",
    "192.88.99.0/24", "192.168.0.0/16",    "192.175.48.0/24", "198.18.0.0/15",   "198.51.100.0/24",
    "203.0.113.0/24", "224.0.0.0/4",       "240.0.0.0/4",     "2001::/23",       "2001:db8::/32",
    "2002::/16",      "2620:4f:8000::/48", "3fff::/20",
};

static bool is_within(const char *network, const struct net_address *address) {
    struct network the_network;
    struct error e;
    CHECK(network_parse(&the_network, network, &e) == STATUS_OK);
    return network_has(&the_network, address);
}

bool address_is_public(const struct net_address *address) {
    struct net_address translated;
    if (is_within("64:ff9b::/96", address)) { /* an IPv4 address behind a translator, RFC 6052 */
        memcpy(translated.bytes, mapped, sizeof mapped);
        memcpy(translated.bytes + sizeof mapped, address->bytes + sizeof mapped, 4);
        address = &translated;
    }
    if (!is_mapped(address) && !is_within("2000::/3", address)) return false;
    for (size_t i = 0; i < ARRAY_COUNT(special); i++)
        if (is_within(special[i], address)) return false;
    return true;
}

uint64_t address_client(const struct net_address *address) {
    uint64_t number = 0;
    if (is_mapped(address))
        memcpy(&number, address->bytes + 12, 4);
    else
        memcpy(&number, address->bytes, sizeof number);
    return number;
}

void address_print(const struct net_address *address, char text[ADDRESS_TEXT_BYTES]) {
    bool v4 = is_mapped(address);
    CHECK(inet_ntop(v4 ? AF_INET : AF_INET6, address->bytes + (v4 ? 12 : 0), text,
                    ADDRESS_TEXT_BYTES) != NULL);
}
