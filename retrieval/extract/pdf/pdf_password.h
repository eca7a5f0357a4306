/* retrieval/extract/pdf/pdf_password.h: a PDF that may need a password. */
#pragma once

#include "retrieval/extract/extract_private.h"

/* Reads a file whose limits have one password, or none. */
typedef enum status pdf_reader(const struct extract_file *file, struct document_text *out,
                               struct error *e);
/* Reads the file without a password and, where it needs one, with each of its limits' in turn.
 * Poppler ends with a password that does not fit, so each is tried by processes of its own. */
enum status pdf_read_unlocked(const struct extract_file *file, pdf_reader *read,
                              struct document_text *out, struct error *e);
