/* retro/run/embed/encoder_folder.c: reads the files of a sentence-transformers folder. See
 * encoder_folder.h. */
#include "retro/run/embed/encoder_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/json/json_table.h"
#include "retro/weights/gguf_folder.h"

enum { PATH_SIZE = 4096 };

/* folder/name, or folder where name is "". A path that is too long becomes one that names no file.
 */
static void join_path(char path[PATH_SIZE], const char *folder, const char *name) {
    int n = snprintf(path, PATH_SIZE, "%s%s%s", folder, name[0] ? "/" : "", name);
    if (n >= PATH_SIZE) path[0] = '\0';
}

/* Reads folder/file by a table into *out; a file that is absent leaves *out as it is. */
static enum status read_table(const char *folder, const char *file, const struct json_table *table,
                              void *out, struct error *e) {
    char path[PATH_SIZE];
    struct json *root;
    join_path(path, folder, file);
    if (access(path, F_OK) != 0) return STATUS_OK;
    if (json_parse_file(&root, path, e)) return e->status;
    struct json_reader reader = {.name = path, .e = e};
    enum status status = json_table_read(&reader, table, root, out);
    json_close(root);
    return status;
}

/* Pooling. */

/* sentence-transformers 6 names one mode or a list; before, there was a flag for each. */
static const struct json_choice mode_names[] = {{"cls", POOLING_CLS},
                                                {"max", POOLING_MAX},
                                                {"mean", POOLING_MEAN},
                                                {"mean_sqrt_len_tokens", POOLING_MEAN_SQRT},
                                                {"weightedmean", POOLING_WEIGHTED},
                                                {"lasttoken", POOLING_LAST},
                                                {NULL, 0}};
static const struct json_choice mode_flags[] = {
    {"pooling_mode_cls_token", POOLING_CLS},
    {"pooling_mode_max_tokens", POOLING_MAX},
    {"pooling_mode_mean_tokens", POOLING_MEAN},
    {"pooling_mode_mean_sqrt_len_tokens", POOLING_MEAN_SQRT},
    {"pooling_mode_weightedmean_tokens", POOLING_WEIGHTED},
    {"pooling_mode_lasttoken", POOLING_LAST},
    {NULL, 0}};

struct pooling_keys {
    struct json_list modes; /* of int */
    int size;
    bool include_prompt;
};

static const struct json_field mode_field = {.type = JSON_CHOICE, .choices = mode_names};
static const struct json_field pooling_fields[] = {
    {"pooling_mode", JSON_LIST, JSON_AT(struct pooling_keys, modes), .min = 1, .max = POOLING_MODES,
     .item = &mode_field, .item_size = sizeof(int), .or_one = true},
    {"embedding_dimension|word_embedding_dimension", JSON_INT, JSON_AT(struct pooling_keys, size),
     .min = 1, .max = 1 << 20},
    {"include_prompt", JSON_BOOL, JSON_AT(struct pooling_keys, include_prompt), .fallback = true},
};
static const struct json_table pooling_table = JSON_TABLE(pooling_fields, .open = true);

static const struct json_choice *find_flag(const char *name) {
    for (const struct json_choice *choice = mode_flags; choice->name; choice++)
        if (strcmp(choice->name, name) == 0) return choice;
    return NULL;
}

static void add_mode(struct encoder_folder *folder, enum pooling_mode mode) {
    folder->modes[folder->n_modes] = mode;
    folder->n_modes++;
}

/* The flags of older folders, in the order in which their vectors are joined; none means the mean.
 */
static enum status read_flags(struct encoder_folder *folder, const struct json *root,
                              const char *path, struct error *e) {
    bool set[POOLING_MODES] = {false};
    for (struct json_entry it = {0}; json_next(root, &it);) {
        if (strncmp(it.name.text, "pooling_mode_", 13) != 0 || !json_bool(it.value)) continue;
        const struct json_choice *flag = find_flag(it.name.text);
        if (flag == NULL)
            return error_set(e, STATUS_UNSUPPORTED,
                             "%s: %s is a pooling mode that is not supported", path, it.name.text);
        set[flag->value] = true;
    }
    for (int mode = 0; mode < POOLING_MODES; mode++)
        if (set[mode]) add_mode(folder, (enum pooling_mode)mode);
    if (folder->n_modes == 0) add_mode(folder, POOLING_MEAN);
    return STATUS_OK;
}

static enum status read_pooling(struct encoder_folder *encoder_folder, const char *folder,
                                struct error *e) {
    char path[PATH_SIZE];
    struct json *root;
    struct pooling_keys keys = {.size = -1};
    join_path(path, folder, "config.json");
    if (json_parse_file(&root, path, e)) return e->status;
    struct json_reader reader = {.name = path, .e = e};
    enum status status = json_table_read(&reader, &pooling_table, root, &keys);

    encoder_folder->described = true;
    encoder_folder->pooled = keys.size;
    encoder_folder->include_prompt = keys.include_prompt;
    encoder_folder->n_modes = 0;
    for (size_t i = 0; status == STATUS_OK && i < keys.modes.count; i++)
        add_mode(encoder_folder, (enum pooling_mode)((const int *)keys.modes.items)[i]);
    if (status == STATUS_OK && encoder_folder->n_modes == 0)
        status = read_flags(encoder_folder, root, path, e);
    json_table_free(&pooling_table, &keys);
    json_close(root);
    return status;
}

/* Modules after pooling. */

static const struct json_choice activation_names[] = {
    {"torch.nn.modules.linear.Identity", DENSE_IDENTITY},
    {"torch.nn.modules.activation.Tanh", DENSE_TANH},
    {"torch.nn.modules.activation.ReLU", DENSE_RELU},
    {"torch.nn.modules.activation.Sigmoid", DENSE_SIGMOID},
    {"torch.nn.modules.activation.GELU", DENSE_GELU},
    {"torch.nn.modules.activation.SiLU", DENSE_SILU},
    {NULL, 0}};
/* Rows that a module reads and writes: only whole texts' here. */
static const struct json_choice feature_names[] = {{"sentence_embedding", 0}, {NULL, 0}};

struct dense_keys {
    int n_in, n_out, activation, feature;
    bool bias;
};

static const struct json_field dense_fields[] = {
    {"in_features", JSON_INT, JSON_AT(struct dense_keys, n_in), .min = 1, .max = 1 << 20,
     .required = true},
    {"out_features", JSON_INT, JSON_AT(struct dense_keys, n_out), .min = 1, .max = 1 << 20,
     .required = true},
    {"bias", JSON_BOOL, JSON_AT(struct dense_keys, bias), .fallback = true},
    {"activation_function", JSON_CHOICE, JSON_AT(struct dense_keys, activation),
     .choices = activation_names, .fallback = DENSE_TANH},
    {"module_input_name", JSON_CHOICE, JSON_AT(struct dense_keys, feature),
     .choices = feature_names},
    {"module_output_name", JSON_CHOICE, JSON_AT(struct dense_keys, feature),
     .choices = feature_names},
    {.name = "use_residual", .type = JSON_MUST_BE_FALSE},
};
static const struct json_table dense_table = JSON_TABLE(dense_fields, .open = true);

static const struct json_field normalize_fields[] = {
    {"module_input_name", JSON_CHOICE, JSON_AT(struct dense_keys, feature),
     .choices = feature_names},
    {"module_output_name", JSON_CHOICE, JSON_AT(struct dense_keys, feature),
     .choices = feature_names},
};
static const struct json_table normalize_table = JSON_TABLE(normalize_fields, .open = true);

static enum status read_dense(struct encoder_module *module, const char *folder, struct error *e) {
    char path[PATH_SIZE];
    struct dense_keys keys = {0};
    join_path(path, folder, "config.json");
    if (access(path, F_OK) != 0) return error_errno(e, "%s", path);
    if (read_table(folder, "config.json", &dense_table, &keys, e)) return e->status;
    *module = (struct encoder_module){
        .n_in = keys.n_in, .n_out = keys.n_out, .bias = keys.bias, .activation = keys.activation};
    module->folder = xstrdup(folder);
    return STATUS_OK;
}

static enum status read_normalize(struct encoder_module *module, const char *folder,
                                  struct error *e) {
    struct dense_keys keys = {0};
    *module = (struct encoder_module){.normalize = true};
    return read_table(folder, "config.json", &normalize_table, &keys, e);
}

/* modules.json. */

enum module_type {
    MODULE_TRANSFORMER,
    MODULE_POOLING,
    MODULE_DENSE,
    MODULE_NORMALIZE,
    MODULE_UNKNOWN
};

/* "sentence_transformers.models.Pooling" of old,
 * "sentence_transformers.sentence_transformer.modules.pooling.Pooling" now. Modules of other
 * packages are code that we do not have, whatever they are called. */
static enum module_type find_type(const char *type) {
    static const char *const known[] = {"Transformer", "Pooling", "Dense", "Normalize"};
    const char *last = type ? strrchr(type, '.') : NULL;
    if (last == NULL || strncmp(type, "sentence_transformers.", 22) != 0) return MODULE_UNKNOWN;
    for (int i = 0; i < MODULE_UNKNOWN; i++)
        if (strcmp(last + 1, known[i]) == 0) return (enum module_type)i;
    return MODULE_UNKNOWN;
}

/* A path of modules.json stays in the folder. */
static bool is_inside(const char *path) {
    return path && path[0] != '/' && strstr(path, "..") == NULL;
}

static struct encoder_module *add_module(struct encoder_folder *folder) {
    folder->n_modules++;
    return &folder->modules[folder->n_modules - 1];
}

/* Module number i; `order` is what the earlier ones were: 0 nothing, 1 the transformer, 2 pooling
 * too. */
static enum status read_module(struct encoder_folder *encoder_folder, const char *folder,
                               const struct json *module, int *order, struct error *e) {
    char path[PATH_SIZE];
    const char *type = json_word(json_member(module, "type")),
               *name = json_word(json_member(module, "path"));
    enum module_type kind = find_type(type);
    if (kind == MODULE_UNKNOWN)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "%s/modules.json: module %.80s; Transformer, Pooling, Dense and Normalize of "
            "sentence-transformers are supported",
            folder, type ? type : "without a type");
    if (!is_inside(name) || json_count(json_member(module, "kwargs")) > 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s/modules.json: module %.80s has a path out of the folder or kwargs",
                         folder, type);
    if ((kind == MODULE_TRANSFORMER) != (*order == 0) || (kind == MODULE_POOLING) != (*order == 1))
        return error_set(
            e, STATUS_UNSUPPORTED,
            "%s/modules.json: module %.80s; expected one Transformer, one Pooling, then Dense and "
            "Normalize",
            folder, type);
    if (encoder_folder->n_modules == ENCODER_MAX_MODULES)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s/modules.json: more than %d modules after Pooling", folder,
                         ENCODER_MAX_MODULES);

    join_path(path, folder, name);
    *order = min_int(*order + 1, 2);
    switch (kind) {
        case MODULE_POOLING: return read_pooling(encoder_folder, path, e);
        case MODULE_DENSE: return read_dense(add_module(encoder_folder), path, e);
        case MODULE_NORMALIZE: return read_normalize(add_module(encoder_folder), path, e);
        default: encoder_folder->model = xstrdup(path); return STATUS_OK;
    }
}

static enum status read_modules(struct encoder_folder *encoder_folder, const char *folder,
                                struct error *e) {
    char path[PATH_SIZE];
    struct json *modules;
    int order = 0;
    join_path(path, folder, "modules.json");
    if (json_parse_file(&modules, path, e)) return e->status;
    encoder_folder->described = true;
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < json_count(modules); i++)
        status = read_module(encoder_folder, folder, json_item(modules, i), &order, e);
    json_close(modules);
    if (status == STATUS_OK && order < 2)
        status = error_set(e, STATUS_INVALID,
                           "%s: expected a list that begins with Transformer and Pooling", path);
    encoder_folder->raw = encoder_folder->n_modules == 0 ||
                          !encoder_folder->modules[encoder_folder->n_modules - 1].normalize;
    return status;
}

/* A transformer alone: its rows' mean, or what a pooling configuration beside it says. */
static enum status read_alone(struct encoder_folder *encoder_folder, const char *folder,
                              struct error *e) {
    char path[PATH_SIZE];
    encoder_folder->model = xstrdup(folder);
    encoder_folder->modes[0] = POOLING_MEAN;
    encoder_folder->n_modes = 1;
    encoder_folder->include_prompt = true;
    encoder_folder->pooled = -1;
    encoder_folder->raw = true;
    join_path(path, folder, "1_Pooling/config.json");
    if (access(path, F_OK) != 0) return STATUS_OK;
    join_path(path, folder, "1_Pooling");
    return read_pooling(encoder_folder, path, e);
}

/* The transformer's files. */

struct transformer_keys {
    int max_tokens, task;
    bool lowercase;
};

/* A text that becomes a conversation is read by a chat template. */
static enum status parse_modalities(struct json_reader *reader, const struct json *value,
                                    void *object) {
    (void)object;
    if (json_member(value, "message") == NULL) return STATUS_OK;
    return json_fail(
        reader, JSON_FAULT_UNSUPPORTED,
        "\"modality_config\" has \"message\", a chat template around each text; this is "
        "not supported");
}

static const struct json_choice task_names[] = {{"feature-extraction", 0}, {NULL, 0}};
static const struct json_field transformer_fields[] = {
    {"max_seq_length", JSON_INT, JSON_AT(struct transformer_keys, max_tokens), .min = 1,
     .max = 1 << 24},
    {"do_lower_case", JSON_BOOL, JSON_AT(struct transformer_keys, lowercase)},
    {"transformer_task", JSON_CHOICE, JSON_AT(struct transformer_keys, task),
     .choices = task_names},
    {.name = "modality_config", .type = JSON_PARSED, .parse = parse_modalities},
    {.name = "processing_kwargs", .type = JSON_EMPTY},
    {.name = "query_length", .type = JSON_EMPTY},
    {.name = "document_length", .type = JSON_EMPTY},
    {.name = "query_expansion", .type = JSON_EMPTY},
};
static const struct json_table transformer_table = JSON_TABLE(transformer_fields, .open = true);

struct tokenizer_keys {
    double max_tokens; /* 1e30 says that nobody knows */
    int side;
};

static const struct json_choice side_names[] = {{"right", 0}, {NULL, 0}};
static const struct json_field tokenizer_fields[] = {
    {"model_max_length", JSON_DOUBLE, JSON_AT(struct tokenizer_keys, max_tokens), .min = 1,
     .max = 1e300},
    {"truncation_side", JSON_CHOICE, JSON_AT(struct tokenizer_keys, side), .choices = side_names},
};
static const struct json_table tokenizer_table = JSON_TABLE(tokenizer_fields, .open = true);

static enum status read_tokenizer_limit(struct encoder_folder *folder, struct error *e) {
    struct tokenizer_keys keys = {0};
    if (read_table(folder->model, "tokenizer_config.json", &tokenizer_table, &keys, e))
        return e->status;
    if (keys.max_tokens <= 1 << 24) folder->tokenizer_tokens = (int)keys.max_tokens;
    return STATUS_OK;
}

/* The transformer's own file has a name for each of some families; its limit goes before the
 * tokenizer's. */
static enum status read_limits(struct encoder_folder *folder, struct error *e) {
    static const char *const files[] = {
        "sentence_bert_config.json",       "sentence_roberta_config.json",
        "sentence_distilbert_config.json", "sentence_camembert_config.json",
        "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
        "sentence_xlnet_config.json"};
    struct transformer_keys keys = {0};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++)
        if (read_table(folder->model, files[i], &transformer_table, &keys, e)) return e->status;
    folder->lowercase = keys.lowercase;
    folder->max_tokens = keys.max_tokens;
    return read_tokenizer_limit(folder, e);
}

/* Prompts. */

struct prompt_keys {
    char *default_name;
    struct encoder_folder *f;
    int type;
};

/* A prompt of the role, under the first of the names that is there; null counts as "". */
static void take_prompt(struct encoder_folder *folder, enum encoder_role role,
                        const struct json *prompts, const char *const *names) {
    for (; *names && folder->prompts[role] == NULL; names++) {
        const struct json *prompt = json_member(prompts, *names);
        if (prompt)
            folder->prompts[role] = xstrdup(json_is_text(prompt) ? json_text(prompt).text : "");
    }
}

static enum status parse_prompts(struct json_reader *reader, const struct json *value,
                                 void *object) {
    static const char *const query[] = {"query", NULL}, *const document[] = {"document", "passage",
                                                                             "corpus", NULL};
    const struct prompt_keys *keys = object;
    if (json_kind(value) != JSON_KIND_OBJECT) return json_fail_type(reader, "an object", value);
    for (struct json_entry it = {0}; json_next(value, &it);)
        if (!json_is_absent(it.value) && json_word(it.value) == NULL)
            return json_fail(reader, JSON_FAULT_TYPE,
                             "\"prompts\" holds \"%.40s\", which is no text", it.name.text);
    take_prompt(keys->f, ENCODER_QUERY, value, query);
    take_prompt(keys->f, ENCODER_DOCUMENT, value, document);
    const char *plain[] = {keys->default_name, NULL};
    take_prompt(keys->f, ENCODER_PLAIN, value, plain);
    if (keys->default_name && keys->f->prompts[ENCODER_PLAIN] == NULL)
        return json_fail(reader, JSON_FAULT_VALUE,
                         "\"prompts\" lacks \"%.40s\", the default_prompt_name",
                         keys->default_name);
    return STATUS_OK;
}

static const struct json_choice model_types[] = {{"SentenceTransformer", 0}, {NULL, 0}};
static const struct json_field prompt_fields[] = {
    {"default_prompt_name", JSON_TEXT,
     JSON_AT(struct prompt_keys, default_name)}, /* before prompts, which need it */
    {"model_type", JSON_CHOICE, JSON_AT(struct prompt_keys, type), .choices = model_types},
    {.name = "prompts", .type = JSON_PARSED, .parse = parse_prompts},
};
static const struct json_table prompt_table = JSON_TABLE(prompt_fields, .open = true);

static enum status read_prompts(struct encoder_folder *encoder_folder, const char *folder,
                                struct error *e) {
    struct prompt_keys keys = {.f = encoder_folder};
    enum status status =
        read_table(folder, "config_sentence_transformers.json", &prompt_table, &keys, e);
    json_table_free(&prompt_table, &keys);
    for (int role = 0; role < ENCODER_ROLES; role++)
        if (encoder_folder->prompts[role] == NULL) encoder_folder->prompts[role] = xstrdup("");
    return status;
}

/* The matrices after pooling that a GGUF file has. They have no activation. */
static void add_dense(struct encoder_folder *folder, const struct gguf *gguf) {
    for (int i = 0; i < GGUF_DENSE; i++) {
        const struct gguf_tensor *matrix = gguf_find(gguf, gguf_dense_names[i]);
        bool fits = matrix && matrix->n_dims == 2 && matrix->shape[0] <= 1 << 20 &&
                    matrix->shape[1] <= 1 << 20;
        if (!fits) continue;
        struct encoder_module *module = add_module(folder);
        *module = (struct encoder_module){.n_in = (int)matrix->shape[1],
                                          .n_out = (int)matrix->shape[0],
                                          .activation = DENSE_IDENTITY,
                                          .weight_name = gguf_dense_names[i]};
        module->folder = xstrdup(folder->model);
    }
}

/* A GGUF file says how rows are pooled; prompts and limits have no keys there. */
static enum status read_gguf(struct encoder_folder *folder, const char *path, const char *file,
                             struct error *e) {
    static const enum pooling_mode modes[] = {[GGUF_POOLING_MEAN] = POOLING_MEAN,
                                              [GGUF_POOLING_CLS] = POOLING_CLS,
                                              [GGUF_POOLING_LAST] = POOLING_LAST};
    enum gguf_pooling pooling;
    struct gguf *gguf;
    if (gguf_open(&gguf, file, e)) return e->status;
    folder->model = xstrdup(path);
    enum status status = gguf_find_pooling(gguf, &pooling, e);
    if (status == STATUS_OK && pooling == GGUF_POOLING_RANK)
        status =
            error_set(e, STATUS_UNSUPPORTED,
                      "%s: a reranker's file is no embedder; set retrieval.reranker to it", path);
    add_dense(folder, gguf);
    gguf_close(gguf);
    if (status) {
        encoder_folder_free(folder);
        return status;
    }
    folder->described = pooling != GGUF_POOLING_ABSENT;
    folder->modes[0] = folder->described ? modes[pooling] : POOLING_MEAN;
    folder->n_modes = 1;
    folder->include_prompt = true;
    folder->pooled = -1;
    for (int role = 0; role < ENCODER_ROLES; role++) folder->prompts[role] = xstrdup("");
    return STATUS_OK;
}

enum status encoder_folder_read(struct encoder_folder *out, const char *folder, struct error *e) {
    char path[PATH_SIZE];
    struct buffer file = {0};
    *out = (struct encoder_folder){0};
    if (gguf_find_file(folder, &file)) {
        enum status read = read_gguf(out, folder, file.data, e);
        buffer_free(&file);
        return read;
    }
    join_path(path, folder, "modules.json");
    enum status status =
        access(path, F_OK) == 0 ? read_modules(out, folder, e) : read_alone(out, folder, e);
    if (status == STATUS_OK) status = read_limits(out, e);
    if (status == STATUS_OK) status = read_prompts(out, folder, e);
    if (status) encoder_folder_free(out);
    return status;
}

enum status encoder_folder_read_model(struct encoder_folder *out, const char *folder,
                                      struct error *e) {
    *out = (struct encoder_folder){.model = xstrdup(folder), .include_prompt = true, .pooled = -1};
    return read_tokenizer_limit(out, e);
}

void encoder_folder_free(struct encoder_folder *folder) {
    free(folder->model);
    for (int i = 0; i < folder->n_modules; i++) free(folder->modules[i].folder);
    for (int role = 0; role < ENCODER_ROLES; role++) free(folder->prompts[role]);
    *folder = (struct encoder_folder){0};
}
