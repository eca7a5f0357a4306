/* tools/convert/formats/zip.h: zip archives of stored files, as torch.save writes them: the central
 * directory, with its 64-bit fields, over bytes in memory. Compressed and encrypted files, files
 * that overlap and sizes that lie are refused. */
#pragma once

#include "config/base/buffer.h"

struct zip_file {
    struct text_span name; /* borrowed from the archive */
    struct text_span data;
};

struct zip;

/* The archive's bytes are borrowed until zip_close. `name` is for messages. */
enum status zip_open(struct zip **out, struct text_span bytes, const char *name, struct error *e);
void zip_close(struct zip *zip);
int zip_count(const struct zip *zip);
const struct zip_file *zip_at(const struct zip *zip, int i); /* in order of name */
/* The file called prefix + name; NULL when there is none. */
const struct zip_file *zip_find(const struct zip *zip, struct text_span prefix,
                                struct text_span name);
