/* server/browser.h: the page, opened in the browser of whoever starts the server. */
#pragma once

#include "config/base/base.h"

/* Lets the desktop's program xdg-open open the address, which outlives this process.
 * STATUS_UNSUPPORTED where there is no desktop, STATUS_NOT_FOUND where there is no such program. */
enum status browser_open(const char *address, struct error *e);
