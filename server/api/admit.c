/* server/api/admit.c: who is let in: by address, by key, and within the key's limits. */
#include <string.h>
#include <strings.h>

#include "server/api/routes.h"

static bool address_is_allowed(const struct api *api, const struct net_address *address) {
    for (int i = 0; i < api->n_networks; i++)
        if (network_has(&api->networks[i], address)) return true;
    return api->n_networks == 0;
}

/* "Bearer KEY", else X-Api-Key or api-key: what OpenAI's, Anthropic's and Azure's clients send. */
static struct text_span head_secret(const struct api_head *head) {
    static const char bearer[] = "Bearer ";
    const char *secret = head->api_key ? head->api_key : "";
    if (head->authorization && strncasecmp(head->authorization, bearer, sizeof bearer - 1) == 0) {
        const char *token = head->authorization + sizeof bearer - 1;
        while (*token == ' ') token++;
        if (*token != '\0') secret = token;
    }
    return (struct text_span){secret, strlen(secret)};
}

static struct key *key_of(struct api *api, const struct api_head *head, struct failure *failure) {
    struct text_span secret = head_secret(head);
    struct key *key = secret.size > 0 ? keyring_find(api->keys, secret) : NULL;
    if (key) return key;
    if (secret.size == 0)
        failure_set(failure, 401, "missing_api_key", NULL,
                    "a key is needed: send \"Authorization: Bearer KEY\" or \"X-Api-Key: KEY\"");
    else
        failure_set(failure, 401, "invalid_api_key", NULL, "the key is not one of this server's");
    return NULL;
}

static bool operations_refuse(struct failure *failure, const char *why) {
    return failure_set(failure, 403, "access_denied", NULL, "%s (option server.operations)", why);
}

static bool admit_operator(struct api *api, const struct api_head *head, struct admission *out,
                           struct failure *failure) {
    if (api->operations == OPERATIONS_OPEN) return true;
    if (api->operations == OPERATIONS_LOCAL)
        return address_is_local(&head->address) ||
               operations_refuse(failure, "only clients on the server's machine may read this");
    out->principal.key = key_of(api, head, failure);
    if (out->principal.key == NULL) return false;
    return out->principal.key->operations ||
           operations_refuse(
               failure, "only keys with \"operations\": true in the file of keys may read this");
}

static bool key_admit(struct admission *out, struct failure *failure) {
    struct key *key = out->principal.key;
    struct key_refusal refusal;
    out->counted = key_enter(key, &refusal);
    if (out->counted) return true;
    failure_set(failure, 429, "rate_limit_exceeded", NULL,
                "the key %s may have %lld %s (\"%s\" in the file of keys)", key->name,
                (long long)refusal.limit, refusal.what, refusal.field);
    failure->retry_after = refusal.retry_after;
    return false;
}

/* Without keys whoever reaches the server may use it, and a browser reaches it for any page that it
 * shows. With keys a name that is no address tells nothing where others reach the server, as
 * proxies give it theirs. */
static bool admit_page(const struct api *api, const struct api_head *head,
                       struct failure *failure) {
    bool reads = strcmp(head->method, "GET") == 0 || strcmp(head->method, "HEAD") == 0;
    bool named = api->keys == NULL || api->local;
    if (named && !page_host_is_known(&head->page, &api->hosts))
        return failure_set(failure, 403, "host_not_allowed", NULL,
                           "this server is not known as %.200s: it answers to addresses, localhost "
                           "and the names of option server.hosts",
                           head->page.host);
    if (page_origin_is_known(&head->page, api->origins, api->n_origins, reads)) return true;
    return failure_set(
        failure, 403, "origin_not_allowed", NULL,
        "the page of %.200s may not ask: the server answers its own page and those of option "
        "server.cors_origins",
        head->page.origin ? head->page.origin : "another origin");
}

static bool admit_client(struct api *api, const struct api_head *head, struct admission *out,
                         struct failure *failure) {
    if (api->keys == NULL) return admit_page(api, head, failure);
    if (route_checks_pages(head->path) && !admit_page(api, head, failure)) return false;
    out->principal.key = key_of(api, head, failure);
    if (out->principal.key == NULL) return false;
    memcpy(&out->principal.client, out->principal.key->hash, sizeof out->principal.client);
    return key_admit(out, failure);
}

bool api_admit(struct api *api, const struct api_head *head, struct admission *out,
               struct failure *failure) {
    enum route_access access = route_access_of(head->path);
    *out = (struct admission){.principal = principal_open(address_client(&head->address))};
    if (api->request_timeout > 0) out->principal.deadline = time_now() + api->request_timeout;
    if (!address_is_allowed(api, &head->address)) {
        char text[ADDRESS_TEXT_BYTES];
        address_print(&head->address, text);
        return failure_set(failure, 403, "address_not_allowed", NULL,
                           "%s is in none of the networks that are answered", text);
    }
    /* A browser asks without a key whether it may ask with one. */
    if (access == ACCESS_PUBLIC || access == ACCESS_PAGE || strcmp(head->method, "OPTIONS") == 0)
        return true;
    return access == ACCESS_OPERATIONS ? admit_operator(api, head, out, failure)
                                       : admit_client(api, head, out, failure);
}

void api_release(struct admission *admission) {
    if (admission->counted) key_leave(admission->principal.key);
    admission->counted = false;
}

void api_leave(struct admission *admission) {
    api_release(admission);
    principal_release(&admission->principal);
}
