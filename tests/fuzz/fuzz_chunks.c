/* tests/fuzz/fuzz_chunks.c: any bytes as a text of Markdown, reStructuredText or none: its blocks
 * are marked in order, and its chunks keep to their limits, whatever the marks say. */
#include <stdlib.h>

#include "config/base/text.h"
#include "retrieval/chunk_ends.h"
#include "retrieval/extract/extract.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A token for each word and each byte that a number chooses. */
static int find_tokens(struct text_span text, unsigned every, uint32_t *starts) {
    int n = 0;
    for (size_t i = 0; i < text.size; i++)
        if (i == 0 || (is_blank(text.text[i]) && !is_blank(text.text[i - 1])) ||
            i % (every + 3) == 0) {
            starts[n] = (uint32_t)i;
            n++;
        }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum document_kind kinds[] = {DOCUMENT_TEXT, DOCUMENT_MARKDOWN, DOCUMENT_RST};
    struct buffer marks = {0}, ranges = {0};
    if (size < 4) return 0;
    int length = 1 + data[1] % 80;
    struct text_span text = {(const char *)data + 3, size - 3};
    uint32_t *starts = malloc(text.size * sizeof *starts);
    document_mark(kinds[data[0] % ARRAY_COUNT(kinds)], text, &marks);
    CHECK(marks_fault(marks_of(&marks), text.size) == NULL);
    struct chunk_source source = {text, marks_of(&marks), starts,
                                  find_tokens(text, data[2], starts)};
    struct collection_document document = {
        .text = text, .n = source.n, .n_chunks = chunks_cut(&source, CHUNKS_TEXT, length, &ranges)};
    document.chunks = (const struct chunk_range *)(const void *)ranges.data;
    CHECK(document_chunks_fault(&document, CHUNKS_TEXT, length) == NULL);
    free(starts);
    buffer_free(&marks);
    buffer_free(&ranges);
    return 0;
}
