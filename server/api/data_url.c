/* server/api/data_url.c: see data_url.h. */
#include "server/api/data_url.h"

#include <string.h>
#include <strings.h>

#include "config/base/base64.h"

bool picture_part_is(const struct json *part) { return json_text_is(json_member(part, "type"), "image_url"); }

/* "image_url" is an object, or the URL itself, as some clients send it. */
static struct text_span url_of(const struct json *part) {
    const struct json *image = json_member(part, "image_url");
    return json_text(json_is_text(image) ? image : json_member(image, "url"));
}

static bool begins(struct text_span text, const char *words) {
    size_t n = strlen(words);
    return text.size >= n && strncasecmp(text.text, words, n) == 0;
}

/* Its type is not looked at: a picture's own bytes tell what it is. */
bool picture_part_read(const struct json *part, const char *field, const char *of, struct buffer *out,
                       struct failure *f) {
    struct text_span url = url_of(part);
    if (url.text == NULL)
        return failure_set(f, 400, "invalid_type", field,
                           "a picture of %s is not {\"type\": \"image_url\", \"image_url\": {\"url\": ...}}", of);
    if (!begins(url, "data:"))
        return failure_set(f, 400, "unsupported_content", field,
                           "a picture of %s is no data: URL; this server fetches no pictures: send "
                           "data:image/png;base64,... with its bytes",
                           of);
    const char *comma = memchr(url.text, ',', url.size);
    size_t head = comma ? (size_t)(comma - url.text) : 0;
    bool coded = comma && head >= 7 && strncasecmp(comma - 7, ";base64", 7) == 0;
    struct text_span data = {url.text + head + 1, coded ? url.size - head - 1 : 0};
    if (coded && base64_decode(data, out)) return true;
    return failure_set(f, 400, "invalid_value", field,
                       "a picture of %s is no base64: expected data:image/png;base64,... with no blanks", of);
}
