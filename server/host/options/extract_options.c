/* server/host/options/extract_options.c: rows of what reads pages. See extract_options.h. */
#include "server/host/options/extract_options.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const struct json_choice readers[] = {
    {"kind", PAGES_BY_KIND}, {"model", PAGES_BY_MODEL}, {NULL, 0}};

static const struct option_row extract_rows[] = {
    OPTION_CHOICE(struct extract_settings, reader, PAGES_BY_KIND, readers,
                  "what reads pages of PDF files and pictures of text, of uploads and of "
                  "retro-index: kind: the reader of their kind; model: a served model with "
                  "pictures, slowly (docs/files.md#a-model-reads-pages)"),
    OPTION_TEXT(struct extract_settings, model_url, "",
                "with extract.reader model: where it is served, an API as OpenAI's, such as "
                "http://127.0.0.1:8080/v1"),
    OPTION_TEXT(struct extract_settings, model, "", "the model's name there"),
    OPTION_PATH(struct extract_settings, model_key_file,
                "file whose first line is the key that is sent there; empty: none is"),
    OPTION_TEXT(struct extract_settings, model_prompt, "",
                "what the model is asked with the picture of each page; empty: for its text as "
                "Markdown"),
    OPTION_PATH(struct extract_settings, model_cache,
                "folder in which pages that the model read are kept, so that none is asked for "
                "twice; empty: none are kept"),
    OPTION_INT(struct extract_settings, model_seconds, 120, 1, 86400,
               "seconds that the model may take for a page"),
    OPTION_INT(struct extract_settings, model_tokens, 4096, 1, 1 << 20,
               "tokens that the text of a page may have; a page with more is read without the "
               "model"),
};
const struct option_section extract_section = {"extract", extract_rows,
                                               (int)ARRAY_COUNT(extract_rows)};

enum status extract_settings_check(const struct extract_settings *settings, struct error *e) {
    bool http = strncmp(settings->model_url, "http://", 7) == 0 ||
                strncmp(settings->model_url, "https://", 8) == 0;
    if (settings->reader != PAGES_BY_MODEL) return STATUS_OK;
    if (settings->model[0] == '\0' || settings->model_url[0] == '\0')
        return error_set(e, STATUS_INVALID,
                         "extract.reader is model, which needs extract.model_url and "
                         "extract.model");
    return http ? STATUS_OK
                : error_set(e, STATUS_INVALID, "extract.model_url is no http: or https: URL");
}

static enum status read_key(struct buffer *key, const char *path, struct error *e) {
    enum { KEY_LIMIT = 4096 };
    if (path[0] == '\0') return STATUS_OK;
    if (file_read(path, KEY_LIMIT, key, e)) return error_prefix(e, "extract.model_key_file");
    key->size = strcspn(key->data, "\r\n");
    key->data[key->size] = '\0';
    return STATUS_OK;
}

static enum status make_cache(const char *path, struct error *e) {
    if (path[0] == '\0' || mkdir(path, 0700) == 0 || errno == EEXIST) return STATUS_OK;
    return error_errno(e, "extract.model_cache %s", path);
}

enum status opened_reader_open(struct opened_reader *reader,
                               const struct extract_settings *settings, struct error *e) {
    *reader = (struct opened_reader){.is_model = settings->reader == PAGES_BY_MODEL};
    if (!reader->is_model) return STATUS_OK;
    if (read_key(&reader->key, settings->model_key_file, e) || make_cache(settings->model_cache, e))
        return e->status;
    reader->model = (struct extract_model){.url = settings->model_url,
                                           .name = settings->model,
                                           .key = reader->key.data,
                                           .prompt = settings->model_prompt,
                                           .cache = settings->model_cache,
                                           .seconds = settings->model_seconds,
                                           .tokens = settings->model_tokens};
    return STATUS_OK;
}

void opened_reader_close(struct opened_reader *reader) {
    if (reader->key.data) explicit_bzero(reader->key.data, reader->key.size);
    buffer_free(&reader->key);
    reader->is_model = false;
}
