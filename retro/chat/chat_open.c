/* retro/chat/chat_open.c: the chat templates of a model folder. See chat.h. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "retro/chat/chat_private.h"
#include "retro/chat/harmony.h"
#include "retro/text/open/tokenizer_gguf.h"
#include "retro/weights/gguf_tower.h"

enum { MAX_TEMPLATES = 64 };

static const char template_file[] = "chat_template.jinja",
                  template_folder[] = "additional_chat_templates";
static const char *const named_tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                           "pad_token", "cls_token", "mask_token"};

/* Templates that cannot be read are kept with their error: others of the folder may be what is
 * asked for. */
static void add_template(struct chat *chat, const char *name, struct text_span source) {
    struct named_template *template = &chat->templates[chat->n_templates];
    chat->n_templates++;
    template->name = xstrdup(name);
    buffer_append(&template->source, source.text, source.size);
    if (template_open(&template->template, source, &template->error) && chat->n_templates > 1)
        error_prefix(&template->error, "the template %s", name);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct named_template *)a)->name,
                  ((const struct named_template *)b)->name);
}

static enum status read_file(struct chat *chat, const char *path, const char *name,
                             struct error *e) {
    struct buffer source = {0};
    enum status status = file_read(path, TEMPLATE_MAX_SOURCE, &source, e);
    if (status == STATUS_OK) add_template(chat, name, (struct text_span){source.data, source.size});
    buffer_free(&source);
    return status;
}

static bool is_file(const char *path) {
    struct stat the_stat;
    return stat(path, &the_stat) == 0 && S_ISREG(the_stat.st_mode);
}

/* NAME.jinja of the folder of additional templates. */
static enum status read_entry(struct chat *chat, const char *folder, const char *file,
                              struct error *e) {
    static const char ending[] = ".jinja";
    size_t n = strlen(file);
    struct buffer path = {0};
    enum status status = STATUS_OK;
    if (n < sizeof ending || strcmp(file + n - (sizeof ending - 1), ending) != 0) return STATUS_OK;
    if (chat->n_templates == MAX_TEMPLATES)
        return error_set(e, STATUS_TOO_LARGE, "%s: more than %d templates", folder, MAX_TEMPLATES);
    char *name = xstrndup(file, n - (sizeof ending - 1));
    buffer_printf(&path, "%s/%s", folder, file);
    if (is_file(path.data)) status = read_file(chat, path.data, name, e);
    buffer_free(&path);
    free(name);
    return status;
}

static enum status read_folder(struct chat *chat, const char *folder, struct error *e) {
    DIR *d = opendir(folder);
    enum status status = STATUS_OK;
    if (d == NULL)
        return errno == ENOENT || errno == ENOTDIR ? STATUS_OK : error_errno(e, "%s", folder);
    for (const struct dirent *entry; status == STATUS_OK && (entry = readdir(d));)
        status = read_entry(chat, folder, entry->d_name, e);
    closedir(d);
    return status;
}

/* chat_template of tokenizer_config.json: a text, or a list of {"name", "template"}. */
static enum status read_config(struct chat *chat, const struct json *config, struct error *e) {
    const struct json *value = json_member(config, "chat_template");
    if (json_is_text(value)) {
        add_template(chat, "default", json_text(value));
        return STATUS_OK;
    }
    if (json_is_absent(value)) return STATUS_OK;
    if (!json_is_list(value) || json_count(value) > MAX_TEMPLATES)
        return error_set(e, STATUS_INVALID,
                         "chat_template: expected a string, or a list of at most %d",
                         MAX_TEMPLATES);
    for (size_t i = 0; i < json_count(value); i++) {
        const struct json *item = json_item(value, i), *source = json_member(item, "template");
        const char *name = json_word(json_member(item, "name"));
        if (name == NULL || !json_is_text(source))
            return error_set(e, STATUS_INVALID,
                             "chat_template: item %zu has no \"name\" and \"template\"", i);
        add_template(chat, name, json_text(source));
    }
    return STATUS_OK;
}

/* Tokens are texts, or objects that say "content". */
static void note_token(struct chat *chat, const char *name, const struct json *value) {
    if (json_kind(value) == JSON_KIND_OBJECT) value = json_member(value, "content");
    for (int i = 0; i < chat->n_tokens; i++)
        if (strcmp(chat->tokens[i].name, name) == 0) return;
    if (!json_is_text(value) || chat->n_tokens == CHAT_MAX_TOKENS) return;
    struct chat_token *token = &chat->tokens[chat->n_tokens];
    struct error e;
    if (json_from_text(&token->value, json_text(value), &e)) return;
    token->name = xstrdup(name);
    chat->n_tokens++;
}

static void note_tokens(struct chat *chat, const struct json *file) {
    static const char *const more[] = {"extra_special_tokens", "model_specific_special_tokens"};
    for (size_t i = 0; i < ARRAY_COUNT(named_tokens); i++)
        note_token(chat, named_tokens[i], json_member(file, named_tokens[i]));
    for (size_t i = 0; i < ARRAY_COUNT(more); i++) {
        const struct json *extra = json_member(file, more[i]);
        if (json_kind(extra) != JSON_KIND_OBJECT) continue;
        for (struct json_entry it = {0}; json_next(extra, &it);)
            note_token(chat, it.name.text, it.value);
    }
}

int32_t chat_end(const struct chat *chat, const struct tokenizer *tokenizer) {
    for (int i = 0; i < chat->n_tokens; i++)
        if (strcmp(chat->tokens[i].name, "eos_token") == 0)
            return tokenizer_added_id(tokenizer, json_text(chat->tokens[i].value));
    return -1;
}

/* Whether a template of the model writes texts of which that is true. */
static bool any_writes(const struct chat *chat, bool (*is)(struct text_span literals)) {
    for (int i = 0; i < chat->n_templates; i++)
        if (chat->templates[i].template && is(template_literals(chat->templates[i].template)))
            return true;
    return false;
}

enum thought_form chat_thoughts(const struct chat *chat) {
    enum thought_form form = THOUGHTS_NONE;
    for (int i = 0; i < chat->n_templates && form == THOUGHTS_NONE; i++)
        if (chat->templates[i].template)
            form = thought_form_of(template_literals(chat->templates[i].template));
    return form;
}

bool chat_has_channels(const struct chat *chat) { return any_writes(chat, harmony_is_written); }

/* *out stays NULL when there is no such file. */
static enum status file_load(struct json **out, const char *folder, const char *file,
                             struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", folder, file);
    enum status status = is_file(path.data) ? json_parse_file(out, path.data, e) : STATUS_OK;
    buffer_free(&path);
    return status;
}

/* chat_template.json, in which processors of pictures kept their template before transformers 4.50.
 */
static enum status read_processor(struct chat *chat, const char *folder, struct error *e) {
    struct json *file = NULL;
    enum status status = file_load(&file, folder, "chat_template.json", e);
    if (status == STATUS_OK && read_config(chat, file, e))
        status = error_prefix(e, "%s/chat_template.json", folder);
    json_close(file);
    return status;
}

/* That of the tower beside a GGUF file; *out stays NULL where there is none. */
static enum status load_processor(struct json **out, const char *file, struct error *e) {
    struct buffer text = {0};
    struct gguf *gguf;
    if (gguf_open_model(&gguf, file, e)) return e->status;
    enum status status = STATUS_OK;
    if (gguf_joined(gguf)) {
        status = gguf_write_processor(gguf, &text, e);
        if (status == STATUS_OK)
            status = json_parse(out, (struct text_span){text.data, text.size}, file, e);
        if (gguf_left_towers(gguf) > 0)
            log_info("%s: the vision tower is %s, which loses least of %d precisions", file,
                     gguf_name(gguf_joined(gguf)), gguf_left_towers(gguf) + 1);
    } else if (gguf_left_towers(gguf) > 0) {
        log_info(
            "%s: no vision tower of its folder goes with it (files tried: %d): texts are read, and "
            "no pictures",
            file, gguf_left_towers(gguf));
    }
    buffer_free(&text);
    gguf_close(gguf);
    return status;
}

static enum status read_gguf_pictures(struct chat *chat, const char *file,
                                      const struct json *config, struct error *e) {
    struct json *processor = NULL;
    enum status status = load_processor(&processor, file, e);
    if (processor) chat_pictures_read(chat, processor, config);
    json_close(processor);
    return status;
}

/* The processor's file is processor_config.json or, in older folders, preprocessor_config.json. */
static enum status read_pictures(struct chat *chat, const char *folder, const struct json *config,
                                 struct error *e) {
    static const char *const names[] = {"processor_config.json", "preprocessor_config.json"};
    struct buffer gguf = {0};
    enum status status = STATUS_OK;
    if (gguf_find_file(folder, &gguf)) {
        status = read_gguf_pictures(chat, gguf.data, config, e);
        buffer_free(&gguf);
        return status;
    }
    for (size_t i = 0; i < ARRAY_COUNT(names) && status == STATUS_OK; i++) {
        struct json *file = NULL;
        status = file_load(&file, folder, names[i], e);
        if (status == STATUS_OK && file && chat->picture_mark == NULL)
            chat_pictures_read(chat, file, config);
        json_close(file);
    }
    return status;
}

static enum status read_templates(struct chat *chat, const char *folder, const struct json *config,
                                  struct error *e) {
    struct buffer path = {0}, more = {0};
    buffer_printf(&path, "%s/%s", folder, template_file);
    buffer_printf(&more, "%s/%s", folder, template_folder);
    enum status status = is_file(path.data) ? read_file(chat, path.data, "default", e) : STATUS_OK;
    if (status == STATUS_OK) status = read_folder(chat, more.data, e);
    if (status == STATUS_OK && chat->n_templates == 0) status = read_processor(chat, folder, e);
    if (status == STATUS_OK && chat->n_templates == 0) {
        status = read_config(chat, config, e);
        if (status) error_prefix(e, "%s/tokenizer_config.json", folder);
    }
    buffer_free(&path);
    buffer_free(&more);
    return status;
}

static struct chat *chat_make(void) {
    struct chat *chat = xcalloc(1, sizeof *chat);
    chat->templates = xcalloc(MAX_TEMPLATES + 1, sizeof *chat->templates);
    return chat;
}

/* tokenizer_config.json; *out stays NULL where there is none. */
static enum status load_config(struct json **out, const char *path, struct error *e) {
    struct buffer file = {0}, text = {0};
    struct gguf *gguf;
    if (!gguf_find_file(path, &file)) return file_load(out, path, "tokenizer_config.json", e);

    enum status status = gguf_open_model(&gguf, file.data, e);
    if (status == STATUS_OK) {
        status = gguf_write_options(gguf, &text, e);
        if (status == STATUS_OK)
            status = json_parse(out, (struct text_span){text.data, text.size}, file.data, e);
        gguf_close(gguf);
    }
    buffer_free(&text);
    buffer_free(&file);
    return status;
}

enum status chat_open(struct chat **out, const char *path, struct error *e) {
    struct json *config = NULL, *marks = NULL;
    struct chat *chat = chat_make();
    enum status status = load_config(&config, path, e);
    if (status == STATUS_OK) status = file_load(&marks, path, "special_tokens_map.json", e);
    if (status == STATUS_OK) status = read_templates(chat, path, config, e);
    if (status == STATUS_OK && chat->n_templates == 0)
        status = error_set(
            e, STATUS_NOT_FOUND,
            "%s has no chat template: no %s, no %s/ and no chat_template in tokenizer_config.json",
            path, template_file, template_folder);
    if (status == STATUS_OK) status = read_pictures(chat, path, config, e);
    note_tokens(chat, config);
    note_tokens(chat, marks);
    qsort(chat->templates, (size_t)chat->n_templates, sizeof *chat->templates, compare_names);
    json_close(config);
    json_close(marks);
    *out = status == STATUS_OK ? chat : NULL;
    if (status) chat_close(chat);
    return status;
}

static void note_word(struct chat *chat, const char *name, const char *word) {
    struct error e;
    struct json *value = NULL;
    if (word && json_from_text(&value, (struct text_span){word, strlen(word)}, &e) == STATUS_OK)
        note_token(chat, name, value);
    json_close(value);
}

enum status chat_open_text(struct chat **out, struct text_span source, const char *bos,
                           const char *eos, struct error *e) {
    struct chat *chat = chat_make();
    add_template(chat, "default", source);
    note_word(chat, "bos_token", bos);
    note_word(chat, "eos_token", eos);
    *out = chat;
    if (chat->templates[0].template) return STATUS_OK;
    *e = chat->templates[0].error;
    *out = NULL;
    chat_close(chat);
    return e->status;
}

void chat_close(struct chat *chat) {
    if (chat == NULL) return;
    for (int i = 0; i < chat->n_templates; i++) {
        template_close(chat->templates[i].template);
        free(chat->templates[i].name);
        buffer_free(&chat->templates[i].source);
    }
    for (int i = 0; i < chat->n_tokens; i++) {
        json_close(chat->tokens[i].value);
        free(chat->tokens[i].name);
    }
    free(chat->picture_mark);
    buffer_free(&chat->picture_words);
    free(chat->templates);
    free(chat);
}
