/* server/api/core/picture_part.c: see picture_part.h. */
#include "server/api/core/picture_part.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/data_url.h"
#include "server/fetch/fetcher.h"

/* A request is no larger than server.max_body_bytes, and neither is a file in it. */
static const size_t MOST_BYTES = (size_t)1 << 30;

bool picture_part_is(const struct json *part) {
    return json_text_is(json_member(part, "type"), "image_url");
}

/* "image_url" is an object, or the URL itself, as some clients send it. */
static struct text_span url_of(const struct json *part) {
    const struct json *image = json_member(part, "image_url");
    return json_text(json_is_text(image) ? image : json_member(image, "url"));
}

static bool starts_as(struct text_span url, const char *scheme) {
    size_t n = strlen(scheme);
    return url.size >= n && strncasecmp(url.text, scheme, n) == 0;
}

static bool read_web(struct text_span url, const struct picture_place *place,
                     struct picture_source *out, struct failure *failure) {
    struct error e;
    out->web = xstrndup(url.text, url.size);
    if (strlen(out->web) != url.size)
        error_set(&e, STATUS_INVALID, "the URL has a NUL");
    else if (fetch_check(place->hosts, out->web, &e) == STATUS_OK)
        return true;
    free(out->web);
    out->web = NULL;
    return failure_set(failure, 400, "unsupported_content", place->field, "a picture of %s: %s",
                       place->of, e.text);
}

/* The URL's media type is not looked at: a picture's own bytes tell what it is. */
bool picture_part_read(const struct json *part, const struct picture_place *place,
                       struct picture_source *out, struct failure *failure) {
    struct text_span url = url_of(part), type;
    struct error e;
    *out = (struct picture_source){.web = NULL};
    if (url.text == NULL)
        return failure_set(
            failure, 400, "invalid_type", place->field,
            "a picture of %s is not {\"type\": \"image_url\", \"image_url\": {\"url\": ...}}",
            place->of);
    if (place->hosts && (starts_as(url, "http:") || starts_as(url, "https:")))
        return read_web(url, place, out, failure);
    if (!data_url_is(url))
        return failure_set(failure, 400, "unsupported_content", place->field,
                           "a picture of %s is no data: URL; this server fetches %s: send "
                           "data:image/png;base64,... "
                           "with its bytes",
                           place->of,
                           place->hosts ? "pictures by http: and https: alone" : "no pictures");
    if (data_url_read(&out->bytes, &type, url, MOST_BYTES, &e) == STATUS_OK) return true;
    buffer_free(&out->bytes);
    return failure_set(failure, 400, "invalid_value", place->field, "a picture of %s: %s",
                       place->of, e.text);
}
