/* tests/fuzz/fuzz_prefix_file.c: any bytes as a file of a prefix's rows, as they are and with the
 * checksum put right, which random bytes never hit; ids and rows of what is accepted lie within the
 * bytes. */
#include <stdint.h>
#include <string.h>

#include "config/base/hash.h"
#include "retro/run/cache/prefix_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct buffer *b) {
    struct prefix_file f;
    struct error e = {0};
    enum status status = prefix_file_parse(&f, (struct text_span){b->data, b->size}, "fuzzed", &e);
    if (status) {
        CHECK(e.status == status && e.text[0] != '\0');
        return;
    }
    /* Every byte is read, for the sanitizer. */
    uint64_t ids = hash_bytes(f.ids, (size_t)f.n * sizeof *f.ids, 0),
             image = hash_bytes(f.image.text, f.image.size, ids);
    (void)image;
    CHECK(f.n > 0 && (const char *)(f.ids + f.n) <= f.image.text);
    CHECK(f.image.text + f.image.size + sizeof(uint64_t) == b->data + b->size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buffer b = {0};
    buffer_append(&b, data, size);
    if (size > 0) check(&b);
    uint64_t checksum = hash_bytes(data, size, 0);
    buffer_append(&b, &checksum, sizeof checksum);
    check(&b);
    buffer_free(&b);
    return 0;
}
