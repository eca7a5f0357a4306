/* server/main.c: what exists, built and torn down in which order.
 *
 *   device, ranks, address, model -> tokenizer -> collection, embedder, retriever, retrieval thread
 *   -> engine -> other models (served_models.h) -> api -> HTTP
 *
 * Everything lives as long as the process. SIGTERM, SIGINT or SIGHUP (which reads files again where
 * there are such) ends it: no new connections, running requests are finished for up to
 * server.drain_timeout seconds, then all is closed in reverse order. A second signal ends the
 * waiting. */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "config/base/line.h"
#include "config/base/log.h"
#include "config/base/process.h"
#include "config/sandbox/sandbox.h"
#include "server/api/core/traffic.h"
#include "server/browser.h"
#include "server/cli.h"
#include "server/cli_check.h"
#include "server/documents/document_jobs.h"
#include "server/doors/kept/kept.h"
#include "server/doors/mcp/mcp.h"
#include "server/doors/stores/stores.h"
#include "server/host/check.h"
#include "server/host/other_models.h"
#include "server/http/http.h"
#include "server/http/listen.h"
#include "server/http/tls.h"
#include "server/mcp_command.h"
#include "server/served_models.h"
#include "server/service.h"
#include "server/tools/tools.h"

static const double last_lines_seconds = 1; /* that the end waits for whoever reads the log */

struct server {
    struct config config;
    int socket;       /* has the address until HTTP takes it over; -1: none */
    bool opens_page;  /* in a browser */
    bool handed_over; /* by the service manager, for which it listens on */
    struct served_models served;
    struct http_place place; /* of the socket */
    struct api api;
    struct tls *tls; /* NULL: plain HTTP */
    struct http *http;
};

/* The model. */

/* Once: what was taken stays. */
static enum status take_address(struct server *server, struct error *e) {
    const struct config *config = &server->config;
    if (server->socket >= 0) return STATUS_OK;
    if (http_reserve(config->server.max_connections, e) || service_socket(&server->socket, e))
        return e->status;
    server->handed_over = server->socket >= 0;
    if (!server->handed_over &&
        http_bind(config->server.host, config->server.port, &server->socket, e))
        return e->status;
    if (http_place_of(server->socket, &server->place, e)) return e->status;
    return cli_check_keys(config, &server->place, e);
}

/* Clients need the port first: a busy one is to be known before the model is loaded. The tokenizer
 * is read meanwhile.
 */
static enum status prepare_start(void *context, struct error *e) {
    struct server *server = context;
    if (take_address(server, e)) return e->status;
    return tokenizer_opening_start(&server->served.decoders[0].opening, server->config.model.path,
                                   e);
}

/* Documents are read for minutes, so a busy port is to be known before them, too. */
static enum status begin_documents(struct server *server, const struct quick_start *start,
                                   struct error *e) {
    if (start->n > 0 && take_address(server, e)) return e->status;
    return quick_start_begin(start, &server->config, e);
}

static enum status plan_sessions(void *context, const struct model_info *info,
                                 struct session_limits *limits, struct error *e) {
    const struct server *server = context;
    struct engine_options options;
    if (served_engine_options(&options, &server->config, info, e)) return e->status;
    *limits = engine_limits(&options, info);
    return STATUS_OK;
}

/* The parts that rank 0 has beside the model. */
static enum status plan_beside(void *context, const struct model_info *info,
                               struct backend *backend, struct budget_parts *parts,
                               struct error *e) {
    const struct config *config = &((const struct server *)context)->config;
    const struct budget_use sessions = {.limits = plan_sessions, .context = context};
    struct session_limits limits;
    if (plan_sessions(context, info, &limits, e)) return e->status;
    budget_add_pictures(parts, info, &limits);
    if (documents_measure(config, backend, parts, e)) return e->status;
    return other_models_measure(config, backend, &sessions, parts, e);
}

static enum status open_model(struct server *server, struct error *e) {
    const struct config *config = &server->config;
    struct budget_use budget = {.limits = plan_sessions, .beside = plan_beside, .context = server};
    struct opened_model_use use = {.start = prepare_start, .context = server, .budget = &budget};
    struct decoder_part *first = &server->served.decoders[0];
    if (config->model.path[0] == '\0')
        return error_set(
            e, STATUS_INVALID,
            "there is no model: retro-server MODEL DOCUMENTS, or model.path in --config "
            "FILE; see --help");
    if (opened_model_open(&first->opened, config, config->model.path, &use, e)) return e->status;
    first->path = config->model.path;
    first->name =
        config->model.name[0] ? xstrdup(config->model.name) : path_name(config->model.path);
    return STATUS_OK;
}

/* The service. */

static enum status open_parts(struct server *server, struct error *e) {
    const struct config *config = &server->config;
    struct error contradiction;
    if (check_limits(config, &contradiction)) log_warn("%s", contradiction.text);
    if (served_models_open_pictures(&server->served, config, e)) return e->status;
    if (decoder_part_open(&server->served.decoders[0], config, true, e) ||
        served_models_open_others(&server->served, config, e))
        return e->status;
    return STATUS_OK;
}

static enum status open_networks(struct api *api, const struct json_list *allow, struct error *e) {
    char *const *texts = allow->items;
    api->networks = xcalloc(allow->count, sizeof *api->networks);
    for (size_t i = 0; i < allow->count; i++) {
        if (network_parse(&api->networks[i], texts[i], e)) return e->status;
        api->n_networks++;
    }
    return STATUS_OK;
}

/* Metrics name keys. */
static enum operations_access operations_of(const struct server_settings *settings) {
    if (settings->operations != OPERATIONS_AUTO)
        return (enum operations_access)settings->operations;
    return settings->keys_file[0] ? OPERATIONS_KEY : OPERATIONS_OPEN;
}

/* Where vector stores are kept: beside the collection, where it is in a folder. */
static const char *stores_folder(const struct config *config) {
    const char *collection = config->retrieval.collection;
    bool folder = collection[0] && !collection_name_is_remote(collection);
    return folder ? collection : NULL;
}

static enum status open_api(struct server *server, struct error *e) {
    const struct server_settings *settings = &server->config.server;
    server->api = (struct api){.origins = settings->cors_origins.items,
                               .n_origins = (int)settings->cors_origins.count,
                               .page = settings->page,
                               .operations = operations_of(settings),
                               .local = server->place.local,
                               .scheme = settings->tls_certificate[0] ? "https" : "http",
                               .request_timeout = settings->request_timeout,
                               .logs_bodies = server->config.log.prompts,
                               .created = time(NULL),
                               .traffic = traffic_open(),
                               .jobs = document_jobs_open(),
                               .responses = kept_open((struct kept_limits){
                                   settings->max_responses, (size_t)settings->max_response_mb << 20,
                                   settings->response_hours * 3600})};
    if (settings->keys_file[0] && keyring_open(&server->api.keys, settings->keys_file, e))
        return e->status;
    if (server->api.keys)
        log_info("keys: %d, from %s", keyring_count(server->api.keys), settings->keys_file);
    if (open_networks(&server->api, &settings->allow, e)) return e->status;
    if (host_rules_open(&server->api.hosts, settings->hosts.items, settings->hosts.count, e))
        return e->status;
    if (served_models_serve(&server->served, &server->config, &server->api, e)) return e->status;
    struct stores_options stores = {.api = &server->api,
                                    .folder = stores_folder(&server->config),
                                    .max_stores = settings->max_vector_stores};
    if (stores_open(&server->api.stores, &stores, e)) return e->status;
    if (server->config.tools.mcp.count > 0 &&
        tools_open(&server->api.tools, &server->config.tools, e))
        return e->status;
    struct mcp_options options = {
        .api = &server->api,
        .max_listeners = min_int(settings->max_listeners, settings->max_connections / 2),
        .max_sessions = settings->max_sessions,
        .session_seconds = settings->session_timeout};
    return mcp_open(&server->api.mcp, &options, e);
}

static void log_certificate(struct server *server) {
    char text[400];
    tls_describe(server->tls, text, sizeof text);
    log_info("%s", text);
}

static enum status open_tls(struct server *server, struct error *e) {
    const struct server_settings *settings = &server->config.server;
    if (settings->tls_certificate[0] == '\0') return STATUS_OK;
    if (tls_open(&server->tls, settings->tls_certificate, settings->tls_key, e)) return e->status;
    log_certificate(server);
    return STATUS_OK;
}

static enum status open_http(struct server *server, struct error *e) {
    const struct config *config = &server->config;
    if (open_tls(server, e)) return e->status;
    struct http_options options = {
        .socket = server->socket,
        .shared = server->handed_over,
        .connections = {.max = config->server.max_connections,
                        .max_per_client = config->server.max_client_connections,
                        .idle_timeout = config->server.connection_timeout,
                        .head_timeout = config->server.head_timeout,
                        .min_body_rate = config->server.min_body_rate,
                        .encrypted = server->tls != NULL},
        .max_body_bytes = config->server.max_body_bytes,
        .request_threads = config->server.request_threads,
        .max_requests = config->server.max_requests,
        .api = &server->api,
        .tls = server->tls};
    server->socket = -1;
    if (http_open(&server->http, &options, e)) return e->status;
    log_info("listening on %s://%s", server->tls ? "https" : "http", server->place.text);
    return STATUS_OK;
}

/* Signals. They may reach any thread: libraries have some of their own before main begins. So each
 * is counted in a file that main waits for. */

static int signal_counter = -1;
static atomic_bool reload_wanted;

static void count_signal(int number) {
    int saved = errno;
    uint64_t one = 1;
    ssize_t n = write(signal_counter, &one, sizeof one);
    (void)number, (void)n;
    errno = saved;
}

/* SIGHUP, where there are files to be read again. */
static void count_reload(int number) {
    atomic_store(&reload_wanted, true);
    count_signal(number);
}

/* Until this is called signals end the process at once: there is nothing to finish. */
static enum status count_signals(bool reloads, struct error *e) {
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART}, hangup;
    struct sigaction reload = {.sa_handler = count_reload, .sa_flags = SA_RESTART};
    signal_counter = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    if (signal_counter < 0) return error_errno(e, "waiting for signals");
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    /* Under nohup the end of a terminal is to be ignored. */
    if (reloads)
        sigaction(SIGHUP, &reload, NULL);
    else if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    return STATUS_OK;
}

static void ignore_signals(void) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

static bool signal_within(int milliseconds) {
    struct pollfd pollfd = {.fd = signal_counter, .events = POLLIN};
    uint64_t one;
    int n;
    while ((n = poll(&pollfd, 1, milliseconds)) < 0 && errno == EINTR) continue;
    return n > 0 && read(signal_counter, &one, sizeof one) == sizeof one;
}

/* Files that are read again while the server runs; what cannot be used changes nothing. */

static bool server_reloads(const struct server *server) {
    return server->api.keys || server->config.server.tls_certificate[0];
}

static void server_reload(struct server *server) {
    struct error e;
    if (server->api.keys && keyring_reload(server->api.keys, &e))
        log_error("%s; the keys are as before", e.text);
    else if (server->api.keys)
        log_info("keys: %d, from %s", keyring_count(server->api.keys),
                 server->config.server.keys_file);
    if (server->tls && tls_reload(server->tls, &e))
        log_error("%s; the certificate is as before", e.text);
    else if (server->tls)
        log_certificate(server);
}

/* A signal that ends the server. */
static bool end_within(struct server *server, int milliseconds) {
    if (!signal_within(milliseconds)) return false;
    if (!atomic_exchange(&reload_wanted, false)) return true;
    server_reload(server);
    return false;
}

static enum status server_open(struct server *server, struct error *e) {
    if (open_parts(server, e) || open_api(server, e) || count_signals(server_reloads(server), e) ||
        open_http(server, e))
        return e->status;
    return STATUS_OK;
}

static void server_close(struct server *server) {
    tools_stop(server->api.tools);
    served_models_stop(&server->served);
    http_close(server->http);
    tools_close(server->api.tools);
    mcp_close(server->api.mcp);
    tls_close(server->tls);
    served_models_close(&server->served);
    traffic_close(server->api.traffic);
    kept_close(server->api.responses);
    document_jobs_close(server->api.jobs);
    stores_close(server->api.stores);
    keyring_close(server->api.keys);
    free(server->api.networks);
    host_rules_free(&server->api.hosts);
    if (server->socket >= 0) close(server->socket);
}

/* Everything is answered as before, but /readyz, so that balancers of load turn elsewhere; each
 * answer ends its connection. A socket of the service manager has a successor that takes new
 * connections at once. */
static void leave(struct server *server) {
    double end = time_now() + server->config.server.drain_delay;
    atomic_store(&server->api.leaving, true);
    if (server->handed_over) http_quiesce(server->http);
    if (server->config.server.drain_delay > 0)
        log_info("leaving: no longer ready, and answering as before");
    while (time_now() < end && !(server->handed_over && http_connections(server->http) == 0))
        if (end_within(server, 20)) return;
}

/* Requests end by themselves; those that do not are cancelled, and told so, when the engine stops.
 */
static void drain(struct server *server) {
    leave(server);
    double deadline = time_now() + server->config.server.drain_timeout;
    atomic_store(&server->api.draining, true);
    if (!server->handed_over) http_quiesce(server->http);
    log_info("stopping: %d requests to finish", http_active(server->http));
    while (http_active(server->http) > 0 && time_now() < deadline)
        if (end_within(server, 20)) break;
    tools_stop(server->api.tools);
    served_models_stop(&server->served);
    for (int i = 0; i < 50 && http_active(server->http) > 0; i++) signal_within(20);
    log_info("stopped");
}

/* An obstacle is told: whoever asked for the page reads its address. */
static void open_page(const struct server *server) {
    struct buffer address = {0};
    struct error e;
    buffer_printf(&address, "%s://%s/", server->tls ? "https" : "http", server->place.text);
    if (browser_open(address.data, &e)) log_warn("%s", e.text);
    buffer_free(&address);
}

static enum status serve(struct server *server, struct error *e) {
    struct opened_model *first = &server->served.decoders[0].opened;
    enum status status = open_model(server, e);
    if (status) return status;
    if (opened_model_follows(first)) {
        /* A process that is not rank 0: signals are for rank 0, which lets the others go. */
        ignore_signals();
        return opened_model_follow(first, e);
    }
    status = server_open(server, e);
    if (status == STATUS_OK) {
        service_tell("READY=1");
        if (server->opens_page) open_page(server);
        while (!end_within(server, 1000) && !served_models_failed(&server->served) &&
               status == STATUS_OK)
            status = opened_model_check(first, e);
        if (served_models_failed(&server->served))
            status = error_set(e, STATUS_DEVICE, "the device failed, see above");
        service_tell("STOPPING=1");
        drain(server);
    }
    return status;
}

/* The log says where a kernel leaves a wall out. */
static void log_sandbox(void) {
    if (sandbox_landlock_version() > 0) return;
    log_warn(
        "foreign files: this kernel has no Landlock, or it is switched off: the filter of system "
        "calls alone keeps "
        "the programs that read PDF and man pages from the files that their user may read");
}

static enum status answer_one_client(struct server *server, struct error *e) {
    if (count_signals(false, e)) return e->status;
    return mcp_command(&server->config, signal_counter, e);
}

int main(int argc, char **argv) {
    struct server server = {.socket = -1};
    struct quick_start start = {0};
    struct error e = {0};
    enum cli_action action;
    openmp_wait_passively(argv);
    mallopt(M_ARENA_MAX, 1); /* heaps of several threads would each grow to a peak of their own */
    standard_streams_open();
    config_init(&server.config);
    /* Foreign files are parsed by processes that begin as this one is now: without threads, and
     * before it reads keys.
     */
    enum status status = sandbox_start(argv, &e);
    if (status == STATUS_OK) status = cli_parse(argc, argv, &server.config, &start, &action, &e);
    if (status == STATUS_OK && action == CLI_SERVE) status = begin_documents(&server, &start, &e);
    if (status == STATUS_OK && action != CLI_EXIT) {
        signal(SIGPIPE, SIG_IGN);
        signal(SIGXFSZ, SIG_IGN); /* a file over a limit is a failed write */
        bus_errors_explain();
        log_set_level((enum log_level)server.config.log.level);
        log_set_format((enum log_format)server.config.log.format);
        status = log_queue_open(&e);
        if (status == STATUS_OK) {
            log_sandbox();
            server.opens_page = start.opens_page;
            served_models_init(&server.served, &server.config);
            status = action == CLI_MCP ? answer_one_client(&server, &e) : serve(&server, &e);
            server_close(&server);
        }
        log_queue_close(last_lines_seconds);
    }
    if (status) line_print(stderr, "retro-server: %s", e.text);
    config_free(&server.config);
    quick_start_free(&start);
    return process_end(status ? EXIT_FAILURE : EXIT_SUCCESS);
}
