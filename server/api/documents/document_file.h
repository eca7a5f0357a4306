/* server/api/documents/document_file.h: the file that a document came from, for those who know the
 * document by another address. */
#pragma once

#include "server/api/api.h"

struct document_file_ask {
    const struct served_model *model;
    char *id;         /* of the document; taken */
    const char *lost; /* the field at fault where there is none; NULL: none is */
    /* Documents that are as good as gone; NULL: there are none. */
    bool (*hides)(const struct stored_document *document);
};
/* The answer of GET /v1/documents/ID/file, by the request's method and headers. */
struct answer *document_file_ask(const struct api_request *request,
                                 const struct document_file_ask *ask, struct waker waker,
                                 struct failure *failure);
