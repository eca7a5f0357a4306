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
#endif
