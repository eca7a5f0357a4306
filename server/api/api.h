/* server/api/api.h: what requests mean. A request comes in as method, path and body, an answer goes
 * out; the HTTP library is not seen here, the engine only through sequences. */
#pragma once

#include "retrieval/kept/kept_file.h"
#include "retro/chat/chat.h"
#include "server/access/address.h"
#include "server/access/keyring.h"
#include "server/access/pages.h"
#include "server/access/principal.h"
#include "server/api/core/failure.h"
#include "server/api/core/request_log.h"
#include "server/api/fields/completion_fields.h"
#include "server/api/fields/search_fields.h"
#include "server/documents/document_thread.h"
#include "server/documents/page_thread.h"
#include "server/host/options/config.h"
#include "server/host/options/host_options.h"
#include "server/host/options/retrieval_choice.h"
#include "server/pictures/picture_thread.h"
#include "server/reading/embedding_thread.h"
#include "server/schedule/engine.h"

struct conversations;
struct grammars;
struct json_writer;
struct kept;
struct document_jobs;
struct mcp;
struct stores;
struct tools;

/* A model that requests may name, and what serves it. Everything is borrowed, and constant while
 * the server runs. */
struct served_model {
    const char *id;
    const char
        *fingerprint; /* of the model and of how it computes: the same one, the same answers */
    const struct model_info *info;
    const struct tokenizer *tokenizer;
    int eod;                                   /* begins an empty text and pads others, -1: none */
    struct end_ids ends;                       /* what ends a text */
    const struct chat *chat;                   /* its chat templates, NULL: it has none */
    const struct picture_input *picture_input; /* NULL: it reads no pictures */
    struct picture_thread *picture_thread;     /* for it, and for its collection's embedder */
    struct engine *engine;
    struct grammars *grammars;
    struct retrieval_thread *retrieval; /* NULL: the model has no collection of its own */
    struct retriever *retriever;        /* likewise */
    const struct embedder *seer;   /* likewise: reads the pictures that are sought by, if it sees */
    struct collection *collection; /* likewise */
    const char *collection_name;   /* its folder, or its address in Milvus */
    bool has_collection;           /* the configuration names one, whether or not it is open yet */
    struct document_thread *document_thread; /* likewise */
    struct kept_files *files;                /* likewise: those of its documents */
    struct page_thread *page_thread;         /* likewise: draws their pages */
    struct filter *filter;                   /* of all its searches; NULL: none */
    enum documents_access documents;         /* what clients may do with its documents */
    int upload_bytes;                        /* of text that the files of a request may have */
    struct request_limits limits;
    int slots;                      /* prompts that are written at once */
    struct retrieval_choice choice; /* when a request does not say; its mode is never auto */
    int rerank_candidates;          /* hits that the reranker reads; 0: there is none */
    int usual_neighbors,
        usual_passages;      /* of a chunk, and of a prompt, where the choice's k is 0 */
    bool attends;            /* it has chunked cross attention, and can read its collection by it */
    int passage_tokens;      /* of the passages of a turn, rows of their pictures included */
    int conversation_tokens; /* of those of all earlier turns in a prompt */
    struct conversations *conversations; /* what chats with the model have read */
    struct {
        int tokens, context; /* of a rewritten question, and of the turns that it is written by */
    } rewrite;
    double order_distance; /* of scores, where passages may go before others (passage_order.h) */
};

/* A model that embeds texts. Likewise. */
struct served_embedder {
    const char *id;
    const struct embedder *embedder;
    const struct tokenizer *tokenizer;
    struct embedding_thread *thread;
    struct picture_thread *picture_thread;
    struct request_limits limits;
};

/* Everything is borrowed, and constant while the server runs but for `connections`, `leaving`,
 * `draining`, `traffic` and `responses`. */
struct api {
    const struct served_model
        *models; /* [n_models], at least one; the first is meant when none is named */
    int n_models;
    const struct served_embedder
        *embedders; /* [n_embedders]; the first is meant when none is named */
    int n_embedders;
    const struct served_embedder *reranker; /* NULL: there is none */
    struct request_limits largest;          /* of any model */
    struct request_limits largest_embedder; /* of any embedder */
    const char *const *origins;             /* [n_origins] whose pages may ask; "*": all may */
    int n_origins;
    struct host_rules
        hosts; /* what the server goes by where there are no keys, beside its addresses */
    struct keyring *keys;              /* NULL: none is asked for */
    enum operations_access operations; /* never auto */
    struct network *networks;          /* [n_networks] whose clients are answered; none: all are */
    int n_networks;
    bool local;                    /* only clients on this machine reach the server */
    bool page;                     /* the page is shown */
    bool logs_bodies;              /* log.prompts */
    int64_t created;               /* seconds since 1970 of the start */
    int request_timeout;           /* seconds; 0: any */
    const char *scheme;            /* "http" or "https": how clients reach the server */
    struct mcp *mcp;               /* its door for MCP (server/doors/mcp); NULL: it has none */
    struct tools *tools;           /* of others (server/tools); NULL: none are called */
    atomic_int connections;        /* that are open */
    atomic_bool leaving, draining; /* no longer ready; and refusing requests */
    struct traffic *traffic;       /* what was asked and answered so far (traffic.h) */
    struct document_jobs *jobs;    /* uploads that were answered at once */
    struct kept *responses;        /* that were stored (server/doors/kept) */
    struct stores *stores;         /* OpenAI's vector stores (server/doors/stores); NULL: none */
};

struct api_request {
    const char *method, *path;
    const char *content_type;      /* NULL: none */
    const char *origin;            /* of the page that asks, NULL: none does */
    const char *if_none_match;     /* what the client has of the answer, NULL: it does not say */
    const char *id;                /* of the request, for failures; NULL: it has none */
    const char *anthropic_version; /* the header; NULL: the client is not Anthropic's */
    const char *body;
    size_t size;
    const struct query_argument *arguments; /* [n_arguments], of the query string */
    int n_arguments;
    struct principal principal; /* who asks; borrowed */
    /* The value of any header, for doors whose protocols have their own; NULL: it is not there. */
    const char *(*header)(const void *headers, const char *name);
    const void *headers;
};

/* The member "chat_template": its text, null where chat is NULL or has none. */
void put_chat_template(struct json_writer *w, const struct chat *chat);

/* Never NULL: what is wrong with a request is an answer too. `waker` is called until the answer is
 * closed. */
struct answer *api_open(struct api *api, const struct api_request *request, struct waker waker);

/* A request's head, as far as it says who asks. */
struct api_head {
    const char *method, *path;
    const char *authorization, *api_key; /* headers; NULL: none */
    struct net_address address;
    struct page_head page;
};

/* A request that was let in. */
struct admission {
    struct principal principal; /* with a reference */
    bool counted;               /* against the limits of its key */
};

/* Before the body is read. False, with *failure set to 401, 403 or 429, when the request is not let
 * in. */
bool api_admit(struct api *api, const struct api_head *head, struct admission *out,
               struct failure *failure);
/* It counts no more against the limits of its key. */
void api_release(struct admission *admission);
/* It is over. */
void api_leave(struct admission *admission);
/* A refusal that does not come from api_open; of the request its path, origin and id are read.
 * Frees the failure. */
struct answer *api_refuse(const struct api *api, const struct api_request *request,
                          struct failure *failure);

/* A request is over, however it ended: counts it, and writes its line of the log. */
void api_note(struct api *api, const struct request_record *record);

/* Whether a path is an operators' endpoint, which answers also when all connections are busy. */
bool api_path_is_for_operators(const char *path);

/* The value of a field of the query string, NULL: it has none of that name. */
const char *api_argument(const struct api_request *request, const char *name);

/* models.c: what requests name. The first one when it is NULL; NULL or false, with *failure set,
 * when there is none. */
const struct served_model *api_model(const struct api *api, const char *id,
                                     struct failure *failure);
const struct served_embedder *api_embedder(const struct api *api, const char *id,
                                           struct failure *failure);

/* The tokenizer of a model or an embedder. */
struct served_tokenizer {
    const char *id;
    const struct tokenizer *tokenizer;
    int eod;
    const struct request_limits *limits;
    const struct chat *chat; /* NULL: it holds no conversations */
};
bool api_tokenizer(const struct api *api, const char *id, struct served_tokenizer *out,
                   struct failure *failure);

/* Handlers: each opens the answer of one route, or returns NULL with *f set when there is nothing
 * to wait for. */
typedef struct answer *route_handler(struct api *a, const struct api_request *r, struct waker waker,
                                     struct failure *f);
route_handler completions_open; /* completions.c */
route_handler chat_open_answer; /* chat.c */
route_handler search_open;      /* search.c */
route_handler search_picture_open;
route_handler tables_list, tables_query;                       /* tables.c */
route_handler documents_list, document_show, document_picture; /* documents_look.c */
route_handler jobs_list, job_show, job_cancel;                 /* jobs.c */
route_handler scans_list;                                      /* scans.c */
route_handler documents_delete;                                /* documents_delete.c */
route_handler document_file;                                   /* document_file.c */
/* Whether a path below /v1/documents asks for a file: it ends so, whatever the id holds. */
bool document_path_is_file(const char *path);
route_handler document_page; /* document_page.c */
bool document_path_is_page(const char *path);
bool document_id_is_page(const char *id);                         /* it ends as such a path does */
route_handler documents_post, document_put_open, document_delete; /* documents.c */
/* How far an answer of documents_post is: so many chunks of the document are embedded. */
void documents_told(struct answer *answer, int *n_embedded, int *n_chunks);
/* The right of a client to the documents of the first model: the lesser of the server's and its
 * key's. */
enum documents_access documents_right(const struct api *api, const struct principal *who);
/* The model whose documents a client may look at or change; NULL: *failure says why it may not. */
const struct served_model *documents_model(struct api *api, const struct principal *who,
                                           enum documents_access access, struct failure *failure);
route_handler embeddings_open;                                /* embeddings.c */
route_handler embed_sparse_open;                              /* embed_sparse.c */
route_handler rerank_open;                                    /* rerank.c */
route_handler models_list, model_show;                        /* models.c */
route_handler tokenize_open, detokenize_open, tokenizer_info; /* tokens.c */
route_handler health_open, live_open, ready_open;             /* health.c */
route_handler metrics_open;                                   /* metrics.c */
route_handler props_open, version_open;                       /* info.c */
route_handler openapi_open;                                   /* openapi.c */
route_handler root_open;                                      /* info.c */
route_handler responses_open, input_tokens_open;              /* server/doors/responses */
route_handler response_show, response_delete, response_items, response_cancel;
route_handler stores_list, vector_store_show, vector_store_search; /* server/doors/stores */
route_handler store_create, store_modify, store_delete;
route_handler files_list, file_show, file_content, file_upload, file_delete;
route_handler store_files, store_file, store_content, store_file_add;
route_handler store_file_modify, store_file_remove;
route_handler file_batch_create, file_batch_show, file_batch_cancel, file_batch_files;
route_handler ollama_chat_open, ollama_generate_open; /* server/doors/ollama */
route_handler ollama_embed_open, ollama_embeddings_open;
route_handler ollama_tags, ollama_ps, ollama_version, ollama_show, ollama_refuse;
route_handler messages_open, count_tokens_open; /* server/doors/messages */
route_handler page_open;                        /* page.c */
route_handler mcp_post, mcp_get, mcp_delete;    /* server/doors/mcp */
