/* tests/fuzz/fuzz_data_url.c: any bytes as a data: URL: no more bytes come out than went in and than the limit. */
#include "config/base/data_url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { LIMIT = 200 };
    struct text_span url = {(const char *)data, size}, type;
    struct buffer bytes = {0};
    struct error e = {0};
    enum status status = data_url_read(&bytes, &type, url, LIMIT, &e);
    CHECK(bytes.size <= size && (status || bytes.size <= LIMIT));
    CHECK(status ? e.status == status && e.text[0] != '\0' : data_url_is(url) && type.size > 0);
    buffer_free(&bytes);
    return 0;
}
