/* tools/convert/sink/import_folder.c: the files of an imported folder beside its weights:
 * config.json, a card, the tokenizer, and the chat template of the models that NVIDIA tuned to
 * answer questions. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/json/json_writer.h"
#include "tools/convert/sink/sink.h"

enum { CONFIG_LIMIT = 1 << 20, TOKENIZER_LIMIT = 256 << 20 };

/* The prompt of Megatron-LM's tools/retro/text_generation: a line for the system, passages, turns,
 * each ended by a blank line. */
static const char instruct_template[] =
    "{%- set system = 'This is a chat between a user and an artificial intelligence assistant. The "
    "assistant gives "
    "helpful, detailed, and polite answers to the user\\'s questions based on the context. The "
    "assistant should also "
    "indicate when the answer cannot be found in the context.' -%}\n"
    "{%- set turns = messages -%}\n"
    "{%- if messages[0]['role'] == 'system' -%}\n"
    "{%- set system = messages[0]['content'] -%}\n"
    "{%- set turns = messages[1:] -%}\n"
    "{%- endif -%}\n"
    "{{- 'System: ' + system + '\\n\\n' -}}\n"
    "{%- if documents -%}\n"
    "{%- for document in documents -%}\n"
    "{%- if document['title'] -%}{{- 'title: ' + document['title'] + ', source: ' -}}{%- endif "
    "-%}\n"
    "{{- document['text'] + '\\n\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- endif -%}\n"
    "{%- for turn in turns -%}\n"
    "{%- if turn['role'] == 'user' -%}{{- 'User: ' + turn['content'] + '\\n\\n' -}}\n"
    "{%- elif turn['role'] == 'assistant' -%}{{- 'Assistant: ' + turn['content'] + '\\n\\n' -}}\n"
    "{%- else -%}{{- raise_exception('the roles are system, at first, user and assistant') -}}{%- "
    "endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}\n";

static void put_setting(struct json_writer *w, const struct setting *setting) {
    switch (setting->kind) {
        case SETTING_BOOL: put_key_bool(w, setting->name, setting->number != 0); break;
        case SETTING_INT: put_key_int(w, setting->name, setting->number); break;
        case SETTING_REAL:
            put_key(w, setting->name);
            put_double(w, setting->real);
            break;
        case SETTING_TEXT: put_key_string(w, setting->name, setting->text); break;
        case SETTING_NONE: break;
    }
}

static enum status write_config(const struct import_plan *plan, const struct output *out,
                                struct error *e) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin_indented(&w, &text, 1);
    put_object(&w);
    for (int i = 0; i < plan->config.n; i++) put_setting(&w, &plan->config.list[i]);
    if (plan->architecture == IMPORT_RETRO && !plan->trimmed) {
        put_key(&w, "retro_layers");
        put_array_line(&w);
        for (int64_t i = 0; i < plan->layers; i++)
            if (plan->cross[i]) put_int(&w, i + 1);
        put_array_end(&w);
    }
    put_object_end(&w);
    buffer_append_string(&text, "\n");
    enum status status = output_write(out, "config.json", &text, e);
    buffer_free(&text);
    return status;
}

static enum status write_card(const struct import_plan *plan, const char *note,
                              const struct output *out, struct error *e) {
    static const char *const names[] = {
        [IMPORT_RETRO] = "Retro", [IMPORT_GPT] = "GPT", [IMPORT_T5] = "T5", [IMPORT_BERT] = "BERT"};
    struct buffer text = {0};
    buffer_printf(
        &text,
        "# A %s from Megatron\n\nImported by retro-convert %s from a checkpoint of the format "
        "\"%s\", with the "
        "names of %s.\n\n| key | value from |\n|---|---|\n",
        plan->pictures ? "vision model" : names[plan->trimmed ? IMPORT_GPT : plan->architecture],
        RETRO_VERSION, plan->checkpoint->container,
        plan->legacy ? "Megatron-LM before Megatron-Core" : "Megatron-Core");
    for (int i = 0; i < plan->config.n; i++)
        if (plan->config.list[i].kind != SETTING_NONE)
            buffer_printf(&text, "| `%s` | %s |\n", plan->config.list[i].name,
                          plan->config.list[i].origin);
    if (note) buffer_append_string(&text, note);
    enum status status = output_write(out, "README.md", &text, e);
    buffer_free(&text);
    return status;
}

/* NVIDIA's instruct models are the legacy Retros whose gate is 0. */
static bool is_instruct(const struct import_plan *plan) {
    double gate;
    if (plan->pictures || plan->architecture != IMPORT_RETRO || !plan->legacy) return false;
    return plan->trimmed ||
           (settings_real(&plan->config, "retro_attention_gate", &gate) && gate == 0);
}

static enum status write_template(const struct output *out, struct error *e) {
    struct buffer path = {0}, text = {0};
    buffer_printf(&path, "%s/chat_template.jinja", out->partial);
    bool there = access(path.data, F_OK) == 0;
    buffer_append_string(&text, instruct_template);
    enum status status = there ? STATUS_OK : output_write(out, "chat_template.jinja", &text, e);
    buffer_free(&path);
    buffer_free(&text);
    return status;
}

static void put_language(struct json_writer *w, const struct settings *config) {
    size_t prefix = strlen("language.");
    put_key_object(w, "language");
    for (int i = 0; i < config->n; i++) {
        struct setting setting = config->list[i];
        if (strncmp(setting.name, "language.", prefix) != 0) continue;
        setting.name += prefix;
        put_setting(w, &setting);
    }
    put_object_end(w);
}

/* The given config.json, with the language model that the checkpoint describes. */
static enum status write_completed(const struct import_plan *plan, const char *path,
                                   const struct output *out, struct error *e) {
    struct buffer text = {0};
    struct json_writer w;
    struct json *given;
    if (json_parse_file(&given, path, e)) return e->status;
    put_begin_indented(&w, &text, 1);
    put_object(&w);
    for (struct json_entry it = {0}; json_next(given, &it);) {
        if (it.name.size == strlen("language") &&
            memcmp(it.name.text, "language", it.name.size) == 0)
            continue;
        put_key_n(&w, it.name.text, it.name.size);
        put_json(&w, it.value);
    }
    put_language(&w, &plan->config);
    put_object_end(&w);
    json_close(given);
    buffer_append_string(&text, "\n");
    enum status status = output_write(out, "config.json", &text, e);
    buffer_free(&text);
    return status;
}

/* All of config.json was given. */
static enum status copy_config(const char *path, const struct output *out, struct error *e) {
    struct buffer text = {0};
    enum status status = file_read(path, CONFIG_LIMIT, &text, e);
    if (status == STATUS_OK) status = output_write(out, "config.json", &text, e);
    buffer_free(&text);
    return status;
}

static enum status write_given(const struct import_plan *plan, const char *path,
                               const struct output *out, struct error *e) {
    bool described = settings_find(&plan->config, "language.num_layers") != NULL;
    return described ? write_completed(plan, path, out, e) : copy_config(path, out, e);
}

/* The tokenizer. */

/* Files of a tokenizer's folder. */
static const char *const companions[] = {"tokenizer.json",        "vocab.txt",
                                         "tokenizer.model",       "spiece.model",
                                         "tokenizer_config.json", "special_tokens_map.json",
                                         "added_tokens.json",     "chat_template.jinja"};

/* The name that a tokenizer's file has in a model folder. */
static const char *place_of(const char *path) {
    const char *ending = strrchr(path, '.');
    if (ending && strcmp(ending, ".json") == 0) return "tokenizer.json";
    return ending && strcmp(ending, ".txt") == 0 ? "vocab.txt" : "tokenizer.model";
}

static enum status copy_one(const struct output *out, const char *path, const char *name,
                            struct error *e) {
    struct buffer bytes = {0};
    enum status status = file_read(path, TOKENIZER_LIMIT, &bytes, e);
    if (status == STATUS_OK) status = output_write(out, name, &bytes, e);
    buffer_free(&bytes);
    return status;
}

static enum status copy_companions(const struct checkpoint *checkpoint, const struct output *out,
                                   struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < checkpoint->n_companions && status == STATUS_OK; i++) {
        struct buffer bytes = {0};
        buffer_append(&bytes, checkpoint->companions[i].bytes.text,
                      checkpoint->companions[i].bytes.size);
        status = output_write(out, checkpoint->companions[i].name, &bytes, e);
        buffer_free(&bytes);
    }
    return status;
}

static enum status copy_tokenizer(const struct import_plan *plan,
                                  const struct import_options *options, const struct output *out,
                                  struct error *e) {
    char *found = import_find_tokenizer(plan, options);
    if (found == NULL) return copy_companions(plan->checkpoint, out, e);
    bool whole = import_is_folder(found);
    enum status status = whole ? STATUS_OK : copy_one(out, found, place_of(found), e);
    char *slash = strrchr(found, '/');
    if (!whole && slash) *slash = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(companions) && status == STATUS_OK; i++) {
        struct buffer path = {0};
        struct stat st;
        bool vocabulary =
            i < 4; /* of a file that was given by its name, only what describes it is taken */
        buffer_printf(&path, "%s/%s", whole || slash ? found : ".", companions[i]);
        if ((whole || !vocabulary) && stat(path.data, &st) == 0 && S_ISREG(st.st_mode))
            status = copy_one(out, path.data, companions[i], e);
        buffer_free(&path);
    }
    free(found);
    return status;
}

enum status import_run(const struct import_plan *plan, const struct import_options *options,
                       const struct output *out, struct error *e) {
    if (import_write(plan, out, e) || copy_tokenizer(plan, options, out, e)) return e->status;
    enum status status =
        plan->pictures ? write_given(plan, options->config, out, e) : write_config(plan, out, e);
    if (status || write_card(plan, plan->pictures ? NULL : options->note, out, e)) return e->status;
    return is_instruct(plan) ? write_template(out, e) : STATUS_OK;
}
