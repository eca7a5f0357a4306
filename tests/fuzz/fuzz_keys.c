/* tests/fuzz/fuzz_keys.c: any bytes as a file of keys, as a network of server.allow, and as the
 * headers that name a request. */
#include <stdlib.h>
#include <string.h>

#include "server/access/address.h"
#include "server/access/keyring.h"
#include "server/api/core/request_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_keys(struct text_span text) {
    struct key_list list;
    struct error e = {0};
    enum status status = key_list_parse(&list, text, "input", &e);
    CHECK(status == STATUS_OK ? list.n > 0 : e.status == status && e.text[0] != '\0');
    for (int i = 0; i < list.n; i++) {
        struct key_refusal refusal;
        struct key *k = list.items[i];
        CHECK(k->name[0] != '\0' && k->limits.tokens_per_day >= 0);
        if (key_enter(k, &refusal)) key_leave(k);
    }
    key_list_free(&list);
}

static void check_network(const char *text) {
    struct network n;
    struct error e = {0};
    if (network_parse(&n, text, &e) == STATUS_OK)
        CHECK(network_has(&n, &n.address));
    else
        CHECK(e.text[0] != '\0');
}

static void check_names(const char *text) {
    struct trace_context t;
    if (request_id_is_good(text)) CHECK(strlen(text) < REQUEST_ID_BYTES);
    if (trace_parse(&t, text)) CHECK(strlen(t.trace_id) == 32 && strlen(t.parent_id) == 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = xstrndup((const char *)data, size);
    check_keys((struct text_span){text, size});
    check_network(text);
    check_names(text);
    free(text);
    return 0;
}
