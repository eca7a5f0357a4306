/* retrieval/milvus/client/link.c: see link.h. A handle of libcurl keeps its connection; each is
 * used by one call at a time.
 *
 * gRPC over HTTP/2: the message of the request behind five bytes, the same in the answer, and the
 * outcome in the trailers. https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md */
#include "retrieval/milvus/client/link.h"

#if HAVE_CURL
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "config/base/base64.h"
#include "config/web/curl.h"

/* Handles that wait for the next call, and how long their connections are used again: proxies end
 * them after a minute or more. */
enum { IDLE_HANDLES = 16, IDLE_SECONDS = 50 };
/* A message's length and, before it, whether it is compressed. */
enum { FRAME_HEAD = 5 };
/* libcurl 7.88 reads up to 32 KiB of HTTP/2 at once. Bytes that its own buffer then has no room for
 * wait there until a timer or the next bytes of the server wake it: 200 ms, a second or for ever.
 */
enum { RECEIVE_BYTES = 64 << 10 };
/* The longest that connecting may take. */
static const double connect_seconds = 3;

/* https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
enum grpc_status {
    GRPC_OK = 0,
    GRPC_UNAUTHENTICATED = 16,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_UNIMPLEMENTED = 12
};

struct idle_handle {
    CURL *handle;
    double since;
};

struct milvus_link {
    char *url;
    char *authority;
    struct curl_slist *headers;
    pthread_mutex_t lock;
    struct idle_handle idle[IDLE_HANDLES];
    int n_idle;
};

/* One call. */
struct link_attempt {
    struct buffer *reply;
    const atomic_bool *cancelled;
    bool too_large;
    int grpc_status; /* -1: not told */
    char message[400];
};

enum status link_open(struct milvus_link **out, const struct link_options *options,
                      struct error *e) {
    curl_start();
    const curl_version_info_data *version = curl_version_info(CURLVERSION_NOW);
    if ((version->features & CURL_VERSION_HTTP2) == 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "libcurl %s was built without HTTP/2, which Milvus speaks",
                         version->version);

    struct milvus_link *milvus_link = xcalloc(1, sizeof *milvus_link);
    milvus_link->url = xstrdup(options->url);
    milvus_link->authority = xstrdup(options->authority ? options->authority : "");
    pthread_mutex_init(&milvus_link->lock, NULL);
    milvus_link->headers = curl_slist_append(NULL, "Content-Type: application/grpc");
    milvus_link->headers = curl_slist_append(milvus_link->headers, "TE: trailers");
    milvus_link->headers = curl_slist_append(milvus_link->headers, "Expect:");
    if (options->token && options->token[0]) {
        struct buffer header = {0};
        buffer_append_string(&header, "Authorization: ");
        base64_encode((struct text_span){options->token, strlen(options->token)}, &header);
        milvus_link->headers = curl_slist_append(milvus_link->headers, header.data);
        explicit_bzero(header.data, header.size);
        buffer_free(&header);
    }
    *out = milvus_link;
    return STATUS_OK;
}

void link_close(struct milvus_link *milvus_link) {
    if (milvus_link == NULL) return;
    for (int i = 0; i < milvus_link->n_idle; i++) curl_easy_cleanup(milvus_link->idle[i].handle);
    curl_slist_free_all(milvus_link->headers);
    pthread_mutex_destroy(&milvus_link->lock);
    free(milvus_link->url);
    free(milvus_link->authority);
    free(milvus_link);
}

/* Whether the server has not ended the handle's connection. libcurl would see it too, and connect
 * anew in a way that Milvus does not understand (choose_version). */
static bool is_connected(CURL *handle) {
    curl_socket_t line = CURL_SOCKET_BAD;
    char byte;
    if (curl_easy_getinfo(handle, CURLINFO_ACTIVESOCKET, &line) != CURLE_OK ||
        line == CURL_SOCKET_BAD)
        return false;
    ssize_t n = recv(line, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

/* NULL: none waits. */
static CURL *take_idle(struct milvus_link *milvus_link) {
    CURL *handle = NULL;
    double since = 0;
    pthread_mutex_lock(&milvus_link->lock);
    if (milvus_link->n_idle > 0) {
        milvus_link->n_idle--;
        handle = milvus_link->idle[milvus_link->n_idle].handle;
        since = milvus_link->idle[milvus_link->n_idle].since;
    }
    pthread_mutex_unlock(&milvus_link->lock);
    if (handle == NULL || (time_now() - since < IDLE_SECONDS && is_connected(handle)))
        return handle;
    curl_easy_cleanup(handle);
    return take_idle(milvus_link);
}

/* *kept: it has made a call, whose connection it uses again. */
static CURL *take_handle(struct milvus_link *milvus_link, bool *kept) {
    CURL *handle = take_idle(milvus_link);
    *kept = handle != NULL;
    if (handle == NULL) handle = curl_easy_init();
    CHECK(handle != NULL);
    return handle;
}

/* A handle whose call went wrong is not used again, nor is its connection. The others' connections
 * may have ended with it: the next attempt makes a new one. */
static void put_handle(struct milvus_link *milvus_link, CURL *handle, bool sound) {
    CURL *ended[IDLE_HANDLES + 1] = {handle};
    int n_ended = 1;
    pthread_mutex_lock(&milvus_link->lock);
    if (sound && milvus_link->n_idle < IDLE_HANDLES) {
        milvus_link->idle[milvus_link->n_idle] = (struct idle_handle){handle, time_now()};
        milvus_link->n_idle++;
        n_ended = 0;
    }
    while (!sound && milvus_link->n_idle > 0) {
        milvus_link->n_idle--;
        ended[n_ended] = milvus_link->idle[milvus_link->n_idle].handle;
        n_ended++;
    }
    pthread_mutex_unlock(&milvus_link->lock);
    for (int i = 0; i < n_ended; i++) curl_easy_cleanup(ended[i]);
}

static size_t take_body(char *bytes, size_t size, size_t n, void *context) {
    struct link_attempt *attempt = context;
    attempt->too_large = attempt->reply->size + size * n > LINK_ANSWER_BYTES;
    if (attempt->too_large) return 0;
    buffer_append(attempt->reply, bytes, size * n);
    return size * n;
}

/* Where a header of that name begins its value; NULL: it is another. */
static const char *header_value(const char *line, size_t size, const char *name) {
    size_t length = strlen(name);
    if (size <= length || strncasecmp(line, name, length) != 0 || line[length] != ':') return NULL;
    length++;
    while (length < size && line[length] == ' ') length++;
    return line + length;
}

static size_t take_header(char *line, size_t size, size_t n, void *context) {
    struct link_attempt *attempt = context;
    const char *end = line + size * n, *value = header_value(line, size * n, "grpc-status");
    if (value) {
        attempt->grpc_status = 0;
        for (; value < end && *value >= '0' && *value <= '9' && attempt->grpc_status < 100; value++)
            attempt->grpc_status = attempt->grpc_status * 10 + (*value - '0');
    }
    value = header_value(line, size * n, "grpc-message");
    if (value) {
        size_t length = (size_t)min_int((int)(end - value), (int)sizeof attempt->message - 1);
        memcpy(attempt->message, value, length);
        attempt->message[length] = '\0';
        attempt->message[strcspn(attempt->message, "\r\n")] = '\0';
    }
    return size * n;
}

static int look_up(void *context, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                   curl_off_t up) {
    const struct link_attempt *attempt = context;
    (void)down_all;
    (void)down;
    (void)up_all;
    (void)up;
    return attempt->cancelled && atomic_load(attempt->cancelled);
}

/* libcurl 7.88, which Debian 12 has, lays another HTTP/2 over a connection without TLS that it uses
 * again by prior knowledge, and fails (github.com/curl/curl/pull/10643). Asked for HTTP/2 alone it
 * takes the connection as it is. */
static long choose_version(const struct milvus_link *milvus_link, bool kept) {
    enum { FAULTY = 0x0758 };
    if (strncmp(milvus_link->url, "https:", 6) == 0) return CURL_HTTP_VERSION_2TLS;
    bool is_faulty = curl_version_info(CURLVERSION_NOW)->version_num >> 8 == FAULTY;
    return kept && is_faulty ? CURL_HTTP_VERSION_2_0 : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
}

static void set_up(const struct milvus_link *milvus_link, CURL *handle, const char *url,
                   double seconds, struct link_attempt *attempt) {
    curl_confine(handle);
    curl_limit(handle, seconds, connect_seconds);
    curl_easy_setopt(handle, CURLOPT_URL, url);
    curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, milvus_link->headers);
    if (milvus_link->authority[0]) curl_easy_setopt(handle, CURLOPT_CAINFO, milvus_link->authority);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, attempt);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, attempt);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, look_up);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, attempt);
}

/* The message that the answer holds, alone. */
static bool unframe(struct buffer *reply) {
    if (reply->size < FRAME_HEAD || reply->data[0] != 0) return false;
    const uint8_t *head = (const uint8_t *)reply->data + 1;
    size_t size = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
    if (reply->size != size + FRAME_HEAD) return false;
    memmove(reply->data, reply->data + FRAME_HEAD, size);
    reply->data[size] = '\0';
    reply->size = size;
    return true;
}

/* libcurl answered; what the server said. */
static enum status judge(const struct link_attempt *attempt, long http, struct buffer *reply,
                         bool *again, struct error *e) {
    *again = true;
    if (http != 200)
        return error_set(e, STATUS_BUSY, "it answered with HTTP status %ld, not as Milvus does",
                         http);
    if (attempt->grpc_status < 0) return error_set(e, STATUS_BUSY, "its answer was cut off");
    if (attempt->grpc_status == GRPC_UNAUTHENTICATED ||
        attempt->grpc_status == GRPC_PERMISSION_DENIED) {
        *again = false;
        return error_set(e, STATUS_BUSY, "it refuses the token: %s", attempt->message);
    }
    *again = attempt->grpc_status != GRPC_UNIMPLEMENTED;
    if (attempt->grpc_status != GRPC_OK)
        return error_set(e, STATUS_BUSY, "it failed with gRPC status %d: %s", attempt->grpc_status,
                         attempt->message);
    if (!unframe(reply)) return error_set(e, STATUS_BUSY, "its answer is no gRPC message");
    return STATUS_OK;
}

/* A certificate, or what is to be trusted, that is wrong now is wrong a moment later. */
static bool is_mistrust(CURLcode code) {
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
}

static enum status perform(CURL *handle, struct link_attempt *attempt, bool *again,
                           struct error *e) {
    long http = 0;
    char words[CURL_ERROR_SIZE] = "";
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, words);
    CURLcode code = curl_easy_perform(handle);
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, NULL);
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &http);
    *again = !is_mistrust(code) && !attempt->too_large; /* it would be as large again */
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return error_set(e, STATUS_CANCELLED, "nobody waits for Milvus any more");
    if (attempt->too_large)
        return error_set(e, STATUS_BUSY, "its answer has more than %d MiB",
                         LINK_ANSWER_BYTES / (1 << 20));
    /* A server that breaks off behind its trailers has answered. */
    if (code != CURLE_OK)
        return error_set(e, STATUS_BUSY, "%s", words[0] ? words : curl_easy_strerror(code));
    return judge(attempt, http, attempt->reply, again, e);
}

static void frame(struct text_span message, struct buffer *out) {
    uint32_t size = (uint32_t)message.size;
    uint8_t head[FRAME_HEAD] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16),
                                (uint8_t)(size >> 8), (uint8_t)size};
    buffer_append(out, head, sizeof head);
    buffer_append(out, message.text, message.size);
}

enum status link_call(struct milvus_link *milvus_link, const struct link_request *request,
                      struct buffer *reply, bool *again, struct error *e) {
    struct link_attempt attempt = {
        .reply = reply, .cancelled = request->cancelled, .grpc_status = -1};
    struct buffer url = {0}, body = {0};
    buffer_clear(reply);
    buffer_printf(&url, "%s/milvus.proto.milvus.MilvusService/%s", milvus_link->url,
                  request->method);
    frame(request->message, &body);

    bool kept;
    CURL *handle = take_handle(milvus_link, &kept);
    set_up(milvus_link, handle, url.data, request->seconds, &attempt);
    curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, choose_version(milvus_link, kept));
    curl_easy_setopt(handle, CURLOPT_POST, 1L);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.size);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.data);
    enum status status = perform(handle, &attempt, again, e);
    put_handle(milvus_link, handle, status == STATUS_OK);
    buffer_free(&url);
    buffer_free(&body);
    return status;
}

#else

enum status link_open(struct milvus_link **out, const struct link_options *o, struct error *e) {
    (void)out;
    (void)o;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "this build has no libcurl, which collections in Milvus need; make deps installs it");
}

void link_close(struct milvus_link *l) { (void)l; }

enum status link_call(struct milvus_link *l, const struct link_request *r, struct buffer *reply,
                      bool *again, struct error *e) {
    (void)l;
    (void)r;
    (void)reply;
    *again = false;
    return error_set(e, STATUS_UNSUPPORTED, "this build has no libcurl");
}
#endif
