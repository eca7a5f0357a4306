/* server/host/documents/document_group.h: documents that are put into a collection together: by few
 * calls where it lies in Milvus. A collection in a folder takes each as it comes. */
#pragma once

#include "server/host/documents/document_cutter.h"
#include "server/host/documents/known_texts.h"

/* A document that waits, with copies of all that it is. */
struct grouped_document {
    struct collection_document document;
    float *vectors; /* NULL: it is to be cut and embedded */
    int n_embedded;
};

/* How a document fared: called for each, in order. A failure that it returns ends the flush. */
typedef enum status group_taker(void *context, const struct document_put *put, struct error *e);

struct document_group {
    struct document_cutter *cutter;
    struct collection *collection;
    struct known_texts
        *texts; /* vectors of equal texts are taken from these; NULL: all are computed */
    const atomic_bool *cancelled;
    group_taker *take;
    void *context;
    /* Those that wait. */
    struct grouped_document *list; /* [n] */
    int n, capacity;
    size_t bytes;
};

/* Adds a copy, and flushes when enough waits. The document is cut and embedded then, unless it is
 * there already. */
enum status group_add(struct document_group *group, const struct collection_document *document,
                      struct error *e);
/* Vectors of the document that the cutter has just cut: of an equal one that waits or is there,
 * else computed. Returns in *n_embedded how many were computed. STATUS_CANCELLED. */
enum status group_embed(struct document_group *group, const struct collection_document *document,
                        int *n_embedded, struct error *e);
/* As group_add, of one that the cutter has just cut and embedded. */
enum status group_add_embedded(struct document_group *group,
                               const struct collection_document *document, struct error *e);
/* Puts all that waits. Failures of documents are told to the taker; what is returned is the
 * taker's. */
enum status group_flush(struct document_group *group, struct error *e);
/* Gives up those that wait. */
void group_free(struct document_group *group);
