/* server/host/documents/known_texts.h: the texts that a collection has, by their hash: a text that
 * is in already, under whatever name, is not embedded again. For programs that read files: whoever
 * may put documents and not read all of them must not learn from the time that it takes which texts
 * there are. */
#pragma once

#include <string.h>

#include "config/base/key_set.h"
#include "server/host/documents/document_cutter.h"

/* A document that has a text. */
struct known_text {
    char *id;
    int64_t first_chunk; /* in the snapshot; -1: it came later, or has no number there */
    int64_t n_chunks;
};

/* Zero-initialise. */
struct known_texts {
    struct key_set places;   /* of a text: number + 1 of its document */
    struct known_text *list; /* [n] */
    int n, capacity;
    bool listed; /* all of the collection's are in it */
    struct snapshot
        *snapshot; /* as it was then: what goes from a folder meanwhile has its vectors */
};

/* Whether two documents are embedded alike: they have the same text, marks and title, and where
 * they have no title their path is in its place. */
bool known_text_equals(const struct collection_document *left,
                       const struct collection_document *right);
/* A document by its id, as clients of the filter (NULL: none) say it. */
struct known_place {
    const struct filter *filter;
    const char *id;
};
/* Takes the vectors of the document that the cutter has just cut from the one there, as the
 * collection has it now. STATUS_NOT_FOUND where it is gone or embedded in another way,
 * STATUS_UNSUPPORTED where the index gives no vectors back. */
enum status known_text_take(struct collection *collection, const struct known_place *place,
                            struct document_cutter *cutter,
                            const struct collection_document *document, struct error *e);
/* Takes the vectors of the document that the cutter has just cut from one that is embedded alike;
 * *found: there is one. The collection is looked through at the first call. */
enum status known_texts_find(struct known_texts *texts, struct collection *collection,
                             struct document_cutter *cutter,
                             const struct collection_document *document, bool *found,
                             struct error *e);
/* A document of that id has the text from now on. */
void known_texts_add(struct known_texts *texts, struct text_span text, const char *id);
void known_texts_free(struct known_texts *texts);
