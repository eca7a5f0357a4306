/* retrieval/extract/pdf/pdf_picture.h: a page of a PDF as people see it, drawn by a process of the
 * sandbox. */
#pragma once

#include "config/base/buffer.h"
#include "config/sandbox/sandbox.h"

/* 144 pixels an inch, or fewer: at most so many a side. */
enum { PDF_PICTURE_SIDE = 2000 };

struct pdf_picture {
    struct buffer png; /* owned, zero-initialised by the caller; foreign bytes that say they are a
                          PNG, of at most 16 MiB */
    int n_pages;       /* of the file; 0 where it cannot be opened */
};

/* A file whose name errors have, and the password that it may be opened with; NULL: none. */
struct pdf_pictured {
    const char *name, *password;
    struct text_span bytes;
};

/* Page `number`, from 1. STATUS_NOT_FOUND: there is no such page.
 * STATUS_INVALID: the file is no PDF, needs a password, or its page is damaged or takes more than
 * the limits allow. STATUS_UNSUPPORTED: Poppler is not installed. STATUS_CANCELLED. */
enum status pdf_picture_draw(struct pdf_picture *picture, const struct pdf_pictured *file,
                             int number, const struct sandbox_limits *limits, struct error *e);
