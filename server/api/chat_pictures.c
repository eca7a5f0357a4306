/* server/api/chat_pictures.c: see chat_pictures.h. */
#include "server/api/chat_pictures.h"

#include <string.h>
#include <strings.h>

#include "config/base/base64.h"
#include "server/host/sight.h"

bool chat_part_is_picture(const struct json *part) { return json_text_is(json_member(part, "type"), "image_url"); }

/* "image_url" is an object, or the URL itself, as some clients send it. */
static struct text_span url_of(const struct json *part) {
    const struct json *image = json_member(part, "image_url");
    return json_text(json_is_text(image) ? image : json_member(image, "url"));
}

static bool begins(struct text_span text, const char *words) {
    size_t n = strlen(words);
    return text.size >= n && strncasecmp(text.text, words, n) == 0;
}

/* The bytes of a data: URL (RFC 2397). Its type is not looked at: a picture's own bytes tell what it is. */
static bool read_url(struct text_span url, size_t message, struct buffer *out, struct failure *f) {
    if (url.text == NULL)
        return failure_set(f, 400, "invalid_type", "messages",
                           "a picture of message %zu is not {\"type\": \"image_url\", \"image_url\": {\"url\": ...}}",
                           message);
    if (!begins(url, "data:"))
        return failure_set(f, 400, "unsupported_content", "messages",
                           "a picture of message %zu is no data: URL; this server fetches no pictures: send "
                           "data:image/png;base64,... with its bytes",
                           message);
    const char *comma = memchr(url.text, ',', url.size);
    size_t head = comma ? (size_t)(comma - url.text) : 0;
    bool coded = comma && head >= 7 && strncasecmp(comma - 7, ";base64", 7) == 0;
    struct text_span data = {url.text + head + 1, coded ? url.size - head - 1 : 0};
    if (coded && base64_decode(data, out)) return true;
    return failure_set(f, 400, "invalid_value", "messages",
                       "a picture of message %zu is no base64: expected data:image/png;base64,... with no blanks",
                       message);
}

/* The fewest rows of a picture. */
static int least_rows(const struct sight *s) {
    const struct picture_size *size = s->preprocessor.crop ? &s->preprocessor.cut : &s->preprocessor.size;
    struct error e;
    bool known = tower_check(s->model, size->height, size->width, &e) == STATUS_OK;
    return known ? merge_count(s->model, 1, tower_count(s->model, TOWER_PROJECTED, size->height, size->width)) : 1;
}

static size_t count_pictures(const struct json *messages) {
    size_t n = 0;
    for (size_t i = 0; i < json_count(messages); i++) {
        const struct json *content = json_member(json_item(messages, i), "content");
        for (size_t j = 0; json_is_list(content) && j < json_count(content); j++)
            n += chat_part_is_picture(json_item(content, j));
    }
    return n;
}

/* Decodes and resizes one picture. */
static bool add_picture(const struct served_model *model, const struct json *part, size_t message,
                        struct picture_set *to, struct failure *f) {
    struct buffer file = {0};
    struct sight_tiles tiles;
    struct error e;
    bool ok = read_url(url_of(part), message, &file, f);
    if (ok && sight_read(&tiles, model->sight, (struct text_span){file.data, file.size}, &e))
        ok = failure_set(f, 400, "invalid_image", "messages", "a picture of message %zu: %s", message, e.text);
    else if (ok)
        picture_set_add(to, tiles.pixels, tiles.tiles, tiles.height, tiles.width);
    buffer_free(&file);
    return ok;
}

static bool add_pictures(const struct served_model *model, const struct json *messages, struct picture_set *to,
                         struct failure *f) {
    for (size_t i = 0; i < json_count(messages); i++) {
        const struct json *content = json_member(json_item(messages, i), "content");
        for (size_t j = 0; json_is_list(content) && j < json_count(content); j++) {
            const struct json *part = json_item(content, j);
            if (chat_part_is_picture(part) && !add_picture(model, part, i, to, f)) return false;
        }
    }
    return true;
}

bool chat_pictures_read(const struct served_model *model, const struct json *messages, struct picture_set **out,
                        struct failure *f) {
    size_t n = count_pictures(messages);
    if (n == 0) return true;
    if (model->sight == NULL)
        return failure_set(f, 400, "unsupported_content", "messages", "the model %s reads no pictures", model->id);
    size_t most = (size_t)(model->limits.context / least_rows(model->sight));
    if (n > most)
        return failure_set(f, 400, "context_length_exceeded", "messages",
                           "the conversation has %zu pictures of at least %d tokens each; the limit is %d tokens (the "
                           "model's, or option server.max_context)",
                           n, least_rows(model->sight), model->limits.context);
    *out = picture_set_open((int)n);
    if (add_pictures(model, messages, *out, f)) return true;
    picture_set_release(*out);
    *out = NULL;
    return false;
}
