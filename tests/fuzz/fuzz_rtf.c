/* tests/fuzz/fuzz_rtf.c: bytes as RTF behind its first word: the text that comes out is valid, and
 * its marks lead into it. */
#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buffer rtf = {0};
    struct document_text out = {0};
    struct error e = {0};
    buffer_append_string(&rtf, "{\\rtf1");
    buffer_append(&rtf, data, size);
    struct extract_file file = {
        .name = "rtf", .bytes = {rtf.data, rtf.size}, .limits = {.bytes = 1 << 24}};
    extract_rtf_prepare(&file);
    enum status status = extract_rtf(&file, &out, &e);
    CHECK(status == STATUS_OK || (e.status == status && e.text[0] != '\0'));
    CHECK(out.text.size == 0 || utf8_is_valid(out.text.data, out.text.size));
    CHECK(out.title.size == 0 || utf8_is_valid(out.title.data, out.title.size));
    CHECK(marks_fault(marks_of(&out.marks), out.text.size) == NULL);
    document_text_free(&out);
    buffer_free(&rtf);
    return 0;
}
