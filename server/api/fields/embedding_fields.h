/* server/api/fields/embedding_fields.h: the bodies of /v1/embeddings, /embed_sparse and /v1/rerank,
 * checked. */
#pragma once

#include "server/api/fields/prompt_fields.h"

enum embedding_format { EMBEDDING_FLOAT, EMBEDDING_BASE64 };
/* The texts that a text is to be compared with decide the prompt that an embedder puts before it.
 */
enum embedding_input { INPUT_PLAIN, INPUT_QUERY, INPUT_DOCUMENT };

struct embedding_request {
    char *model; /* NULL: not named */
    struct prompt_list inputs;
    int format;         /* enum embedding_format */
    int input_type;     /* enum embedding_input */
    int64_t dimensions; /* 0: all */
    int truncation;     /* the end of them that truncate takes: the right one alone is known */
    bool truncate;      /* texts that are too long lose their ends, and are not refused */
};
/* Of /v1/embeddings, and of /embed_sparse. */
extern const struct json_table embedding_table, embed_sparse_table;

/* By one of these tables. On false *failure is set; *request can be freed either way. */
bool embedding_request_parse(struct embedding_request *request, const struct json_table *table,
                             const char *body, size_t size, const struct request_models *models,
                             struct failure *failure);
void embedding_request_free(struct embedding_request *request);

struct rerank_request {
    char *model;
    struct request_prompt query;
    struct prompt_list documents; /* texts */
    int64_t top_n;                /* 0: all */
    bool return_documents;
};
extern const struct json_table rerank_table;
bool rerank_request_parse(struct rerank_request *request, const char *body, size_t size,
                          const struct request_models *models, struct failure *failure);
void rerank_request_free(struct rerank_request *request);
