/* tests/fuzz/fuzz_block_file.c: any bytes as a file of a block's rows, as they are and with both
 * checksums and the address put right, which random bytes never hit; what is accepted lies within
 * the bytes. */
#include <stdint.h>
#include <string.h>

#include "config/base/hash.h"
#include "kernels/backend.h"
#include "retro/run/cache/block_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every byte is read, for the sanitizer. */
static uint64_t read_all(const struct block_file *file) {
    struct document_part part;
    size_t at = 0;
    uint64_t hash = hash_bytes(file->ids, (size_t)file->n * sizeof *file->ids, 0);
    hash = hash_bytes(file->read, (size_t)file->n_read * sizeof *file->read, hash);
    while (block_file_next_document(file->documents, &at, &part))
        hash = hash_bytes(part.id.text, part.id.size, hash);
    CHECK(at == file->documents.size);
    return file->image ? hash_bytes(file->image, (size_t)file->image_bytes, hash) : hash;
}

static void check(struct text_span bytes, uint64_t size) {
    struct block_file file;
    struct error e = {0};
    size_t wanted;
    enum status status = block_file_parse(&file, bytes, size, "fuzzed", &wanted, &e);
    if (status) {
        CHECK(e.status == status && e.text[0] != '\0');
        CHECK(status != STATUS_TOO_LARGE || wanted > bytes.size);
        return;
    }
    CHECK(file.n >= 1 && file.n <= ATTENTION_BLOCK && wanted <= bytes.size);
    CHECK((file.image != NULL) == (bytes.size == size) && block_file_bytes(&file) == size);
    read_all(&file);
}

/* The bytes cut up as a file that is whole: ids, what else was read, documents, image. */
static void check_whole(const uint8_t *data, size_t size) {
    int32_t ids[2 * ATTENTION_BLOCK] = {0};
    struct buffer out = {0};
    if (size < 4) return;
    int n = 1 + data[0] % ATTENTION_BLOCK, n_read = data[1] % ATTENTION_BLOCK;
    size_t documents = data[2] % (size - 2), image = size - 2 - documents;
    memcpy(ids, data, size < sizeof ids ? size : sizeof ids);
    struct block_file file = {.identity = data[3],
                              .ids = ids,
                              .read = ids + ATTENTION_BLOCK,
                              .n = n,
                              .n_read = n_read,
                              .documents = {(const char *)data + 2, documents},
                              .image = (const char *)data + 2 + documents,
                              .image_bytes = image};
    block_file_print(&file, &out);
    check((struct text_span){out.data, out.size}, out.size);
    for (size_t cut = 0; cut < 3; cut++)
        check((struct text_span){out.data, out.size * cut / 3}, out.size);
    out.data[data[3] * out.size / 256] ^= 1;
    check((struct text_span){out.data, out.size}, out.size);
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buffer bytes = {0};
    buffer_append(&bytes, data, size);
    if (size > 0) check((struct text_span){bytes.data, bytes.size}, size);
    if (size > 16) check((struct text_span){bytes.data, bytes.size - 8}, size);
    check_whole(data, size);
    buffer_free(&bytes);
    return 0;
}
