/* server/tools/tools.c: the servers, and the threads that call them. See tools.h.
 *
 * A job has a thread for itself: it waits for others' servers most of the time, and one that waits
 * for a slow server keeps nobody else waiting. Jobs are bounded in number, and a client has no more
 * than half of them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "server/threads/tally.h"
#include "server/tools/tools_private.h"

enum {
    LIST_SECONDS = 60, /* after which tools are asked for again */
    RETRY_SECONDS = 5, /* the same where a server had none */
    SHOWN_BYTES = 200  /* of an error, in the log */
};

struct tools {
    const struct tool_settings *settings;
    struct tool_server **servers; /* [n] */
    bool *asked;                  /* [n] whose tools are being asked for; guarded by lock */
    int n;
    pthread_mutex_t lock; /* guards the next three, and `asked` */
    struct tally calls;
    struct tool_job *jobs;
    int n_threads;
    pthread_cond_t ended; /* a thread has */
    atomic_bool stopped;
};

/* A look at the tools of one server. */
struct refresh {
    struct tools *tools;
    int server;
    atomic_bool unwanted;
};

/* Threads. */

/* Called with the lock. */
static bool start_thread(struct tools *tools, void *(*run)(void *), void *argument) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool started = pthread_create(&thread, &attributes, run, argument) == 0;
    pthread_attr_destroy(&attributes);
    tools->n_threads += started;
    return started;
}

static void end_thread(struct tools *tools) {
    pthread_mutex_lock(&tools->lock);
    tools->n_threads--;
    pthread_cond_broadcast(&tools->ended);
    pthread_mutex_unlock(&tools->lock);
}

/* Lists of tools. */

static void *run_refresh(void *argument) {
    struct refresh *refresh = argument;
    struct tools *tools = refresh->tools;
    struct tool_server *server = tools->servers[refresh->server];
    struct tool_wait wait = {.deadline = time_now() + tools->settings->timeout,
                             .unwanted = &refresh->unwanted,
                             .stopped = &tools->stopped};
    struct error e;
    if (tool_server_refresh(server, &wait, &e) && e.status != STATUS_CANCELLED)
        log_warn("tools.mcp: %s: %.*s", tool_server_name(server), SHOWN_BYTES, e.text);
    pthread_mutex_lock(&tools->lock);
    tools->asked[refresh->server] = false;
    pthread_mutex_unlock(&tools->lock);
    free(refresh);
    end_thread(tools);
    return NULL;
}

static void start_refresh(struct tools *tools, int server) {
    pthread_mutex_lock(&tools->lock);
    if (!tools->asked[server] && !atomic_load(&tools->stopped)) {
        struct refresh *refresh = xcalloc(1, sizeof *refresh);
        *refresh = (struct refresh){.tools = tools, .server = server};
        tools->asked[server] = start_thread(tools, run_refresh, refresh);
        if (!tools->asked[server]) free(refresh);
    }
    pthread_mutex_unlock(&tools->lock);
}

static int number_of(const struct tools *tools, const struct tool_server *server) {
    int i = 0;
    while (tools->servers[i] != server) i++;
    return i;
}

struct tool_list *tools_list(struct tools *tools, struct tool_server *server, struct error *e) {
    double age;
    struct tool_list *list = tool_server_list(server, &age, e);
    if (age > (list ? LIST_SECONDS : RETRY_SECONDS)) start_refresh(tools, number_of(tools, server));
    return list;
}

struct tool_server *tools_find(struct tools *tools, struct text_span name) {
    for (int i = 0; i < tools->n; i++)
        if (span_is(name, tool_server_name(tools->servers[i]))) return tools->servers[i];
    return NULL;
}

struct tool_server *tools_item(struct tools *tools, int i) {
    return i < tools->n ? tools->servers[i] : NULL;
}

/* Opening. */

enum status tools_open(struct tools **out, const struct tool_settings *settings, struct error *e) {
    const struct tool_server_settings *servers = settings->mcp.items;
    struct tools *tools = xcalloc(1, sizeof *tools);
    size_t n = settings->mcp.count;
    tools->settings = settings;
    tools->servers = xcalloc(n, sizeof(struct tool_server *));
    tools->asked = xcalloc(n, sizeof *tools->asked);
    pthread_mutex_init(&tools->lock, NULL);
    pthread_cond_init(&tools->ended, NULL);
    for (size_t i = 0; i < n; i++) {
        if (tool_server_open(&tools->servers[i], &servers[i], e)) {
            tools_close(tools);
            return e->status;
        }
        tools->n++;
    }
    for (int i = 0; i < tools->n; i++) start_refresh(tools, i);
    *out = tools;
    return STATUS_OK;
}

void tools_stop(struct tools *tools) {
    if (tools == NULL) return;
    atomic_store(&tools->stopped, true);
    pthread_mutex_lock(&tools->lock);
    while (tools->n_threads > 0) pthread_cond_wait(&tools->ended, &tools->lock);
    pthread_mutex_unlock(&tools->lock);
}

void tools_close(struct tools *tools) {
    if (tools == NULL) return;
    tools_stop(tools);
    for (int i = 0; i < tools->n; i++) tool_server_close(tools->servers[i]);
    pthread_cond_destroy(&tools->ended);
    pthread_mutex_destroy(&tools->lock);
    free(tools->servers);
    free(tools->asked);
    free(tools);
}

const struct tool_settings *tools_settings(const struct tools *tools) { return tools->settings; }

bool tools_are_stopped(struct tools *tools) { return atomic_load(&tools->stopped); }

const atomic_bool *tools_stopped(const struct tools *tools) { return &tools->stopped; }

/* Counters. */

static const struct tally_form calls_form = {
    "retro_tool_calls_total",
    "Calls of tools of other servers (option tools.mcp), by server and how they ended.",
    {"server", "outcome"}};

void tools_note_call(struct tools *tools, const struct tool_server *server, const char *outcome) {
    pthread_mutex_lock(&tools->lock);
    tally_add(&tools->calls, &calls_form, (const char *[]){tool_server_name(server), outcome}, 1);
    pthread_mutex_unlock(&tools->lock);
}

void tools_print_counts(struct tools *tools, struct buffer *out) {
    if (tools == NULL) return;
    pthread_mutex_lock(&tools->lock);
    tally_print(&tools->calls, &calls_form, out);
    pthread_mutex_unlock(&tools->lock);
}

/* Calls. */

static void leave(struct tools *tools, struct tool_job *job) {
    pthread_mutex_lock(&tools->lock);
    struct tool_job **at = &tools->jobs;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
    pthread_mutex_unlock(&tools->lock);
}

static void *run_job(void *argument) {
    struct tool_job *job = argument;
    struct tools *tools = job->tools;
    tool_calls_carry_out(job);
    leave(tools, job);
    job->done(job);
    end_thread(tools);
    return NULL;
}

/* Called with the lock. */
static bool has_room(const struct tools *tools, uint64_t client) {
    int all = 0, own = 0, most = tools->settings->max_running;
    for (const struct tool_job *job = tools->jobs; job; job = job->next) {
        all++;
        own += job->client == client;
    }
    return all < most && own < (most + 1) / 2;
}

enum status tools_ask(struct tools *tools, struct tool_job *job, struct error *e) {
    pthread_mutex_lock(&tools->lock);
    bool stopped = atomic_load(&tools->stopped), room = !stopped && has_room(tools, job->client);
    job->tools = tools;
    bool started = room && start_thread(tools, run_job, job);
    if (started) {
        job->next = tools->jobs;
        tools->jobs = job;
    }
    pthread_mutex_unlock(&tools->lock);
    if (started) return STATUS_OK;
    if (stopped) return error_set(e, STATUS_BUSY, "the server is stopping");
    return error_set(e, STATUS_BUSY,
                     room ? "no thread can be started"
                          : "too many calls of tools are under way (option "
                            "tools.max_running)");
}
