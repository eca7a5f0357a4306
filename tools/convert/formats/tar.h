/* tools/convert/formats/tar.h: tar archives over bytes in memory, as Python writes them: long names and sizes by pax
 * records or GNU's headers. Links, devices and names that lead out of the archive are refused. */
#pragma once

#include "config/base/buffer.h"

/* Whether bytes begin with a tar's first header. */
bool tar_is(struct text_span bytes);
/* Calls `take` for each file in it, in order, until one fails. The name is without "./" and goes with the call; the
 * data lies in `bytes`. */
typedef enum status tar_taker(void *context, const char *name, struct text_span data, struct error *e);
enum status tar_visit(struct text_span bytes, const char *archive, tar_taker *take, void *context, struct error *e);
