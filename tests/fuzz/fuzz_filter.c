/* tests/fuzz/fuzz_filter.c: any bytes as a filter, and behind a NUL as the metadata that it is
 * asked about. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/filter/filter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A filter that is written and read again is the same and allows the same. */
static void check_again(const struct filter *f, const struct filter_subject *s) {
    struct filter *again;
    struct error e;
    CHECK(filter_parse(&again, filter_text(f), "again", &e) == STATUS_OK ||
          e.status == STATUS_INVALID);
    if (again) CHECK(filter_is_same(f, again) && filter_allows(f, s) == filter_allows(again, s));
    filter_release(again);
}

static void check_metadata(struct filter *f, const char *metadata) {
    struct buffer facts = {0}, filled = {0};
    struct error e = {0};
    if (facts_append(&facts, metadata, &e)) {
        CHECK(facts.size == 0 && e.text[0] != '\0');
        return;
    }
    struct filter_subject s = {.id = "id", .path = "a/path", .facts = {facts.data, facts.size}};
    filter_allows(f, &s);
    if (f) check_again(f, &s);
    buffer_append_string(&filled, metadata);
    CHECK(filter_fill(f, &filled, &e) == STATUS_OK);
    buffer_free(&facts);
    buffer_clear(&filled);
    buffer_free(&filled);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = xstrndup((const char *)data, size);
    size_t end = strlen(text);
    struct filter *f;
    struct error e = {0};
    enum status status = filter_parse(&f, text, "input", &e);
    CHECK((status == STATUS_OK) == (f != NULL || end == 0));
    CHECK(status == STATUS_OK || e.text[0] != '\0');
    check_metadata(f, end < size ? text + end + 1 : "");
    filter_release(f);
    free(text);
    return 0;
}
