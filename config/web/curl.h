/* config/web/curl.h: the door to libcurl, for those who call other servers. */
#pragma once

#include <curl/curl.h>

/* Makes libcurl ready; before anything else of it, from any thread, any number of times. */
void curl_start(void);
/* Rules of every transfer: http and https alone, no proxy of the environment's, no signals. */
void curl_confine(CURL *handle);
/* Ends the transfer after so many seconds, and its connecting after `to_connect` or sooner. */
void curl_limit(CURL *handle, double seconds, double to_connect);
