/* server/api/picture_part.c: see picture_part.h. */
#include "server/api/picture_part.h"

#include "config/base/data_url.h"

/* A request is no larger than server.max_body_bytes, and neither is a file in it. */
static const size_t MOST_BYTES = (size_t)1 << 30;

bool picture_part_is(const struct json *part) { return json_text_is(json_member(part, "type"), "image_url"); }

/* "image_url" is an object, or the URL itself, as some clients send it. */
static struct text_span url_of(const struct json *part) {
    const struct json *image = json_member(part, "image_url");
    return json_text(json_is_text(image) ? image : json_member(image, "url"));
}

/* The URL's media type is not looked at: a picture's own bytes tell what it is. */
bool picture_part_read(const struct json *part, const char *field, const char *of, struct buffer *out,
                       struct failure *f) {
    struct text_span url = url_of(part), type;
    struct error e;
    if (url.text == NULL)
        return failure_set(f, 400, "invalid_type", field,
                           "a picture of %s is not {\"type\": \"image_url\", \"image_url\": {\"url\": ...}}", of);
    if (!data_url_is(url))
        return failure_set(f, 400, "unsupported_content", field,
                           "a picture of %s is no data: URL; this server fetches no pictures: send "
                           "data:image/png;base64,... with its bytes",
                           of);
    if (data_url_read(out, &type, url, MOST_BYTES, &e) == STATUS_OK) return true;
    return failure_set(f, 400, "invalid_value", field, "a picture of %s: %s", of, e.text);
}
