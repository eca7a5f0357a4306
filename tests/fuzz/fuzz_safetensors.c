/* tests/fuzz/fuzz_safetensors.c: any bytes as a safetensors file; whatever opens is read to the last byte. */
#include "retro/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct weights *w = NULL;
    struct error e = {0};
    enum status status = weights_open_memory(&w, data, size, "input", &e);
    if (status) {
        CHECK(w == NULL && e.status == status && e.text[0] != '\0');
        return 0;
    }
    size_t bytes = 0;
    unsigned sum = 0;
    for (int i = 0; i < weights_count(w); i++) {
        const struct stored_tensor *t = weights_at(w, i);
        CHECK(weights_find(w, t->name) == t);
        for (size_t j = 0; j < t->bytes; j++) sum += ((const uint8_t *)t->data)[j];
        bytes += t->bytes;
    }
    /* The tensors are the whole of the data, each byte once. */
    for (size_t j = size - bytes; j < size; j++) sum -= data[j];
    CHECK(sum == 0);
    weights_close(w);
    return 0;
}
