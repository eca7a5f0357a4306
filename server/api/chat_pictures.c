/* server/api/chat_pictures.c: see chat_pictures.h. */
#include "server/api/chat_pictures.h"

#include <stdio.h>

#include "server/api/picture_part.h"
#include "server/host/sight.h"

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
            n += picture_part_is(json_item(content, j));
    }
    return n;
}

/* Decodes and resizes one picture. */
static bool add_picture(const struct served_model *model, const struct json *part, size_t message,
                        struct picture_set *to, struct failure *f) {
    struct buffer file = {0};
    struct sight_tiles tiles;
    struct error e;
    char of[40];
    snprintf(of, sizeof of, "message %zu", message);
    bool ok = picture_part_read(part, "messages", of, &file, f);
    if (ok && sight_read(&tiles, model->sight, (struct text_span){file.data, file.size}, &e))
        ok = failure_set(f, 400, "invalid_image", "messages", "a picture of message %zu: %s", message, e.text);
    else if (ok)
        picture_set_add(to, tiles.pixels, &tiles.cut);
    buffer_free(&file);
    return ok;
}

/* Small files may be large pictures, which take long to decode: a request's all together have a limit, too. */
static const int64_t MOST_PIXELS = 1 << 26;

static bool check_pixels(const struct picture_set *set, struct failure *f) {
    int64_t pixels = 0;
    for (int i = 0; i < set->n; i++)
        pixels += (int64_t)set->list[i].cut.original_height * set->list[i].cut.original_width;
    if (pixels <= MOST_PIXELS) return true;
    return failure_set(f, 400, "invalid_image", "messages",
                       "the pictures of the conversation have more than %lld pixels together: send smaller ones",
                       (long long)MOST_PIXELS);
}

static bool add_pictures(const struct served_model *model, const struct json *messages, struct picture_set *to,
                         struct failure *f) {
    for (size_t i = 0; i < json_count(messages); i++) {
        const struct json *content = json_member(json_item(messages, i), "content");
        for (size_t j = 0; json_is_list(content) && j < json_count(content); j++) {
            const struct json *part = json_item(content, j);
            if (!picture_part_is(part)) continue;
            if (!add_picture(model, part, i, to, f) || !check_pixels(to, f)) return false;
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
