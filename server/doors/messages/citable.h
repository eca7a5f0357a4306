/* server/doors/messages/citable.h: documents and search results of a request, in the passages that
 * an answer may cite: each has a number, by which the model names it. */
#pragma once

#include "retrieval/extract/extract.h"
#include "server/api/core/failure.h"
#include "server/doors/shared/conversation.h"

/* How a citation tells where it stands. */
enum citable_kind { CITES_CHARACTERS, CITES_PAGES, CITES_BLOCKS, CITES_RESULT };

struct citable {
    enum citable_kind kind;
    struct text_span text;
    struct text_span title, source; /* of its document; text NULL: it has none */
    int document;                   /* among those of the request, from 0; or the search result */
    int64_t start, end;             /* characters, pages or blocks; the end is exclusive */
};

/* Zeroed at first. */
struct citable_list {
    struct citable *all; /* [n], in the order of their numbers, from 1 */
    int n, capacity;
    bool enabled;                /* passages get numbers */
    int n_documents, n_results;  /* read so far */
    struct document_text *texts; /* [n_texts] of files, which passages are parts of */
    int n_texts;
};

/* Whether a document or search result of the messages is to be cited. */
bool citable_is_wanted(const struct json *messages);
/* The model is told this where passages have numbers. */
extern const char citable_words[];

bool citable_block_is(const struct json *block);
/* Says the document or search result in the open turn, and notes its passages. */
bool citable_read(struct citable_list *list, const struct json *block,
                  struct conversation *conversation, struct failure *failure);
void citable_free(struct citable_list *list);
