/* retrieval/extract/pdf/pdf_password.c: see pdf_password.h. */
#include "retrieval/extract/pdf/pdf_password.h"

#include <stdlib.h>
#include <string.h>

enum status pdf_read_unlocked(const struct extract_file *file, pdf_reader *read,
                              struct document_text *out, struct error *e) {
    struct extract_file with = *file;
    const char *line = file->limits.passwords ? file->limits.passwords : "";
    with.limits.passwords = NULL;
    enum status status = read(&with, out, e);
    if (status != STATUS_INVALID || line[0] == '\0' || !strstr(e->text, "it needs a password"))
        return status;
    while (status && status != STATUS_CANCELLED && line[0] != '\0') {
        size_t size = strcspn(line, "\n");
        char *password = xstrndup(line, size);
        with.limits.passwords = password;
        document_text_clear(out);
        status = read(&with, out, e);
        explicit_bzero(password, size);
        free(password);
        line += size + (line[size] == '\n');
    }
    if (status == STATUS_OK || status == STATUS_CANCELLED) return status;
    return error_set(e, status, "%s: it needs a password, and none of those given fits",
                     file->name);
}
