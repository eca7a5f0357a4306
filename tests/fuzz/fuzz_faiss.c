/* tests/fuzz/fuzz_faiss.c: any bytes as a FAISS file of 33 vectors of four numbers; what the check
 * passes FAISS reads and searches. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "retrieval/index/faiss_file.h"
#include "retrieval/index/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { COUNT = 33, D = 4, K = 5 };

/* FAISS itself is there only in a build with it. */
static void search(const uint8_t *data, size_t size) {
    struct index *x;
    struct error e = {0};
    char path[32];
    int64_t ids[K];
    float similarities[K], query[D] = {0.5F, -0.5F, 0.5F, 0.5F}, vectors[COUNT * D];
    int fd = memfd_create("index", 0);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (index_open_faiss(&x, path, COUNT, D, &e) == STATUS_OK) {
        (void)index_search(x, (struct index_query){.vectors = query, .n = 1, .k = K}, ids,
                           similarities, &e);
        (void)index_vectors(x, 0, COUNT, vectors, &e);
        index_close(x);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct error e = {0};
    struct faiss_file file = {.data = data, .size = size, .name = "vectors.faiss"};
    enum status status = faiss_file_check(file, COUNT, D, &e);
    if (status == STATUS_OK)
        search(data, size);
    else
        CHECK(e.status == status && e.text[0] != '\0');
    return 0;
}
