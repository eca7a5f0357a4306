/* tests/fuzz/fuzz_multipart.c: any Content-Type, up to its first line's end, with any body behind
 * it: it is refused, or each part lies inside of the body, in order. */
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "server/api/core/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct multipart m;
    struct error e = {0};
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    if (line == NULL) return 0;
    struct buffer type = {0};
    buffer_append(&type, data, (size_t)(line - data));
    /* A copy of its own, so that a read beyond it is seen. */
    size_t body_size = size - (size_t)(line + 1 - data);
    char *body = malloc(body_size + (body_size == 0));
    memcpy(body, line + 1, body_size);
    if (type.size > 0 && multipart_is_announced(type.data)) {
        if (multipart_parse(&m, type.data, (struct text_span){body, body_size}, &e))
            CHECK(e.text[0] != '\0');
        const char *at = body;
        for (int i = 0; i < m.n && e.text[0] == '\0'; i++) {
            const struct multipart_part *p = &m.parts[i];
            CHECK(p->body.text >= at && p->body.size <= (size_t)(body + body_size - p->body.text));
            CHECK(utf8_is_valid(p->name, strlen(p->name)));
            at = p->body.text + p->body.size;
        }
        multipart_free(&m);
    }
    buffer_free(&type);
    free(body);
    return 0;
}
