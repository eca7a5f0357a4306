/* server/host/prompt/picture_lines.c: see picture_lines.h. */
#include "server/host/prompt/picture_lines.h"

#include <string.h>
#include <unistd.h>

#include "config/json/json_value.h"

static enum status find_token(int32_t *id, const struct tokenizer *tokenizer,
                              const struct json *processor, const char *key, const char *usual,
                              struct error *e) {
    const struct json *named = json_member(processor, key);
    struct text_span name =
        json_is_absent(named) ? (struct text_span){usual, strlen(usual)} : json_text(named);
    *id = name.text ? tokenizer_added_id(tokenizer, name) : -1;
    if (*id >= 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "the vocabulary has no token \"%.*s\", which stands behind a line of a "
                     "picture (\"%s\" of processor_config.json)",
                     name.text ? (int)(name.size < 60 ? name.size : 60) : 0,
                     name.text ? name.text : "", key);
}

enum status picture_lines_open(struct picture_line_ids *out, const struct tokenizer *tokenizer,
                               const char *folder, struct error *e) {
    struct buffer file = {0};
    struct json *processor = NULL;
    enum status status = STATUS_OK;
    buffer_printf(&file, "%s/processor_config.json", folder);
    if (access(file.data, F_OK) == 0) status = json_parse_file(&processor, file.data, e);
    if (status == STATUS_OK)
        status =
            find_token(&out->between, tokenizer, processor, "image_break_token", "[IMG_BREAK]", e);
    if (status == STATUS_OK)
        status = find_token(&out->last, tokenizer, processor, "image_end_token", "[IMG_END]", e);
    json_close(processor);
    buffer_free(&file);
    return status;
}
