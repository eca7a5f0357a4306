/* tests/fuzz/fuzz_image_url.c: any lines as hosts that pictures may be fetched from, and the last
 * one as a URL: what is let through is a URL of http or https, at a host that a line allows. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/buffer.h"
#include "server/fetch/fetcher.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Rules that the lines before the last make; of lines that are none, nothing. */
static void read_rules(struct host_rules *hosts, char *lines) {
    struct error e = {0};
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        struct host_rule *rule = &hosts->rules[hosts->n];
        enum status status = host_rule_parse(rule, line, &e);
        CHECK(status ? e.text[0] != '\0' : rule->literal || rule->name[0] != '\0');
        CHECK(status ||
              (rule->port >= 0 && rule->port <= 65535 && strlen(rule->name) < sizeof rule->name));
        if (status == STATUS_OK) hosts->n++;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { MOST = 4000 };
    struct buffer text = {0};
    struct host_rules hosts = {0};
    struct error e = {0};
    if (size > MOST) return 0;
    buffer_append(&text, data, size);
    buffer_append(&text, "", 1);
    char *last = strrchr(text.data, '\n'), *url = last ? last + 1 : text.data;
    hosts.rules = xcalloc(MOST, sizeof *hosts.rules);
    if (last) {
        *last = '\0';
        read_rules(&hosts, text.data);
    }
    enum status status = fetch_check(&hosts, url, &e);
    CHECK(status ? e.text[0] != '\0' : hosts.n > 0);
    host_rules_free(&hosts);
    buffer_free(&text);
    return 0;
}
