/* retrieval/milvus/client/address.c: see address.h. */
#include "retrieval/milvus/client/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char plain[] = "milvus://", encrypted[] = "milvuss://";
static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
static const char host_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:[]%";
enum { DEFAULT_PORT = 19530, LONGEST_HOST = 255 };

static bool begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool milvus_address_is(const char *text) { return begins(text, plain) || begins(text, encrypted); }

static bool is_collection(const char *name) {
    size_t size = strlen(name);
    if (size < 1 || size > 255 || strchr(letters, name[0]) == NULL) return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == size;
}

/* The colon in front of the port; NULL: there is none. An IPv6 address stands in brackets. */
static const char *find_port(const char *host, size_t size) {
    const char *colon = memrchr(host, ':', size), *bracket = memrchr(host, ']', size);
    return colon && (bracket == NULL || colon > bracket) ? colon : NULL;
}

/* host[:port] */
static bool is_host(const char *host, size_t size, bool *has_port) {
    const char *colon = find_port(host, size);
    size_t n = colon ? (size_t)(colon - host) : size, digits = size - n - (colon ? 1 : 0);
    *has_port = colon != NULL;
    if (n < 1 || n > LONGEST_HOST || strspn(host, host_letters) < size) return false;
    if (host[0] != '[' && memchr(host, ':', n)) return false;
    if (!colon) return true;
    if (digits < 1 || digits > 5 || strspn(colon + 1, "0123456789") < digits) return false;
    int port = atoi(colon + 1);
    return port >= 1 && port <= 65535;
}

enum status milvus_address_parse(struct milvus_address *out, const char *text, struct error *e) {
    bool is_tls = begins(text, encrypted), has_port;
    const char *host = text + strlen(is_tls ? encrypted : plain), *slash = strchr(host, '/');
    if (!milvus_address_is(text))
        return error_set(e, STATUS_INVALID,
                         "%.200s is not the address of a collection in Milvus: milvus://HOST/NAME",
                         text);
    size_t size = slash ? (size_t)(slash - host) : strlen(host);
    if (memchr(host, '@', strlen(host)))
        return error_set(
            e, STATUS_INVALID,
            "the address of a collection holds no user and password: put \"user:password\" into "
            "RETRO_MILVUS_TOKEN or into the file retrieval.milvus_token_file");
    if (slash == NULL || !is_collection(slash + 1))
        return error_set(
            e, STATUS_INVALID,
            "%.200s: behind the host comes /NAME, of letters, digits and _, and no digit first",
            text);
    if (!is_host(host, size, &has_port))
        return error_set(e, STATUS_INVALID, "%.200s: expected HOST or HOST:PORT behind the //",
                         text);
    int n = snprintf(out->server, sizeof out->server, "%s%.*s", is_tls ? "https://" : "http://",
                     (int)size, host);
    if (!has_port) snprintf(out->server + n, sizeof out->server - (size_t)n, ":%d", DEFAULT_PORT);
    snprintf(out->collection, sizeof out->collection, "%s", slash + 1);
    return STATUS_OK;
}
