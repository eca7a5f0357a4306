/* server/host/options/server_options.c: rows of the server. See server_options.h. */
#include "server/host/options/server_options.h"

static const struct json_choice operations_choices[] = {{"auto", OPERATIONS_AUTO},
                                                        {"open", OPERATIONS_OPEN},
                                                        {"local", OPERATIONS_LOCAL},
                                                        {"key", OPERATIONS_KEY},
                                                        {NULL, 0}};

static const struct json_choice sharing_choices[] = {
    {"key", PREFIXES_OF_KEY}, {"filter", PREFIXES_OF_FILTER}, {NULL, 0}};

static const struct json_choice drafts_choices[] = {
    {"off", DRAFTS_OFF}, {"on", DRAFTS_ON}, {"always", DRAFTS_ALWAYS}, {NULL, 0}};

static const struct json_field prefix_fields[] = {
    {"path", JSON_TEXT, JSON_AT(struct prefix_path, path), .required = true},
};
static const struct json_table prefix_table = JSON_TABLE(prefix_fields);
static const struct json_field prefix_item = {"prefix", JSON_STRUCT, .table = &prefix_table};

static const struct option_row server_rows[] = {
    OPTION_TEXT(struct server_settings, host, "127.0.0.1", "address to listen on"),
    OPTION_INT(struct server_settings, port, 8080, 0, 65535,
               "TCP port; 0: any free one, printed at start"),
    OPTION_INT(struct server_settings, max_sequences, 8, 1, 4096,
               "sequences decoded together in one step"),
    OPTION_INT(struct server_settings, max_context, 0, 0, 1 << 24,
               "tokens per sequence, prompt and answer; 0: the model's own limit, 4096 at most "
               "where positions have no "
               "end (RoPE)"),
    OPTION_INT(struct server_settings, max_step_tokens, 512, 1, 1 << 20,
               "prompt tokens processed in one step"),
    OPTION_CHOICE(struct server_settings, drafts, DRAFTS_ON, drafts_choices,
                  "tokens of an answer that repeats what was read are guessed and computed "
                  "together, where that is faster; the answer is the same; always: whatever it "
                  "costs, for tests and measurements"),
    OPTION_INT(struct server_settings, max_picture_patches, 5120, 16, 1 << 16,
               "patches of a picture for models that read pictures of any size; a larger picture "
               "is made smaller"),
    OPTION_INT(
        struct server_settings, prefix_cache_mb, -1, -1, 1 << 24,
        "megabytes of keys, values and states kept of prompts and answers, for prompts that begin "
        "alike; 0: none; -1: "
        "half of what running sequences may take"),
    OPTION_CHOICE(struct server_settings, prefix_sharing, PREFIXES_OF_KEY, sharing_choices,
                  "whose kept prompts a prompt takes over: those of its key alone, or those of all "
                  "keys with its "
                  "filter, and without one of all that have none: what others asked then shows in "
                  "cached_tokens and "
                  "in the time"),
    OPTION_STRUCTS(struct server_settings, prefixes, &prefix_item, sizeof(struct prefix_path), true,
                   "files whose text many prompts begin with, each {\"path\"}: computed at the "
                   "start and never given "
                   "up; FILE.json is a chat's first messages"),
    OPTION_PATH(struct server_settings, prefix_folder,
                "folder that keeps the rows of server.prefixes from one start to the next; empty: "
                "none does"),
    OPTION_PATH(
        struct server_settings, cache_folder,
        "folder that keeps rows of prompts and answers from one start to the next: texts of "
        "clients, in files for the server's user alone; empty: none does"),
    OPTION_INT(struct server_settings, cache_folder_mb, 4096, 1, 1 << 24,
               "megabytes of files in server.cache_folder; the least recently used leave"),
    OPTION_INT(struct server_settings, max_queue, 64, 0, 1 << 20,
               "requests waiting for a sequence; more are refused with 503"),
    OPTION_INT(
        struct server_settings, request_threads, 4, 1, 256,
        "threads that read requests and write answers; one client has at most all but one of them"),
    OPTION_INT(struct server_settings, max_requests, 256, 1, 1 << 20,
               "requests waiting for one of server.request_threads; more are refused with 503"),
    OPTION_INT(struct server_settings, max_body_bytes, 4 << 20, 1024, 1 << 30,
               "bytes of one request body"),
    OPTION_INT(struct server_settings, max_upload_text, 64 << 20, 1024, 1 << 30,
               "bytes of text that the files of one upload may have together, unpacked"),
    OPTION_INT(struct server_settings, max_connections, 256, 1, 65536,
               "open connections; idle ones are closed when others wait"),
    OPTION_INT(struct server_settings, max_client_connections, 0, 0, 65536,
               "open connections of one address; the requests of more are refused with 429; 0: "
               "server.max_connections"),
    OPTION_INT(struct server_settings, max_listeners, 64, 0, 65536,
               "connections of MCP clients that wait for changes of the documents, of which a key "
               "has a quarter; never more than half of server.max_connections"),
    OPTION_INT(struct server_settings, max_sessions, 1000, 1, 1 << 20,
               "sessions of MCP clients of versions before 2026-07-28; more are refused with 503"),
    OPTION_INT(struct server_settings, session_timeout, 3600, 1, 86400 * 365,
               "seconds without a request after which such a session ends"),
    OPTION_INT(struct server_settings, request_timeout, 0, 0, 86400,
               "seconds after which a request is given up, with 503 or as the last event of its "
               "stream; 0: never"),
    OPTION_INT(struct server_settings, max_prompts, 16, 1, 4096, "prompts in one request"),
    OPTION_INT(struct server_settings, max_inputs, 2048, 1, 1 << 20,
               "texts in one request for embeddings or a ranking"),
    OPTION_INT(struct server_settings, max_choices, 64, 1, 4096,
               "answers in one request: its prompts times n or best_of"),
    OPTION_INT(struct server_settings, max_responses, 1000, 0, 1 << 20,
               "responses (POST /v1/responses) that are stored for each key, in memory; the oldest "
               "go; 0: none is"),
    OPTION_INT(struct server_settings, max_response_mb, 64, 1, 1 << 20,
               "megabytes of them, with the conversations that they end"),
    OPTION_INT(struct server_settings, response_hours, 24, 1, 24 * 365,
               "hours that a response is stored"),
    OPTION_INT(struct server_settings, max_vector_stores, 100, 1, 10000,
               "vector stores (POST /v1/vector_stores) of each key"),
    OPTION_INT(struct server_settings, max_biases, 1024, 0, 1 << 20,
               "tokens of logit_bias in one request"),
    OPTION_INT(struct server_settings, max_stops, 16, 0, 1024, "stop strings in one request"),
    OPTION_INT(struct server_settings, max_logprobs, 20, 0, 1024,
               "alternatives per token in logprobs"),
    OPTION_INT(struct server_settings, connection_timeout, 60, 1, 86400,
               "seconds a connection may idle"),
    OPTION_INT(struct server_settings, head_timeout, 20, 1, 86400,
               "seconds that request line and headers of one request may take"),
    OPTION_INT(struct server_settings, min_body_rate, 500, 0, 1 << 30,
               "bytes per second that a body must bring, on average over each server.head_timeout "
               "seconds; 0: any"),
    OPTION_INT(struct server_settings, drain_delay, 0, 0, 86400,
               "seconds that SIGTERM leaves between /readyz saying no and requests being refused"),
    OPTION_INT(struct server_settings, drain_timeout, 30, 0, 86400,
               "seconds that SIGTERM waits for running requests"),
    OPTION_BOOL(struct server_settings, page, true, "GET / shows a page to ask by hand"),
    OPTION_TEXTS(struct server_settings, cors_origins,
                 "origins whose pages may use the server from a browser, such as "
                 "https://example.org; *: all"),
    OPTION_TEXTS(struct server_settings, hosts,
                 "names that a server without keys goes by, as requests have them in Host: "
                 "example.org, *.example.org, "
                 "at any port or the one behind \":\"; loopback names and all addresses are known "
                 "without them"),
    OPTION_PATH(struct server_settings, keys_file,
                "hashes of the keys that clients need, made by --new-key; empty: none is needed; "
                "SIGHUP reads it again"),
    OPTION_BOOL(
        struct server_settings, require_keys, false,
        "a start without server.keys_file is refused where other machines reach the server"),
    OPTION_CHOICE(struct server_settings, operations, OPERATIONS_AUTO, operations_choices,
                  "who reads /health, /metrics, /version and /openapi.json: all, this machine, or "
                  "keys that say so; auto: "
                  "such keys where server.keys_file is set, else all"),
    OPTION_PATH(struct server_settings, tls_certificate,
                "PEM file of the certificate, and of those up to its authority; empty: no TLS; "
                "SIGHUP reads it again"),
    OPTION_PATH(struct server_settings, tls_key, "PEM file of the certificate's key"),
    OPTION_TEXTS(struct server_settings, image_urls,
                 "hosts whose pictures requests may name by http: and https: URLs: example.org, "
                 "*.example.org, or an "
                 "address, at a port behind \":\" or the usual one; empty: none"),
    OPTION_INT(struct server_settings, image_bytes, 16 << 20, 1024, 1 << 30,
               "bytes of all pictures that are fetched for one request"),
    OPTION_INT(struct server_settings, image_timeout, 10, 1, 3600,
               "seconds that fetching a picture may take, redirections included"),
    OPTION_TEXTS(struct server_settings, allow,
                 "networks whose clients are answered, such as 10.0.0.0/8; empty: all"),
};
const struct option_section server_section = {"server", server_rows, (int)ARRAY_COUNT(server_rows)};
