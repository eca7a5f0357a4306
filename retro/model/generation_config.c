/* retro/model/generation_config.c: see generation_config.h. */
#include "retro/model/generation_config.h"

#include <sys/stat.h>

#include "config/json/json_table.h"
#include "retro/weights/gguf_folder.h"

bool end_ids_have(const struct end_ids *ends, int32_t id) {
    for (int i = 0; i < ends->n; i++)
        if (ends->ids[i] == id) return true;
    return false;
}

enum status end_ids_add(struct end_ids *ends, int32_t id, struct error *e) {
    if (end_ids_have(ends, id)) return STATUS_OK;
    if (ends->n == MAX_END_IDS)
        return error_set(e, STATUS_UNSUPPORTED, "eos_token_id: more than %d ids", MAX_END_IDS);
    ends->ids[ends->n] = id;
    ends->n++;
    return STATUS_OK;
}

struct generation_config generation_config_none(void) {
    return (struct generation_config){
        .sampling = {
            .temperature = -1, .top_p = -1, .min_p = -1, .top_k = -1, .repetition_penalty = 1}};
}

/* The struct, and keys that have no place in it. */
struct generation_keys {
    struct generation_config config;
    struct json_list ends;
    bool samples; /* do_sample */
};

#define AT_SAMPLING(member) JSON_AT(struct generation_keys, config.sampling.member)
static const struct json_field end_item = {.type = JSON_INT, .min = -1, .max = INT32_MAX};
static const struct json_field fields[] = {
    {.name = "eos_token_id",
     .type = JSON_LIST,
     JSON_AT(struct generation_keys, ends),
     .item = &end_item,
     .item_size = sizeof(int),
     .or_one = true},
    {"do_sample", JSON_BOOL, JSON_AT(struct generation_keys, samples)},
    {"temperature", JSON_DOUBLE, AT_SAMPLING(temperature), .min = 0, .max = 100},
    {"top_p", JSON_DOUBLE, AT_SAMPLING(top_p), .min = 0, .max = 1},
    {"min_p", JSON_DOUBLE, AT_SAMPLING(min_p), .min = 0, .max = 1},
    {"top_k", JSON_INT, AT_SAMPLING(top_k), .min = -1, .max = INT32_MAX},
    {"repetition_penalty", JSON_DOUBLE, AT_SAMPLING(repetition_penalty), .min = 0.01, .max = 100},
    {"no_repeat_ngram_size", JSON_INT, AT_SAMPLING(no_repeat_ngram_size), .min = 0,
     .max = INT32_MAX},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* -1 stands for none in some files. */
static enum status take_ends(struct generation_keys *keys, struct error *e) {
    const int *ids = keys->ends.items;
    for (size_t i = 0; i < keys->ends.count; i++)
        if (ids[i] >= 0 && end_ids_add(&keys->config.ends, ids[i], e)) return e->status;
    return STATUS_OK;
}

/* Closes the document. */
static enum status read_members(const char *name, struct json *file, struct generation_keys *keys,
                                struct error *e) {
    struct json_reader reader = {.name = name, .e = e};
    enum status status = json_table_read(&reader, &table, file, keys);
    if (status == STATUS_OK && take_ends(keys, e)) status = error_prefix(e, "%s", name);
    json_list_free(&fields[0], &keys->ends);
    json_close(file);
    return status;
}

static enum status read_file(const char *path, struct generation_keys *keys, struct error *e) {
    struct json *file = NULL;
    if (json_parse_file(&file, path, e)) return e->status;
    keys->config.found = true;
    return read_members(path, file, keys, e);
}

static enum status read_gguf(const char *path, struct generation_keys *keys, struct error *e) {
    struct buffer text = {0};
    struct gguf *gguf;
    struct json *file = NULL;
    if (gguf_open(&gguf, path, e)) return e->status;
    enum status status = gguf_write_sampling(gguf, &text, e);
    gguf_close(gguf);
    if (status == STATUS_OK)
        status = json_parse(&file, (struct text_span){text.data, text.size}, path, e);
    buffer_free(&text);
    if (status) return status;
    keys->config.from_keys = true;
    return read_members(path, file, keys, e);
}

enum status generation_config_read(const char *path, struct generation_config *out,
                                   struct error *e) {
    struct generation_keys keys = {.config = generation_config_none(), .samples = true};
    struct buffer file = {0}, gguf = {0};
    struct stat the_stat;
    enum status status = STATUS_OK;
    buffer_printf(&file, "%s/generation_config.json", path);
    if (stat(file.data, &the_stat) == 0)
        status = read_file(file.data, &keys, e);
    else if (gguf_find_file(path, &gguf))
        status = read_gguf(gguf.data, &keys, e);
    buffer_free(&file);
    buffer_free(&gguf);
    if (!keys.samples) keys.config.sampling.temperature = 0;
    *out = keys.config;
    return status;
}

static void print_number(const char *name, double value, bool shown, struct buffer *out) {
    if (shown) buffer_printf(out, "%s%s %.6g", out->size > 0 ? ", " : "", name, value);
}

void sampling_defaults_print(const struct sampling_defaults *defaults, struct buffer *out) {
    struct buffer text = {0};
    print_number("temperature", defaults->temperature, defaults->temperature >= 0, &text);
    print_number("top_p", defaults->top_p, defaults->top_p >= 0, &text);
    print_number("min_p", defaults->min_p, defaults->min_p >= 0, &text);
    print_number("top_k", defaults->top_k, defaults->top_k >= 0, &text);
    print_number("repetition_penalty", defaults->repetition_penalty,
                 defaults->repetition_penalty != 1, &text);
    print_number("no_repeat_ngram_size", defaults->no_repeat_ngram_size,
                 defaults->no_repeat_ngram_size > 0, &text);
    buffer_append(out, text.data, text.size);
    buffer_free(&text);
}
