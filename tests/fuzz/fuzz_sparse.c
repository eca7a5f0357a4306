/* tests/fuzz/fuzz_sparse.c: any bytes as the sparse weights of 3 chunks. Whatever is opened is read
 * within its bytes, and what is checked as whole has nothing that cannot be read. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/sparse/sparse_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHUNKS = 3, IDS = 300 };

/* False: damage was met. */
static bool read_all(const struct sparse_index *index) {
    struct error e;
    bool sound = true;
    for (int i = 0; i < CHUNKS; i++) {
        struct sparse_row row;
        sound = sparse_index_row(index, i, &row, &e) == STATUS_OK && sound;
        float square = sparse_row_multiply(row, row);
        CHECK(!sound || square >= 0);
    }
    for (uint32_t id = 0; id < IDS; id++) {
        struct sparse_cursor cursor;
        sparse_cursor_open(&cursor, index, id);
        for (; cursor.chunk != SPARSE_END; sparse_cursor_next(&cursor))
            CHECK(cursor.chunk >= 0 && cursor.chunk < CHUNKS && cursor.weight > 0);
        sound = sound && cursor.damage == NULL;
    }
    return sound;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sparse_index *index;
    struct error e = {0};
    /* In memory of their own: a read behind the end is seen. */
    char *bytes = xmalloc(size > 0 ? size : 1);
    memcpy(bytes, data, size);
    enum status status =
        sparse_index_open(&index, (struct text_span){bytes, size}, CHUNKS, "weights", &e);
    if (status == STATUS_OK) {
        bool sound = read_all(index);
        status = sparse_index_check(index, &e);
        CHECK(status != STATUS_OK || sound);
        sparse_index_free(index);
    }
    CHECK(status == STATUS_OK || e.text[0] != '\0');
    free(bytes);
    return 0;
}
