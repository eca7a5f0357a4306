/* tests/fuzz/fuzz_connection.c: any bytes as all that a client sends: through libmicrohttpd and the
 * handlers, over a socket, to a whole server with the model that ships. Whatever comes, the server
 * ends the connection, every exchange ends, and a client that asks next is answered.
 *
 * The server is the one of server/main.c without a process of its own. It has no collection, which
 * other targets have; documents are refused. */
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "config/base/log.h"
#include "server/api/core/traffic.h"
#include "server/doors/kept/kept.h"
#include "server/doors/mcp/mcp.h"
#include "server/http/http.h"
#include "server/http/listen.h"
#include "server/served_models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum {
    SOON_MS = 20,    /* that a client waits for its answer before it says that it has sent all */
    LATE_MS = 50000, /* a connection that is open then hangs */
};

static struct config config;
static struct served_models parts;
static struct api api;
static struct http *http;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_size;

/* The server. */

static enum status plan_sessions(void *context, const struct model_info *info,
                                 struct session_limits *l, struct error *e) {
    struct engine_options o;
    (void)context;
    if (served_engine_options(&o, &config, info, e)) return e->status;
    *l = engine_limits(&o, info);
    return STATUS_OK;
}

static enum status open_model(struct error *e) {
    struct budget_use budget = {.limits = plan_sessions};
    struct opened_model_use use = {.budget = &budget};
    struct decoder_part *first = &parts.decoders[0];
    if (opened_model_open(&first->opened, &config, config.model.path, &use, e)) return e->status;
    first->path = config.model.path;
    first->name = path_name(config.model.path);
    return STATUS_OK;
}

static enum status open_parts(struct error *e) {
    served_models_init(&parts, &config);
    if (open_model(e) || served_models_open_pictures(&parts, &config, e)) return e->status;
    if (decoder_part_open(&parts.decoders[0], &config, true, e) ||
        served_models_open_others(&parts, &config, e))
        return e->status;
    api = (struct api){.page = true,
                       .operations = OPERATIONS_OPEN,
                       .local = true,
                       .scheme = "http",
                       .traffic = traffic_open(),
                       .responses = kept_open((struct kept_limits){8, 1 << 20, 3600})};
    if (served_models_serve(&parts, &config, &api, e)) return e->status;
    struct mcp_options options = {
        .api = &api, .max_listeners = 2, .max_sessions = 4, .session_seconds = 60};
    return mcp_open(&api.mcp, &options, e);
}

/* A name of Linux' own, which no other process has. */
static int bind_somewhere(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int n =
        snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "retro-fuzz-%d", (int)getpid());
    address_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, address_size) == 0);
    return fd;
}

static enum status open_server(struct error *e) {
    static const char *const sets[] = {"model.path=models/retro-docs", "model.threads=1",
                                       "server.max_sequences=2", "server.max_context=128",
                                       "server.prefix_cache_mb=1"};
    config_init(&config);
    for (size_t i = 0; i < ARRAY_COUNT(sets); i++)
        if (config_set(&config, sets[i], e)) return e->status;
    if (open_parts(e)) return e->status;
    struct http_options o = {
        .socket = bind_somewhere(),
        .connections = {.max = 16, .idle_timeout = 60, .head_timeout = 60, .min_body_rate = 0},
        .max_body_bytes = 1 << 16,
        .request_threads = 2,
        .max_requests = 8,
        .api = &api};
    return http_open(&http, &o, e);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    struct error e = {0};
    (void)argc, (void)argv;
    log_set_level(LOG_LEVEL_ERROR);
    if (open_server(&e)) {
        fprintf(stderr, "fuzz_connection: %s\n", e.text);
        abort();
    }
    return 0;
}

/* A client. */

static int client_connect(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, address_size) == 0);
    return fd;
}

/* Waits for bytes, and reads them. 0: the end, or none came in time. */
static ssize_t client_read(int fd, int milliseconds, char *bytes, size_t size) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, milliseconds) <= 0) return -1;
    ssize_t n = recv(fd, bytes, size, 0);
    return n < 0 ? 0 : n;
}

/* The server may close the connection in the midst of it. */
static void client_send(int fd, const uint8_t *data, size_t size) {
    while (size > 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        CHECK(poll(&p, 1, LATE_MS) == 1);
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) return;
        data += n;
        size -= (size_t)n;
    }
}

static void client_finish(int fd) {
    char bytes[4096];
    ssize_t n;
    shutdown(fd, SHUT_WR);
    while ((n = client_read(fd, LATE_MS, bytes, sizeof bytes)) > 0) continue;
    CHECK(n == 0);
    close(fd);
}

static void check_alive(void) {
    static const char request[] =
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    char bytes[64] = "";
    int fd = client_connect();
    client_send(fd, (const uint8_t *)request, sizeof request - 1);
    CHECK(client_read(fd, LATE_MS, bytes, sizeof bytes - 1) > 0);
    CHECK(strncmp(bytes, "HTTP/1.1 200 ", 13) == 0);
    client_finish(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char bytes[4096];
    int fd = client_connect();
    client_send(fd, data, size);
    while (client_read(fd, SOON_MS, bytes, sizeof bytes) > 0) continue;
    client_finish(fd);
    for (int i = 0; i < LATE_MS && http_active(http) > 0; i++) usleep(1000);
    CHECK(http_active(http) == 0);
    check_alive();
    return 0;
}
