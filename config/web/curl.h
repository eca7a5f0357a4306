/* config/web/curl.h: the door to libcurl, for those who call other servers. */
#pragma once

#include <curl/curl.h>

/* Makes libcurl ready; before anything else of it, from any thread, any number of times. */
void curl_start(void);
