/* tools/index/index_named.h: the documents that words of a command line name. */
#pragma once

#include "tools/index/index.h"

/* Zero-initialise; free when done. */
struct named_documents {
    struct named_document {
        char *id, *path;
    } * documents; /* [n] each once, in the order of a walk */
    int n, capacity;
    bool several; /* a word or the filter names a folder, a file of several documents or a group */
};

/* A word is the path that list prints, that of a file that holds several documents, a folder with a
 * slash at its end, the path of a file or folder on the disk that documents came from, or an id.
 * `filter` (JSON, docs/filters.md; NULL: none) names all documents that it allows where there are
 * no words, else those of the words' that it allows. STATUS_NOT_FOUND where a word names none. */
enum status named_documents_find(struct named_documents *named, struct collection *collection,
                                 char **words, int n, const char *filter, struct error *e);
void named_documents_free(struct named_documents *named);
