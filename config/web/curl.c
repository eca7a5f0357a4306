/* config/web/curl.c: see curl.h. */
#if HAVE_CURL
#include "config/web/curl.h"

#include <pthread.h>

#include "config/base/base.h"

static void start(void) { CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); }

void curl_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

void curl_confine(CURL *handle) {
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
}

/* libcurl takes 0 for no limit. */
static long milliseconds(double seconds) { return (long)(1000 * seconds) + 1; }

void curl_limit(CURL *handle, double seconds, double to_connect) {
    double connect = seconds < to_connect ? seconds : to_connect;
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, milliseconds(seconds));
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(connect));
}
#endif
