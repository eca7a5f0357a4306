/* tests/made_collection.h: a collection in the test's folder whose documents are made ones
 * (documents.h), for tests of what becomes of them. A failure ends the test. */
#pragma once

#include "retrieval/generation/generation_private.h"
#include "tests/documents.h"
#include "tests/folder.h"

/* The caller closes it. */
static inline struct collection *made_collection_open(void) {
    struct collection *collection;
    struct error e;
    if (store_open(&collection, test_folder, &e)) fail_msg("%s", e.text);
    return collection;
}

/* A collection of documents 0 to n - 1 in their version 1. */
static inline void made_collection_build(int n) {
    struct collection_options options = {.chunk_length = CHUNK,
                                         .eod = EOD,
                                         .dim = DIM,
                                         .embedder = "toy",
                                         .tokenizer = "toy",
                                         .index_factory = INDEX_EXACT};
    struct generation_builder *builder;
    struct error e;
    if (builder_create(&builder, test_folder, &options, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) {
        struct made_document made;
        make_document(&made, i, 1);
        int n_chunks = document_count_chunks(made.document.n, CHUNK);
        if (builder_add_document(builder, &made.document, &e) ||
            builder_add_vectors(builder, made.vectors, n_chunks, &e))
            fail_msg("%s", e.text);
    }
    if (builder_commit(builder, &e)) fail_msg("%s", e.text);
}

/* Document `id` in another version, or again. */
static inline void made_collection_put(struct collection *collection, int id, int version) {
    struct made_document made;
    struct error e;
    enum change_effect effect;
    make_document(&made, id, version);
    assert_int_equal(collection_put(collection, NULL, &made.document, made.vectors, &effect, &e),
                     STATUS_OK);
}

static inline void made_collection_delete(struct collection *collection, int id) {
    struct made_document made;
    struct error e;
    make_document(&made, id, 1);
    assert_int_equal(collection_delete(collection, NULL, made.id, &e), STATUS_OK);
}
