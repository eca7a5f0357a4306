/* server/fetch/fetcher.c: see fetcher.h. */
#include "server/fetch/fetcher.h"

#if HAVE_CURL
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config/web/curl.h"
#include "server/fetch/web_guard.h"

/* Within so long a transfer that nobody waits for ends; and a thread with nothing to do looks up.
 */
enum { LOOK_MILLISECONDS = 100, IDLE_MILLISECONDS = 60000 };
enum { URL_MOST = 8192 };

struct fetcher {
    struct fetcher_options o;
    CURLM *multi;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* guards the next three */
    bool stopped;
    int n_asked;          /* that are not done */
    struct fetch *asked;  /* that the thread has not begun */
    struct fetch *active; /* the thread's */
};

/* One file on its way. */
struct fetch_transfer {
    struct fetcher *fetcher;
    struct fetch *fetch;
    CURL *handle;
    CURLU *url;
    struct web_guard guard; /* by which its host is allowed */
    double deadline;
    int redirections;
    bool too_large; /* more bytes came than there may be */
    char words[CURL_ERROR_SIZE];
};

/* URLs. */

static enum status refuse_url(struct error *e, const char *why) {
    return error_set(e, STATUS_INVALID, "it is not fetched: %s", why);
}

/* The rule that allows the URL, which is a http or https one. */
static enum status find_rule(const struct host_rules *hosts, CURLU *url,
                             const struct host_rule **rule, struct error *e) {
    char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL;
    enum status status = STATUS_OK;
    *rule = NULL;
    bool read = curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    bool tls = read && strcmp(scheme, "https") == 0,
         web = tls || (read && strcmp(scheme, "http") == 0);
    int number = read ? atoi(port) : 0;
    if (!web)
        status = refuse_url(e, "its scheme is neither http nor https");
    else if (curl_url_get(url, CURLUPART_USER, &user, 0) == CURLUE_OK)
        status = refuse_url(e, "it has a user's name or password");
    else
        *rule = host_rules_find(hosts, host, number, number == (tls ? 443 : 80));
    if (status == STATUS_OK && *rule == NULL)
        status = error_set(e, STATUS_INVALID,
                           "it is not fetched: %.100s, port %d, is not in server.image_urls", host,
                           number);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(user);
    return status;
}

/* The caller cleans *out up. */
static enum status parse_url(CURLU **out, const struct host_rules *hosts, const char *text,
                             const struct host_rule **rule, struct error *e) {
    *out = curl_url();
    CHECK(*out != NULL);
    if (strlen(text) > URL_MOST)
        return error_set(e, STATUS_INVALID, "the URL has more than %d bytes", URL_MOST);
    CURLUcode code = curl_url_set(*out, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME);
    if (code != CURLUE_OK)
        return error_set(e, STATUS_INVALID, "it is no URL: %s", curl_url_strerror(code));
    return find_rule(hosts, *out, rule, e);
}

enum status fetch_check(const struct host_rules *hosts, const char *url, struct error *e) {
    const struct host_rule *rule;
    CURLU *parsed = NULL;
    curl_start();
    enum status status = parse_url(&parsed, hosts, url, &rule, e);
    curl_url_cleanup(parsed);
    return status;
}

/* Callbacks of libcurl. */

/* Bodies of other answers than 200 count too, and are not kept. */
static size_t take_body(char *bytes, size_t size, size_t n, void *context) {
    struct fetch_transfer *transfer = context;
    size_t more = size * n, left = atomic_load(transfer->fetch->left);
    long http = 0;
    while (left >= more && !atomic_compare_exchange_weak(transfer->fetch->left, &left, left - more))
        continue;
    if (left < more) {
        transfer->too_large = true;
        return 0;
    }
    curl_easy_getinfo(transfer->handle, CURLINFO_RESPONSE_CODE, &http);
    if (http == 200) buffer_append(&transfer->fetch->bytes, bytes, more);
    return more;
}

/* Transfers. */

static void set_up(struct fetch_transfer *transfer) {
    double left = transfer->deadline - time_now();
    CURL *h = transfer->handle;
    curl_easy_setopt(h, CURLOPT_CURLU, transfer->url);
    curl_easy_setopt(h, CURLOPT_PRIVATE, transfer);
    web_guard_set(h, &transfer->guard);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, left > 0 ? (long)(1000 * left) + 1 : 1L);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, transfer->words);
}

static void end_transfer(struct fetch_transfer *transfer) {
    if (transfer->handle) {
        curl_multi_remove_handle(transfer->fetcher->multi, transfer->handle);
        curl_easy_cleanup(transfer->handle);
        transfer->handle = NULL;
    }
    curl_url_cleanup(transfer->url);
    transfer->url = NULL;
}

/* Asks for a URL: the asker's, or one that it leads to. */
static enum status begin_transfer(struct fetch_transfer *transfer, const char *url,
                                  struct error *e) {
    end_transfer(transfer);
    buffer_clear(&transfer->fetch->bytes);
    transfer->words[0] = '\0';
    transfer->guard.kept_out = false;
    if (parse_url(&transfer->url, transfer->fetcher->o.hosts, url, &transfer->guard.rule, e))
        return e->status;
    transfer->handle = curl_easy_init();
    CHECK(transfer->handle != NULL);
    set_up(transfer);
    CHECK(curl_multi_add_handle(transfer->fetcher->multi, transfer->handle) == CURLM_OK);
    return STATUS_OK;
}

static void finish(struct fetcher *fetcher, struct fetch *fetch) {
    struct fetch **at = &fetcher->active;
    while (*at != fetch) at = &(*at)->next;
    *at = fetch->next;
    end_transfer(fetch->transfer);
    free(fetch->transfer);
    fetch->transfer = NULL;
    if (fetch->error.status) error_prefix(&fetch->error, "%.200s", fetch->url);
    pthread_mutex_lock(&fetcher->lock);
    fetcher->n_asked--;
    pthread_mutex_unlock(&fetcher->lock);
    fetch->done(fetch);
}

static enum status follow(struct fetch_transfer *transfer, struct error *e) {
    char *target = NULL;
    struct buffer url = {0};
    curl_easy_getinfo(transfer->handle, CURLINFO_REDIRECT_URL, &target);
    if (target == NULL) return error_set(e, STATUS_INVALID, "it is redirected to nowhere");
    if (transfer->redirections == FETCH_REDIRECTIONS)
        return error_set(e, STATUS_INVALID, "it is redirected more than %d times",
                         FETCH_REDIRECTIONS);
    transfer->redirections++;
    buffer_append_string(&url, target);
    enum status status = begin_transfer(transfer, url.data, e);
    if (status) error_prefix(e, "redirected to %.200s", url.data);
    buffer_free(&url);
    return status;
}

static enum status explain(const struct fetch_transfer *transfer, CURLcode code, struct error *e) {
    const struct fetcher_options *options = &transfer->fetcher->o;
    if (transfer->too_large)
        return error_set(e, STATUS_TOO_LARGE,
                         "the pictures that are fetched for a request have more bytes than %s says",
                         options->bytes_option);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return error_set(e, STATUS_INVALID, "it did not come within %g seconds (option %s)",
                         options->seconds, options->seconds_option);
    if (transfer->guard.kept_out) return refuse_url(e, "its host has no public address");
    return error_set(e, STATUS_INVALID, "%s",
                     transfer->words[0] ? transfer->words : curl_easy_strerror(code));
}

/* libcurl is done with it: whether the fetch is. */
static bool transfer_ends(struct fetch_transfer *transfer, CURLcode code, struct error *e) {
    long http = 0;
    if (code != CURLE_OK) {
        explain(transfer, code, e);
        return true;
    }
    curl_easy_getinfo(transfer->handle, CURLINFO_RESPONSE_CODE, &http);
    if (http / 100 == 3 && http != 304) return follow(transfer, e) != STATUS_OK;
    if (http != 200) error_set(e, STATUS_INVALID, "the server answered with HTTP status %ld", http);
    return true;
}

/* The thread. */

static void begin(struct fetcher *fetcher, struct fetch *fetch) {
    fetch->transfer = xcalloc(1, sizeof *fetch->transfer);
    *fetch->transfer = (struct fetch_transfer){
        .fetcher = fetcher, .fetch = fetch, .deadline = time_now() + fetcher->o.seconds};
    fetch->error = (struct error){0};
    fetch->next = fetcher->active;
    fetcher->active = fetch;
    if (begin_transfer(fetch->transfer, fetch->url, &fetch->error)) finish(fetcher, fetch);
}

/* New ones begin. Whether the thread was stopped. */
static bool receive(struct fetcher *fetcher) {
    pthread_mutex_lock(&fetcher->lock);
    struct fetch *asked = fetcher->asked;
    bool stopped = fetcher->stopped;
    fetcher->asked = NULL;
    pthread_mutex_unlock(&fetcher->lock);
    while (asked) {
        struct fetch *fetch = asked;
        asked = fetch->next;
        begin(fetcher, fetch);
    }
    return stopped;
}

static void collect(struct fetcher *fetcher) {
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(fetcher->multi, &left)) != NULL) {
        struct fetch_transfer *transfer = NULL;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        if (message->msg == CURLMSG_DONE && transfer_ends(transfer, code, &transfer->fetch->error))
            finish(fetcher, transfer->fetch);
    }
}

static void drop(struct fetcher *fetcher, bool all) {
    struct fetch *next;
    for (struct fetch *fetch = fetcher->active; fetch; fetch = next) {
        next = fetch->next;
        if (!all && !atomic_load(fetch->unwanted)) continue;
        error_set(&fetch->error, STATUS_CANCELLED,
                  all ? "the server is stopping" : "nobody waits for it any more");
        finish(fetcher, fetch);
    }
}

static void *run(void *argument) {
    struct fetcher *fetcher = argument;
    for (;;) {
        int running = 0;
        bool stopped = receive(fetcher);
        drop(fetcher, stopped);
        if (stopped) return NULL;
        CHECK(curl_multi_perform(fetcher->multi, &running) == CURLM_OK);
        collect(fetcher);
        curl_multi_poll(fetcher->multi, NULL, 0,
                        fetcher->active ? LOOK_MILLISECONDS : IDLE_MILLISECONDS, NULL);
    }
}

enum status fetcher_open(struct fetcher **out, const struct fetcher_options *options,
                         struct error *e) {
    struct fetcher *fetcher = xcalloc(1, sizeof *fetcher);
    curl_start();
    fetcher->o = *options;
    pthread_mutex_init(&fetcher->lock, NULL);
    fetcher->multi = curl_multi_init();
    CHECK(fetcher->multi != NULL);
    fetcher->running = pthread_create(&fetcher->thread, NULL, run, fetcher) == 0;
    if (fetcher->running) {
        *out = fetcher;
        return STATUS_OK;
    }
    fetcher_close(fetcher);
    return error_set(e, STATUS_NO_MEMORY, "the thread that fetches pictures could not be started");
}

void fetcher_stop(struct fetcher *fetcher) {
    if (fetcher == NULL || !fetcher->running) return;
    pthread_mutex_lock(&fetcher->lock);
    fetcher->stopped = true;
    pthread_mutex_unlock(&fetcher->lock);
    curl_multi_wakeup(fetcher->multi);
    pthread_join(fetcher->thread, NULL);
    fetcher->running = false;
}

void fetcher_close(struct fetcher *fetcher) {
    if (fetcher == NULL) return;
    fetcher_stop(fetcher);
    curl_multi_cleanup(fetcher->multi);
    pthread_mutex_destroy(&fetcher->lock);
    free(fetcher);
}

enum status fetcher_ask(struct fetcher *fetcher, struct fetch *const *fetches, int n,
                        struct error *e) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&fetcher->lock);
    if (fetcher->stopped) {
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    } else if (n > FETCHES_MOST - fetcher->n_asked) {
        status =
            error_set(e, STATUS_BUSY,
                      "%d pictures are being fetched, and %d more are asked for; the limit is %d",
                      fetcher->n_asked, n, FETCHES_MOST);
    } else {
        for (int i = 0; i < n; i++) {
            fetches[i]->next = fetcher->asked;
            fetcher->asked = fetches[i];
        }
        fetcher->n_asked += n;
    }
    pthread_mutex_unlock(&fetcher->lock);
    if (status == STATUS_OK) curl_multi_wakeup(fetcher->multi);
    return status;
}

#else

static enum status no_curl(struct error *e) {
    return error_set(
        e, STATUS_UNSUPPORTED,
        "this build has no libcurl, which server.image_urls needs; make deps installs it");
}

enum status fetch_check(const struct host_rules *hosts, const char *url, struct error *e) {
    (void)hosts;
    (void)url;
    return no_curl(e);
}

enum status fetcher_open(struct fetcher **out, const struct fetcher_options *o, struct error *e) {
    (void)out;
    (void)o;
    return no_curl(e);
}

void fetcher_stop(struct fetcher *f) { (void)f; }

void fetcher_close(struct fetcher *f) { (void)f; }

enum status fetcher_ask(struct fetcher *f, struct fetch *const *fetches, int n, struct error *e) {
    (void)f;
    (void)fetches;
    (void)n;
    return no_curl(e);
}
#endif
