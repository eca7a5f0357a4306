/* tests/fuzz/fuzz_ranges.c: any bytes as the headers Range and If-None-Match of a file, and as what
 * a document says of its file: a part lies within the file, and a name is spelled one way. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/kept/kept_name.h"
#include "server/api/documents/byte_range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_range(const char *text, uint64_t size) {
    struct byte_range range = byte_range_read(text, size);
    CHECK(range.kind == RANGE_NONE || (range.start < range.end && range.end <= size));
    CHECK(range.kind != RANGE_ALL || (range.start == 0 && range.end == size));
}

static void check_name(const char *text) {
    struct kept_name name = kept_name_read(text);
    char again[KEPT_NAME_SIZE];
    if (name.kind == KEPT_NOTHING) return;
    snprintf(again, sizeof again, "%s:%s:%" PRIu64, name.kind == KEPT_COPY ? "copy" : "same",
             name.hash, name.size);
    CHECK(strcmp(again, text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = xstrndup((const char *)data, size);
    check_range(text, 1);
    check_range(text, 1000);
    check_range(text, UINT64_MAX);
    entity_tags_have(text, "\"0123456789abcdef\"");
    check_name(text);
    free(text);
    return 0;
}
