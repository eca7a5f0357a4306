/* server/page/page_files.h: the files of the page that a browser is shown, as they lie in this
 * folder. The program carries them: nothing is read from disk. */
#pragma once

#include <stddef.h>

struct page_file {
    const char *path; /* of the request */
    const char *type;
    const char *start, *end;
};

/* NULL: the page has no such file. */
const struct page_file *page_file_find(const char *path);
