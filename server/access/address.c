/* server/access/address.c: addresses and networks. See address.h. */
#include "server/access/address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF}; /* of an IPv4 address */

static bool is_mapped(const struct net_address *a) { return memcmp(a->bytes, mapped, sizeof mapped) == 0; }

bool address_parse(struct net_address *out, const char *text) {
    memcpy(out->bytes, mapped, sizeof mapped);
    return inet_pton(AF_INET, text, out->bytes + sizeof mapped) == 1 || inet_pton(AF_INET6, text, out->bytes) == 1;
}

/* Digits of a prefix; -1: none. */
static int prefix_parse(const char *text, int most) {
    char *end;
    long n = strtol(text, &end, 10);
    return text[0] < '0' || text[0] > '9' || *end != '\0' || n > most ? -1 : (int)n;
}

static void clear_behind(struct net_address *a, int prefix) {
    for (int i = prefix; i < 128; i++) a->bytes[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
}

enum status network_parse(struct network *out, const char *text, struct error *e) {
    const char *slash = strchr(text, '/');
    size_t size = slash ? (size_t)(slash - text) : strlen(text);
    char address[ADDRESS_TEXT_BYTES] = "";
    if (size < sizeof address) memcpy(address, text, size);
    bool v4 = strchr(address, ':') == NULL, ok = address_parse(&out->address, address);
    int most = v4 ? 32 : 128, prefix = slash ? prefix_parse(slash + 1, most) : most;
    if (!ok || prefix < 0)
        return error_set(e, STATUS_INVALID, "\"%.100s\" is no network: expected something like 10.0.0.0/8 or ::1",
                         text);
    out->prefix = prefix + (v4 ? 96 : 0);
    clear_behind(&out->address, out->prefix);
    return STATUS_OK;
}

bool network_has(const struct network *n, const struct net_address *a) {
    struct net_address first = *a;
    clear_behind(&first, n->prefix);
    return memcmp(first.bytes, n->address.bytes, sizeof first.bytes) == 0;
}

bool address_is_local(const struct net_address *a) {
    static const struct net_address six = {{[15] = 1}};
    return is_mapped(a) ? a->bytes[12] == 127 : memcmp(a->bytes, six.bytes, sizeof six.bytes) == 0;
}

uint64_t address_client(const struct net_address *a) {
    uint64_t number = 0;
    if (is_mapped(a))
        memcpy(&number, a->bytes + 12, 4);
    else
        memcpy(&number, a->bytes, sizeof number);
    return number;
}

void address_print(const struct net_address *a, char text[ADDRESS_TEXT_BYTES]) {
    bool v4 = is_mapped(a);
    CHECK(inet_ntop(v4 ? AF_INET : AF_INET6, a->bytes + (v4 ? 12 : 0), text, ADDRESS_TEXT_BYTES) != NULL);
}
