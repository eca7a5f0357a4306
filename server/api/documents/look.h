/* server/api/documents/look.h: answers that look at documents. A folder is in memory and looked at
 * once; Milvus is asked by the document thread. */
#pragma once

#include "server/api/api.h"

/* The beginning of the asker's own struct, which `free` frees. */
struct look {
    /* Appends the answer to `body`, wherever it is called: the answer is JSON unless `head` says
     * otherwise. */
    enum status (*run)(struct look *look, struct error *e);
    void (*head)(const struct look *look, struct answer *answer); /* once it has run; NULL: none */
    /* The pieces behind the body of an answer that streams; NULL: there are none. */
    enum answer_progress (*more)(struct look *look, struct buffer *out);
    void (*free)(struct look *look);
    struct buffer body;
    uint64_t length; /* bytes that `more` has in all */
    bool failed;
    struct error error;
    int http;         /* of a failure that is not the one of its status; 0: it is */
    const char *code; /* likewise */
    const char *lost; /* the field at fault where nothing is found; NULL: none is */
};
void look_free(struct look *look);

/* Takes the look. NULL with *failure set where it failed at once. */
struct answer *look_ask(struct look *look, const struct served_model *model, struct waker waker,
                        struct failure *failure);
