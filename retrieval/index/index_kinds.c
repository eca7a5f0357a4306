/* retrieval/index/index_kinds.c: which index a collection gets. Where nobody asks for one, the
 * number of chunks decides (docs/indexing.md, "Which index"); the words "flat", "ivf", "ivfsq8"
 * and "hnsw" ask for a kind, whose numbers follow from the chunks; anything else is a factory
 * string of FAISS. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/index/index.h"

enum { FLAT_LIMIT = 100000 };

int index_lists(int64_t count) {
    int lists = 1 << (int)lround(log2(4 * sqrt((double)count)));
    while (lists > 1 && lists > count) lists /= 2;
    return lists;
}

static void name_flat(char *factory, size_t size, int64_t count, int dim) {
    (void)count, (void)dim;
    snprintf(factory, size, "Flat");
}

/* 1024 lists at 100 000 vectors, 4096 at a million. */
static void name_ivf(char *factory, size_t size, int64_t count, int dim) {
    (void)dim;
    snprintf(factory, size, "IVF%d,Flat", index_lists(count));
}

/* A byte a number: a quarter of the bytes that a search reads, and no recall less where the vectors
 * themselves decide at its end (index_refined.c). */
static void name_ivfsq8(char *factory, size_t size, int64_t count, int dim) {
    (void)dim;
    snprintf(factory, size, "IVF%d,SQ8", index_lists(count));
}

static void name_hnsw(char *factory, size_t size, int64_t count, int dim) {
    (void)count, (void)dim;
    snprintf(factory, size, "HNSW32");
}

/* `least`: vectors that it learns its lists and codes from at least. */
static const struct index_kind {
    const char *name;
    int64_t least;
    void (*write)(char *factory, size_t size, int64_t count, int dim);
} kinds[] = {{"flat", 1, name_flat},
             {"ivf", 16, name_ivf},
             {"ivfsq8", 16, name_ivfsq8},
             {"hnsw", 1, name_hnsw}};

static const struct index_kind *find_kind(const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

static const char *choose_kind(int64_t count) { return count <= FLAT_LIMIT ? "flat" : "ivfsq8"; }

/* By size, an index of FAISS where there is FAISS. */
static void choose_factory(char factory[INDEX_FACTORY_SIZE], int64_t count, int dim) {
    if (HAVE_FAISS)
        find_kind(choose_kind(count))->write(factory, INDEX_FACTORY_SIZE, count, dim);
    else
        snprintf(factory, INDEX_FACTORY_SIZE, INDEX_EXACT);
}

/* FAISS divides by such numbers, or reads what they say is there. */
static bool names_zero(const char *factory) {
    const char *const digits = "0123456789";
    for (const char *at = strpbrk(factory, digits); at; at = strpbrk(at, digits)) {
        if (strtoull(at, NULL, 10) == 0) return true;
        at += strspn(at, digits);
    }
    return false;
}

enum status index_resolve(char factory[INDEX_FACTORY_SIZE], const char *asked, int64_t count,
                          int dim, struct error *e) {
    const struct index_kind *kind = asked ? find_kind(asked) : NULL;
    if (asked && strlen(asked) >= INDEX_FACTORY_SIZE)
        return error_set(e, STATUS_INVALID, "index \"%.40s...\": longer than %d characters", asked,
                         INDEX_FACTORY_SIZE - 1);
    if (asked && kind == NULL && names_zero(asked))
        return error_set(e, STATUS_INVALID, "index %s: a number in it is 0", asked);
    if (asked == NULL)
        choose_factory(factory, count, dim);
    else if (kind)
        kind->write(factory, INDEX_FACTORY_SIZE, count, dim);
    else
        snprintf(factory, INDEX_FACTORY_SIZE, "%s", asked);
    return STATUS_OK;
}

const char *index_asked(const char *factory, int64_t count, int dim) {
    char named[INDEX_FACTORY_SIZE];
    choose_factory(named, count, dim);
    if (strcmp(named, factory) == 0) return NULL;
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        kinds[i].write(named, INDEX_FACTORY_SIZE, count, dim);
        if (strcmp(named, factory) == 0) return kinds[i].name;
    }
    return factory;
}

/* The number after the first `word` that has one; 0: none. */
static int64_t number_after(const char *factory, const char *word) {
    for (const char *at = strstr(factory, word); at; at = strstr(at + 1, word)) {
        long long n = strtoll(at + strlen(word), NULL, 10);
        if (n > 0) return n;
    }
    return 0;
}

/* An inverted file learns a centre per list, a product quantiser 2^bits codes per part: "PQ48",
 * "PQ16x4". */
static int64_t factory_least(const char *factory) {
    int64_t least = number_after(factory, "IVF");
    for (const char *at = strstr(factory, "PQ"); at; at = strstr(at + 1, "PQ")) {
        const char *bits = at + 2 + strspn(at + 2, "0123456789");
        if (at > factory && at[-1] == 'O') continue; /* a rotation, which learns from any number */
        int n = *bits == 'x' ? atoi(bits + 1) : 8;
        int64_t codes = (int64_t)1 << max_int(0, min_int(n, 24));
        if (codes > least) least = codes;
    }
    return least;
}

int64_t index_least_vectors(const char *asked) {
    const struct index_kind *kind = asked ? find_kind(asked) : NULL;
    if (kind) return kind->least;
    return asked == NULL || strcmp(asked, INDEX_EXACT) == 0 ? 0 : factory_least(asked);
}

bool index_is_lossless(const char *factory) {
    static const char *const compressing[] = {"PQ", "SQ", "RR", "RFlat", "PCA", "LSH"};
    for (size_t i = 0; i < ARRAY_COUNT(compressing); i++)
        if (strstr(factory, compressing[i])) return false;
    return true;
}

uint64_t index_resident(const char *factory, uint64_t file_bytes, int64_t count, int dim) {
    if (strncmp(factory, "IVF", 3) != 0) return file_bytes;
    return (uint64_t)number_after(factory, "IVF") * (uint64_t)dim * sizeof(float) +
           (uint64_t)count * sizeof(int64_t);
}
