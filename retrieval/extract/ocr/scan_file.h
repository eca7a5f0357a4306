/* retrieval/extract/ocr/scan_file.h: the door to leptonica, which reads TIFF, PNG, JPEG, WebP, GIF
 * and other files of pictures. The process that reads pages alone opens it. */
#pragma once

#include "config/base/buffer.h"
#include "retrieval/extract/ocr/ocr_source.h"

/* STATUS_UNSUPPORTED where it is not installed: the package is named. */
enum status scan_open_library(struct error *e);
/* Pages of a TIFF; 1 of any other file. Needs no library. */
int scan_count_pages(struct text_span file);
/* Page i, from 0, in grey, and its pixels an inch, 0 where the file does not say. `memory` bytes
 * may be taken. STATUS_TOO_LARGE, STATUS_INVALID: the reason without the file's name. */
enum status scan_read_page(struct text_span file, int i, size_t memory, struct grey *picture,
                           float *dpi, struct error *e);
