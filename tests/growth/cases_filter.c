/* tests/growth/cases_filter.c: filters and the metadata that they are asked about, and JSON itself.
 */
#include <stdlib.h>
#include <string.h>

#include "retrieval/filter/filter.h"
#include "tests/growth/growth.h"

/* A filter, a line end, and a document's metadata. */
static void run_filter(struct text_span text) {
    const char *end = memchr(text.text, '\n', text.size);
    char *line = xstrndup(text.text, (size_t)(end - text.text));
    struct buffer facts = {0};
    struct filter *f;
    struct error e;
    CHECK(filter_parse(&f, line, "filter", &e) == STATUS_OK);
    CHECK(facts_append(&facts, end + 1, &e) == STATUS_OK);
    struct filter_subject s = {.id = "id", .path = "path", .facts = {facts.data, facts.size}};
    CHECK(!filter_allows(f, &s));
    filter_release(f);
    buffer_free(&facts);
    free(line);
}

static void put_values(struct buffer *out, int n, const char *format) {
    for (int i = 0; i < n; i++) {
        if (i > 0) buffer_append_string(out, ",");
        buffer_printf(out, format, i);
    }
}

static void put_metadata(struct buffer *out, int n, const char *format) {
    buffer_append_string(out, "\n{\"a\":[");
    put_values(out, n, format);
    buffer_append_string(out, "]}");
    buffer_append(out, "", 1);
}

static void make_texts(int n, struct buffer *out) {
    buffer_append_string(out, "{\"in\":{\"a\":[");
    put_values(out, n, "\"x%d\"");
    buffer_append_string(out, "]}}");
    put_metadata(out, 4 * n, "\"y%d\"");
}
static void make_numbers(int n, struct buffer *out) {
    buffer_append_string(out, "{\"in\":{\"a\":[");
    put_values(out, n, "%d.5");
    buffer_append_string(out, "]}}");
    put_metadata(out, 4 * n, "%d");
}
static void make_parts(int n, struct buffer *out) {
    buffer_append_string(out, "{\"or\":[");
    put_values(out, n, "{\"eq\":{\"a\":\"x%d\"}}");
    buffer_append_string(out, "]}");
    put_metadata(out, 20, "\"y%d\"");
}
static void make_names(int n, struct buffer *out) {
    buffer_append_string(out, "{\"eq\":{\"b\":1}}\n{");
    put_values(out, n, "\"a%d\":1");
    buffer_append_string(out, "}");
    buffer_append(out, "", 1);
}

static const struct growth_case cases[] = {
    {"filter/in", 500, make_texts, run_filter},
    {"filter/in-numbers", 400, make_numbers, run_filter},
    {"filter/or", 100, make_parts, run_filter},
    {"metadata/names", 1000, make_names, run_filter},
};
const struct growth_table filter_growth = GROWTH_TABLE(cases);
