/* tools/convert/sink/convert_gguf.c: what a GGUF file says about its model, as the files of a
 * folder. See convert.h. */
#include <string.h>

#include "retro/text/open/tokenizer_gguf.h"
#include "retro/weights/gguf_tower.h"
#include "tools/convert/sink/sink.h"

static enum status copy_tokenizer(const struct output *out, const struct gguf *gguf,
                                  struct error *e) {
    struct gguf_tokenizer tokenizer;
    struct buffer options = {0};
    enum status status = gguf_write_tokenizer(&tokenizer, gguf, e);
    if (status == STATUS_OK) status = output_write(out, tokenizer.name, &tokenizer.file, e);
    if (status == STATUS_OK) status = gguf_write_options(gguf, &options, e);
    if (status == STATUS_OK) status = output_write(out, "tokenizer_config.json", &options, e);
    buffer_free(&options);
    buffer_free(&tokenizer.file);
    return status;
}

/* How tokens are drawn, where the file says anything of it. */
static enum status copy_sampling(const struct output *out, const struct gguf *gguf,
                                 struct error *e) {
    static const char nothing[] = "{}";
    struct buffer text = {0};
    enum status status = gguf_write_sampling(gguf, &text, e);
    if (status == STATUS_OK && strcmp(text.data, nothing) != 0)
        status = output_write(out, "generation_config.json", &text, e);
    buffer_free(&text);
    return status;
}

/* How pictures are prepared, where there is a tower. */
static enum status copy_processor(const struct output *out, const struct gguf *gguf,
                                  struct error *e) {
    struct buffer text = {0};
    if (gguf_joined(gguf) == NULL) return STATUS_OK;
    enum status status = gguf_write_processor(gguf, &text, e);
    if (status == STATUS_OK) status = output_write(out, "preprocessor_config.json", &text, e);
    buffer_free(&text);
    return status;
}

enum status output_copy_gguf(const struct output *out, const char *from, const char *note,
                             struct error *e) {
    struct buffer file = {0}, config = {0}, card = {0};
    struct gguf *gguf = NULL;
    CHECK(gguf_find_file(from, &file));
    enum status status = gguf_open_model(&gguf, file.data, e);
    if (status == STATUS_OK) status = gguf_write_config(gguf, &config, e);
    if (status == STATUS_OK) status = output_write(out, "config.json", &config, e);
    if (status == STATUS_OK) status = copy_sampling(out, gguf, e);
    if (status == STATUS_OK) status = copy_tokenizer(out, gguf, e);
    if (status == STATUS_OK) status = copy_processor(out, gguf, e);
    buffer_append_string(&card, note + 1); /* without the blank line before it */
    if (status == STATUS_OK) status = output_write(out, "README.md", &card, e);
    gguf_close(gguf);
    buffer_free(&file);
    buffer_free(&config);
    buffer_free(&card);
    return status;
}
