/* tools/index/index_builder.h: a build in progress. Private to index_build.c, which adds documents,
 * and index_parts.c, which opens what that takes. */
#pragma once

#include "server/host/documents/document_group.h"
#include "tools/index/index_reader.h"
#include "tools/index/index_unfinished.h"

enum { BATCH_CHUNKS = 256 };

struct builder {
    const struct build_options *options;
    struct walk walk;
    struct file_reader *reader;
    struct index_progress progress;
    struct tokenizer *tokenizer;
    struct embedder embedder;
    struct embedder pictures;              /* their own; zeroed: there is none */
    struct generation_builder *generation; /* NULL: */
    struct collection *collection;         /* of a collection in Milvus */
    struct unfinished unfinished;          /* of a folder */
    struct document_cutter cutter;
    struct document_group group; /* for Milvus */
    struct known_texts known;    /* for Milvus: of the documents that it has */
    struct key_set texts;        /* hash and length of each text: copies are counted */
    int n_copies, n_added;
    int64_t n_embedded;     /* chunks whose vectors were computed */
    struct buffer metadata; /* of the document at hand */
    struct metadata_limits limits;
    /* Chunks that wait: their text lies back to back. */
    struct buffer waiting;
    size_t ends[BATCH_CHUNKS], sizes[BATCH_CHUNKS]; /* sizes: without what stands over them */
    int n_waiting;
    float *vectors;            /* [BATCH_CHUNKS, dim] */
    struct sparse_rows sparse; /* of the same chunks */
};

static inline enum status build_check_interrupted(struct error *e) {
    return index_interrupted ? error_set(e, STATUS_CANCELLED, "interrupted") : STATUS_OK;
}
/* Counts a document that was put into Milvus: what builder->group calls. */
enum status build_take_put(void *context, const struct document_put *put, struct error *e);

/* Opens tokenizer, embedders and collection, after checking that the embedders fit into memory. On
 * failure too they are to be closed. */
enum status build_open_parts(struct builder *builder, const struct config *config, struct error *e);
/* An index that cannot be made of these files is refused before they are embedded, which can take
 * hours; so is one that does not fit into memory, by what the survey of the files guesses. */
enum status build_check_index(struct builder *builder, struct error *e);
enum status build_check_memory(const struct builder *builder, struct error *e);
