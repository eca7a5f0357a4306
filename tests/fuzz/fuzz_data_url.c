/* tests/fuzz/fuzz_data_url.c: any bytes as a data: URL: no more bytes come out than went in and
 * than the limit. The same bytes as the text of a picture among documents: what is a part of it
 * lies in it. */
#include "config/base/data_url.h"
#include "retrieval/picture_document.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_document(struct text_span text) {
    struct picture_document p;
    struct buffer file = {0};
    struct error e = {0};
    if (!picture_document_read(&p, text)) return;
    CHECK(p.url.text == text.text && p.url.size + 2 + p.caption.size == text.size);
    CHECK(p.caption.text + p.caption.size == text.text + text.size);
    if (picture_document_file(&p, &file, &e) == STATUS_OK) {
        const char *type = picture_media_type((struct text_span){file.data, file.size});
        CHECK(file.size < text.size && (type == NULL || type[0] == 'i'));
    }
    buffer_free(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { LIMIT = 200 };
    struct text_span url = {(const char *)data, size}, type;
    struct buffer bytes = {0};
    struct error e = {0};
    enum status status = data_url_read(&bytes, &type, url, LIMIT, &e);
    CHECK(bytes.size <= size && (status || bytes.size <= LIMIT));
    CHECK(status ? e.status == status && e.text[0] != '\0' : data_url_is(url) && type.size > 0);
    buffer_free(&bytes);
    read_document(url);
    return 0;
}
