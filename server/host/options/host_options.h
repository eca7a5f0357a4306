/* server/host/options/host_options.h: the options of what the host opens: models, ranks,
 * collections and embedders. Strings are owned and never NULL; an empty path means "not given". */
#pragma once

#include "server/host/options/retrieval_choice.h"

enum model_role { ROLE_DECODER, ROLE_EMBEDDER };

/* A model beside model.path. */
struct other_model {
    char *path;
    char *name; /* as model.name */
    int role;   /* enum model_role */
};

struct model_settings {
    char *path;             /* folder with config.json, safetensors, tokenizer; or a GGUF file */
    char *name;             /* the id that /v1/models shows; empty: the folder's name */
    char *device;           /* "cpu" */
    int dtype;              /* enum model_dtype; auto: as stored */
    int cache_dtype;        /* enum model_dtype of keys and values */
    bool sampling_defaults; /* requests get those of the folder's generation_config.json */
    int threads;            /* CPU threads of all ranks of this process; 0: as many as it may use */
    struct json_list others; /* of struct other_model */
};
extern const struct option_section model_section;

struct parallel_settings {
    int tensor;           /* ranks that share every layer */
    int pipeline;         /* stages that the layers are cut into */
    int micro_batch_rows; /* rows of a step that stages hand on at once; 0: all */
    int comm;             /* enum comm_kind: what a rank is and how they talk */
    int timeout;          /* seconds that a rank waits for another */
    char *rendezvous;  /* host:port where ranks started by hand find rank 0; empty: they are not */
    char *secret_file; /* with what ranks show that they belong together */
    int rank;          /* which of them this process is */
    char *host;        /* the address at which the others reach it; empty: found out */
};
extern const struct option_section parallel_section;

/* Rights of clients over the documents of the collection. */
enum documents_access { DOCUMENTS_OFF, DOCUMENTS_READ, DOCUMENTS_WRITE, DOCUMENTS_AUTO };

/* Whether a request whose collection does not answer fails. */
enum collection_away { AWAY_FAIL, AWAY_WRITE_WITHOUT };

struct retrieval_settings {
    struct retrieval_choice
        choice;              /* where a request does not say; its rows are a section of their own */
    char *collection;        /* folder made by retro-index; empty: no collection */
    char *milvus_token_file; /* what a collection in Milvus is opened with; empty: nothing */
    char *milvus_authority;  /* certificates that its server's is checked against; empty: the
                                system's */
    int milvus_consistency;  /* enum milvus_consistency */
    double milvus_seconds;   /* of an operation, all attempts together */
    int milvus_attempts;
    int away;                /* enum collection_away */
    int documents;           /* enum documents_access */
    char *password_file;     /* of retro-index: passwords of PDF files, one a line; empty: none */
    int keep_files;          /* enum keep_files (retrieval/kept/kept_file.h) */
    int compact_after;       /* chunks that came or went; 0: never */
    int upload_seconds;      /* that reading a file of a request may take */
    int upload_readers;      /* such files that are read at once */
    bool ocr;                /* their pages that are pictures are read by OCR */
    char *ocr_languages;     /* "eng+deu"; empty: those that are installed */
    int page_seconds;        /* that OCR may take for a page */
    char *template;          /* a passage in a prompt (server/host/prompt/passages.h) */
    char *again;             /* one that stands in an earlier turn of it */
    int prompt_tokens;       /* of all passages before one prompt */
    int conversation_tokens; /* of those of its earlier turns */
    int conversations_mb;    /* of what is known of conversations */
    int rewrite_tokens;      /* that a rewritten question may have */
    int rewrite_context;     /* of turns that are read for it, and of the question */
    double order_distance;   /* of scores, up to which one passage may go before another */
    int prompt_pictures;     /* of those, seen as pictures */
    int min_every;           /* the fewest that a request may ask for */
    char *embedder; /* sentence-transformers folder; empty: as the collection's MANIFEST says */
    char *picture_embedder;     /* of pictures alone; empty: as the collection's MANIFEST says */
    int embedder_dtype;         /* enum model_dtype */
    int embedder_dimensions;    /* of a vector; 0: all that the embedder gives */
    int embedder_tokens;        /* of a text; 0: as the embedder's folder says */
    char *reranker;             /* folder of a cross-encoder; empty: none */
    int rerank_candidates;      /* hits that the reranker reads */
    int reranker_tokens;        /* of a query with a text; 0: as the reranker's folder says */
    char *reranker_instruction; /* that it judges by; empty: as its model card has it */
    char *query_prompt; /* before a text that is searched with; empty: as the embedder's folder says
                         */
    char *document_prompt;   /* before a chunk */
    char *device;            /* "cpu" or "cuda:N": where the index is searched */
    int max_k;               /* largest k a request may ask for */
    int max_neighbors;       /* of a chunk, for cross attention; 0: as many as it usually reads */
    int max_excluded;        /* documents that a request may leave out */
    int max_metadata_values; /* of one document */
    int max_metadata_bytes;  /* of one document, as JSON */
    int max_filter_bytes;    /* of a request's filter, as JSON */
    char *filter;            /* of all searches, as JSON; empty: none */
    int grid;                /* enum grid_mode */
    int threads;             /* CPU threads of embedding and search; 0: as model.threads */
};
extern const struct option_section retrieval_section;
