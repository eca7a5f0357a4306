/* tools/convert/sink/convert_gguf.c: what a GGUF file says about its model, as the files of a
 * folder. See convert.h. */
#include <string.h>

#include "retro/text/open/tokenizer_gguf.h"
#include "retro/weights/gguf_folder.h"
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

/* How the rows of an embedder's text become a vector, where the file says it: sentence-transformers
 * keeps it in files of its own. Vectors of GGUF files have unit length. */
static enum status copy_pooling(const struct output *out, const struct gguf *gguf,
                                struct error *e) {
    static const char modules[] =
        "[{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": "
        "\"sentence_transformers.models.Transformer\"},\n"
        " {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", \"type\": "
        "\"sentence_transformers.models.Pooling\"},\n"
        " {\"idx\": 2, \"name\": \"2\", \"path\": \"2_Normalize\", \"type\": "
        "\"sentence_transformers.models.Normalize\"}]\n";
    static const char *const modes[] = {[GGUF_POOLING_MEAN] = "mean",
                                        [GGUF_POOLING_CLS] = "cls",
                                        [GGUF_POOLING_LAST] = "lasttoken"};
    enum gguf_pooling pooling;
    struct buffer text = {0};
    if (gguf_find_pooling(gguf, &pooling, e)) return e->status;
    if (pooling == GGUF_POOLING_RANK || gguf_find(gguf, "cls.output.weight"))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: a reranker's file is not converted: name the file itself in "
                         "retrieval.reranker",
                         gguf_name(gguf));
    if (pooling == GGUF_POOLING_ABSENT) return STATUS_OK;
    for (int i = 0; i < GGUF_DENSE; i++)
        if (gguf_find(gguf, gguf_dense_names[i]))
            return error_set(e, STATUS_UNSUPPORTED,
                             "%s: %s stands behind the mean of the rows, and is not converted: "
                             "name the file itself in retrieval.embedder",
                             gguf_name(gguf), gguf_dense_names[i]);

    buffer_append_string(&text, modules);
    enum status status = output_write(out, "modules.json", &text, e);
    buffer_free(&text);
    buffer_printf(&text, "{\"pooling_mode\": \"%s\"}\n", modes[pooling]);
    if (status == STATUS_OK) status = output_make_folder(out, "1_Pooling", e);
    if (status == STATUS_OK) status = output_write(out, "1_Pooling/config.json", &text, e);
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
    if (status == STATUS_OK) status = copy_pooling(out, gguf, e);
    buffer_append_string(&card, note + 1); /* without the blank line before it */
    if (status == STATUS_OK) status = output_write(out, "README.md", &card, e);
    gguf_close(gguf);
    buffer_free(&file);
    buffer_free(&config);
    buffer_free(&card);
    return status;
}
