/* retrieval/index/index.c: what indexes of all kinds share: the range of a question, and the device
 * by name. */
#include "retrieval/index/index.h"

#include <stdlib.h>
#include <string.h>

enum status index_search(const struct index *the_index, struct index_query query, int64_t *ids,
                         float *similarities, struct error *e) {
    if (query.n < 0 || query.k < 1)
        return error_set(e, STATUS_INVALID, "search: %d queries for %d neighbours", query.n,
                         query.k);
    return the_index->ops->search(the_index, query, ids, similarities, e);
}

enum status index_vectors(const struct index *the_index, int64_t first, int n, float *vectors,
                          struct error *e) {
    if (first < 0 || n < 0 || first > the_index->count - n)
        return error_set(e, STATUS_INVALID, "vectors %lld .. %lld of %lld", (long long)first,
                         (long long)first + n, (long long)the_index->count);
    return the_index->ops->vectors(the_index, first, n, vectors, e);
}

/* "cuda" and "cuda:N" with a number of up to four digits. */
static bool parse_gpu(const char *device, int *gpu) {
    *gpu = 0;
    if (strcmp(device, "cuda") == 0) return true;
    if (strncmp(device, "cuda:", 5) != 0) return false;
    size_t digits = strspn(device + 5, "0123456789");
    *gpu = atoi(device + 5);
    return digits >= 1 && digits <= 4 && device[5 + digits] == '\0';
}

enum status index_move(struct index *the_index, const char *device, struct error *e) {
    int gpu;
    if (strcmp(device, "cpu") == 0) return STATUS_OK;
    if (!parse_gpu(device, &gpu))
        return error_set(e, STATUS_INVALID,
                         "there is no device \"%.100s\" for an index; \"cpu\" and \"cuda:N\" are",
                         device);
    return the_index->ops->move(the_index, gpu, e);
}
