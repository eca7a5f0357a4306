/* retrieval/extract/ocr/ocr_presence.h: what there is to read pages by, for the mark of what read a
 * document (extract/reader.h). */
#pragma once

#include "retrieval/extract/extract.h"

/* As ocr_count_languages, but 0 where the library itself is missing: models alone read nothing. A
 * process of the sandbox is asked, since no other opens the library. */
int ocr_count_ready(const struct extract_ocr *ocr);
