/* tools/convert/formats/gzip.h: bytes that gzip compressed, as a file that is mapped. The only file
 * that includes zlib is gzip.c. */
#pragma once

#include "config/base/buffer.h"

bool gzip_is(struct text_span bytes);
/* Unpacks into a file without a name in `folder`, which goes when *out is closed. `name` is for
 * messages. A file that grows beyond two hundred times its size is refused: weights do not. */
enum status gzip_open(struct file_map *out, struct text_span bytes, const char *name,
                      const char *folder, struct error *e);
