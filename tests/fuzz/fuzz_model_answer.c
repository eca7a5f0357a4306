/* tests/fuzz/fuzz_model_answer.c: any bytes as a model's answer to a page: what is taken of it is a
 * text, and the marks of it as Markdown have no fault. */
#include "retrieval/extract/extract.h"
#include "retrieval/extract/model/model_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct text_span answer = {(const char *)data, size};
    struct buffer markdown = {0}, marks = {0};
    struct error e = {0};
    enum status status = model_answer_read(answer, 64, &markdown, &e);
    CHECK(status ? e.status == status && e.text[0] != '\0' : markdown_is_sound(&markdown));
    CHECK(markdown.size <= size);
    if (status == STATUS_OK) {
        document_mark(DOCUMENT_MARKDOWN, (struct text_span){markdown.data, markdown.size}, &marks);
        CHECK(marks_fault(marks_of(&marks), markdown.size) == NULL);
    }
    buffer_free(&markdown);
    buffer_free(&marks);
    return 0;
}
