/* retrieval/index/index.c: what indexes of all kinds share: the range of a question, and the device by name. */
#include "retrieval/index/index.h"

#include <stdlib.h>
#include <string.h>

enum status index_search(const struct index *x, struct index_query q, int64_t *ids, float *similarities,
                         struct error *e) {
    if (q.n < 0 || q.k < 1) return error_set(e, STATUS_INVALID, "search: %d queries for %d neighbours", q.n, q.k);
    return x->ops->search(x, q, ids, similarities, e);
}

enum status index_vectors(const struct index *x, int64_t first, int n, float *vectors, struct error *e) {
    if (first < 0 || n < 0 || first > x->count - n)
        return error_set(e, STATUS_INVALID, "vectors %lld .. %lld of %lld", (long long)first, (long long)first + n,
                         (long long)x->count);
    return x->ops->vectors(x, first, n, vectors, e);
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

enum status index_move(struct index *x, const char *device, struct error *e) {
    int gpu;
    if (strcmp(device, "cpu") == 0) return STATUS_OK;
    if (!parse_gpu(device, &gpu))
        return error_set(e, STATUS_INVALID, "there is no device \"%.100s\" for an index; \"cpu\" and \"cuda:N\" are",
                         device);
    return x->ops->move(x, gpu, e);
}
