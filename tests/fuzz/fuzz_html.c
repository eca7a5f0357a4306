/* tests/fuzz/fuzz_html.c: any bytes as an HTML page; the text that comes out is valid UTF-8 without
 * NUL. The first byte chooses whether the encoding is known. */
#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct document_text out = {0};
    struct error e = {0};
    if (size < 2) return 0;
    const char *html = (const char *)data + 1;
    for (size_t i = 1; i < size; i++)
        if (data[i] == 0) return 0; /* the caller refuses these as binary */
    bool known = data[0] % 2 && utf8_is_valid(html, size - 1);
    enum status status = extract_html("page", (struct text_span){html, size - 1}, known, &out, &e);
    CHECK(status == STATUS_OK || (e.status == status && e.text[0] != '\0'));
    CHECK(out.text.size == 0 || (utf8_is_valid(out.text.data, out.text.size) &&
                                 out.text.data[out.text.size - 1] == '\n'));
    CHECK(out.title.size == 0 || utf8_is_valid(out.title.data, out.title.size));
    CHECK(marks_fault(marks_of(&out.marks), out.text.size) == NULL);
    document_text_free(&out);
    return 0;
}
