/* server/api/admit.c: who is let in: by address, by key, and within the key's limits. */
#include <string.h>
#include <strings.h>

#include "server/api/routes.h"

static bool address_is_allowed(const struct api *a, const struct net_address *address) {
    for (int i = 0; i < a->n_networks; i++)
        if (network_has(&a->networks[i], address)) return true;
    return a->n_networks == 0;
}

/* "Bearer KEY", else X-Api-Key or api-key: what OpenAI's, Anthropic's and Azure's clients send. */
static struct text_span head_secret(const struct api_head *h) {
    static const char bearer[] = "Bearer ";
    const char *secret = h->api_key ? h->api_key : "";
    if (h->authorization && strncasecmp(h->authorization, bearer, sizeof bearer - 1) == 0) {
        const char *token = h->authorization + sizeof bearer - 1;
        while (*token == ' ') token++;
        if (*token != '\0') secret = token;
    }
    return (struct text_span){secret, strlen(secret)};
}

static struct key *key_of(struct api *a, const struct api_head *h, struct failure *f) {
    struct text_span secret = head_secret(h);
    struct key *key = secret.size > 0 ? keyring_find(a->keys, secret) : NULL;
    if (key) return key;
    if (secret.size == 0)
        failure_set(f, 401, "missing_api_key", NULL,
                    "a key is needed: send \"Authorization: Bearer KEY\" or \"X-Api-Key: KEY\"");
    else
        failure_set(f, 401, "invalid_api_key", NULL, "the key is not one of this server's");
    return NULL;
}

static bool operations_refuse(struct failure *f, const char *why) {
    return failure_set(f, 403, "access_denied", NULL, "%s (option server.operations)", why);
}

static bool admit_operator(struct api *a, const struct api_head *h, struct admission *out, struct failure *f) {
    if (a->operations == OPERATIONS_OPEN) return true;
    if (a->operations == OPERATIONS_LOCAL)
        return address_is_local(&h->address) ||
               operations_refuse(f, "only clients on the server's machine may read this");
    out->principal.key = key_of(a, h, f);
    if (out->principal.key == NULL) return false;
    return out->principal.key->operations ||
           operations_refuse(f, "only keys with \"operations\": true in the file of keys may read this");
}

static bool key_admit(struct admission *out, struct failure *f) {
    struct key *key = out->principal.key;
    struct key_refusal refusal;
    out->counted = key_enter(key, &refusal);
    if (out->counted) return true;
    failure_set(f, 429, "rate_limit_exceeded", NULL, "the key %s may have %lld %s (\"%s\" in the file of keys)",
                key->name, (long long)refusal.limit, refusal.what, refusal.field);
    f->retry_after = refusal.retry_after;
    return false;
}

/* Without keys whoever reaches the server may use it, and a browser reaches it for any page that it shows. */
static bool admit_page(const struct api *a, const struct api_head *h, struct failure *f) {
    bool reads = strcmp(h->method, "GET") == 0 || strcmp(h->method, "HEAD") == 0;
    if (!page_host_is_known(&h->page, &a->hosts))
        return failure_set(
            f, 403, "host_not_allowed", NULL,
            "this server is not known as %.200s: without keys it answers to addresses, localhost and the "
            "names of option server.hosts",
            h->page.host);
    if (page_origin_is_known(&h->page, a->origins, a->n_origins, reads)) return true;
    return failure_set(f, 403, "origin_not_allowed", NULL,
                       "the page of %.200s may not ask: without keys the server answers its own page and those of "
                       "option server.cors_origins",
                       h->page.origin ? h->page.origin : "another origin");
}

static bool admit_client(struct api *a, const struct api_head *h, struct admission *out, struct failure *f) {
    if (a->keys == NULL) return admit_page(a, h, f);
    out->principal.key = key_of(a, h, f);
    if (out->principal.key == NULL) return false;
    memcpy(&out->principal.client, out->principal.key->hash, sizeof out->principal.client);
    return key_admit(out, f);
}

bool api_admit(struct api *a, const struct api_head *h, struct admission *out, struct failure *f) {
    enum route_access access = route_access_of(h->path);
    *out = (struct admission){.principal = principal_open(address_client(&h->address))};
    if (a->request_timeout > 0) out->principal.deadline = time_now() + a->request_timeout;
    if (!address_is_allowed(a, &h->address)) {
        char text[ADDRESS_TEXT_BYTES];
        address_print(&h->address, text);
        return failure_set(f, 403, "address_not_allowed", NULL, "%s is in none of the networks that are answered",
                           text);
    }
    /* A browser asks without a key whether it may ask with one. */
    if (access == ACCESS_PUBLIC || access == ACCESS_PAGE || strcmp(h->method, "OPTIONS") == 0) return true;
    return access == ACCESS_OPERATIONS ? admit_operator(a, h, out, f) : admit_client(a, h, out, f);
}

void api_leave(struct admission *m) {
    if (m->counted) key_leave(m->principal.key);
    m->counted = false;
    principal_release(&m->principal);
}
