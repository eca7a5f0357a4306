/* server/host/options/server_options.h: the options of the server: where it listens, and its
 * limits. */
#pragma once

#include "config/options/options.h"

/* Clients that may read /health, /metrics, /version and /openapi.json. */
enum operations_access { OPERATIONS_OPEN, OPERATIONS_LOCAL, OPERATIONS_KEY, OPERATIONS_AUTO };

/* The keys whose kept prompts a prompt takes over. */
enum prefix_sharing { PREFIXES_OF_KEY, PREFIXES_OF_FILTER };

/* Whether tokens are guessed ahead of their rows (server/schedule/drafts.h). */
enum drafts_choice {
    DRAFTS_OFF,
    DRAFTS_ON,    /* where it pays */
    DRAFTS_ALWAYS /* wherever there is anything to guess */
};

/* A file of server.prefixes. */
struct prefix_path {
    char *path;
};

/* Strings are owned and never NULL. */
struct server_settings {
    char *host;
    int port;                /* 0: any free port, printed at start */
    int max_sequences;       /* sequences decoded together in one step */
    int max_context;         /* tokens per sequence, prompt and answer; 0: check_context decides */
    int max_step_tokens;     /* prompt tokens processed in one step */
    int drafts;              /* enum drafts_choice */
    int max_picture_patches; /* of one picture, for models that read any size */
    int prefix_cache_mb; /* of keys and values that later prompts may take over; -1: engine_limits
                            decides */
    int prefix_sharing;  /* enum prefix_sharing */
    struct json_list
        prefixes;        /* of struct prefix_path: texts whose rows are there from the start */
    char *prefix_folder; /* keeps these rows; empty: they are computed at each start */
    char *cache_folder;  /* keeps rows of prompts and answers; empty: they end with the process */
    int cache_folder_mb; /* of files in it, at most */
    int max_queue;       /* requests waiting for a sequence; more get 503 */
    int request_threads; /* that read requests and write answers */
    int max_requests;    /* that wait for such a thread; more get 503 */
    int max_body_bytes;
    int max_upload_text; /* bytes that the files of one request may unpack to */
    int max_connections;
    int max_prompts;               /* prompts in one request */
    int max_inputs;                /* texts in one request for embeddings or a ranking */
    int max_choices;               /* answers in one request: its prompts times n */
    int max_stops;                 /* stop strings in one request */
    int max_biases;                /* tokens of logit_bias in one request */
    int max_logprobs;              /* alternatives per token */
    int connection_timeout;        /* seconds a connection may idle */
    int head_timeout;              /* seconds that request line and headers may take */
    int min_body_rate;             /* bytes per second that a body must bring; 0: any */
    int drain_timeout;             /* seconds SIGTERM waits for running requests */
    bool page;                     /* GET / shows the page */
    struct json_list cors_origins; /* of char *: whose pages may ask */
    struct json_list hosts; /* of char *: names that requests without keys may call the server by */
    int max_client_connections;                       /* of one address; 0: max_connections */
    int max_listeners, max_sessions, session_timeout; /* of MCP clients; the last in seconds */
    int request_timeout;                              /* seconds for one request; 0: any */
    char *keys_file;                                  /* empty: no keys are asked for */
    int drain_delay;   /* seconds between the loss of readiness and the refusal of requests */
    bool require_keys; /* no start without keys where other machines reach the server */
    int operations;    /* enum operations_access */
    char *tls_certificate, *tls_key; /* both or none */
    struct json_list allow;          /* of char *: networks whose clients are answered; none: all */
    struct json_list
        image_urls; /* of char *: hosts that pictures are fetched from; none: no pictures are */
    int image_bytes, image_timeout; /* of the pictures of one request; and of one */
    int max_vector_stores;          /* of one key */
    int max_responses, max_response_mb, response_hours; /* that are stored for one key */
};
extern const struct option_section server_section;
