/* retrieval/extract/ocr/ocr_source.h: where the pictures of pages come from: files of pictures
 * here, and the readers of other formats, which draw their pages. All of it happens in the process
 * that reads pages. */
#pragma once

#include "config/base/buffer.h"
#include "retrieval/extract/ocr/grey.h"

/* Of static storage: the process was forked with it. Reasons are without the file's name. */
struct ocr_source {
    bool opens_files; /* its library reads files of its own, as fonts, while it works */
    /* Opens the library, while files can be read. */
    enum status (*prepare)(const char *name, struct error *e);
    /* Opens the file; `bytes` are borrowed. `passwords`: as of extract_limits, "" for none. */
    enum status (*open)(void **self, const char *name, struct text_span bytes,
                        const char *passwords, struct error *e);
    /* Page i, from 0, in grey, and its pixels an inch, 0 where nobody knows. `memory` bytes may be
     * taken. */
    enum status (*read)(void *self, int i, size_t memory, struct grey *picture, float *dpi,
                        struct error *e);
};
extern const struct ocr_source scan_source; /* TIFF, PNG, JPEG and others (scan_file.h) */
