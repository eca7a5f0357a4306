/* retro/run/cache/prefix_file.h: the rows of one text on disk. 8 bytes each, little-endian: a mark,
 * whose rows they are, the number of ids, the bytes of the image; then the ids, 4 bytes each, zeros
 * up to a multiple of 64, the image of the rows (session.h), and the XXH3 of everything before. */
#pragma once

#include "config/base/buffer.h"

struct prefix_file {
    uint64_t identity;  /* of the model, the program and the device that computed the rows */
    const int32_t *ids; /* [n] */
    int n;
    struct text_span image;
};

/* Reads what is all of a file; ids and image stay in these bytes, which begin at a multiple of 8.
 * STATUS_CORRUPT, with `name` in the text. */
enum status prefix_file_parse(struct prefix_file *file, struct text_span bytes, const char *name,
                              struct error *e);
/* Writes the file beside its place, syncs it and puts it there, readable by its owner alone. */
enum status prefix_file_write(const struct prefix_file *file, const char *path, struct error *e);
