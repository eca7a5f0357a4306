/* tests/fuzz/fuzz_manifest.c: any bytes as a MANIFEST, as they are and with the checksum put right,
 * which random bytes never hit; what is accepted prints to text that parses to the same. */
#include <stdio.h>
#include <string.h>

#include "config/base/hash.h"
#include "retrieval/generation/generation_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text, size_t size) {
    struct manifest m, again;
    struct buffer printed = {0};
    struct error e = {0};
    enum status status = manifest_parse(&m, text, size, "MANIFEST", &e);
    if (status == STATUS_OK) {
        uint64_t checksum;
        manifest_print(&m, &printed);
        checksum = m.checksum;
        CHECK(manifest_parse(&again, printed.data, printed.size, "printed", &e) == STATUS_OK);
        CHECK(again.checksum == checksum && again.info.n_chunks == m.info.n_chunks);
        CHECK(strcmp(again.info.embedder, m.info.embedder) == 0);
        CHECK((again.info.pictures.embedder == NULL) == (m.info.pictures.embedder == NULL));
        CHECK(again.info.pictures.n == m.info.pictures.n &&
              again.info.pictures.dim == m.info.pictures.dim);
        manifest_free(&again);
    } else {
        CHECK(e.status == status && e.text[0] != '\0');
    }
    manifest_free(&m);
    buffer_free(&printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buffer b = {0};
    check((const char *)data, size);
    /* The input as everything before the checksum. */
    buffer_append(&b, data, size);
    buffer_printf(&b, "  \"checksum\": \"%016llx\"\n}\n",
                  (unsigned long long)hash_bytes(data, size, 0));
    check(b.data, b.size);
    buffer_free(&b);
    return 0;
}
