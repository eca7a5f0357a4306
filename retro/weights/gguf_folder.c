/* retro/weights/gguf_folder.c: keys and tensors of GGUF's architectures in Hugging Face's words. See gguf_folder.h. */
#include "retro/weights/gguf_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"
#include "retro/weights/gguf_architectures.h"

static const struct gguf_value *find_key(const struct gguf *g, const struct architecture *a, const char *key) {
    char name[100];
    snprintf(name, sizeof name, "%s.%s", a->name, key);
    return gguf_value_find(g, name);
}

static enum status fail_key(const struct gguf *g, const struct architecture *a, const char *key, const char *what,
                            struct error *e) {
    return error_set(e, STATUS_UNSUPPORTED, "%s: key \"%s.%s\" %s", gguf_name(g), a->name, key, what);
}

/* A whole number, or the one number of a list for all layers. */
static bool read_int(const struct gguf_value *v, int64_t *out) {
    if (v == NULL || v->type != GGUF_LIST) return gguf_int(v, out);
    struct gguf_items it = gguf_items_of(v);
    struct gguf_value item;
    bool all = gguf_next(&it, &item) && gguf_int(&item, out);
    while (all && gguf_next(&it, &item)) {
        int64_t next;
        all = gguf_int(&item, &next) && next == *out;
    }
    return all;
}

/* The size of a head. */
static int64_t head_size(const struct gguf *g, const struct architecture *a) {
    int64_t size = 0, hidden = 0, heads = 0;
    if (read_int(find_key(g, a, "attention.key_length"), &size)) return size;
    read_int(find_key(g, a, "embedding_length"), &hidden);
    read_int(find_key(g, a, "attention.head_count"), &heads);
    return heads > 0 ? hidden / heads : 0;
}

static enum status write_float(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                               const struct key_row *row, struct error *e) {
    const struct gguf_value *v = find_key(g, a, row->key);
    double number = row->number;
    if (v && (!gguf_number(v, &number) || !isfinite((float)number)))
        return fail_key(g, a, row->key, "is not a finite number", e);
    if (v || number != 0) put_key_float(w, row->name, (float)number);
    return STATUS_OK;
}

static enum status write_bool(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                              const struct key_row *row, struct error *e) {
    const struct gguf_value *v = find_key(g, a, row->key);
    int64_t value = (int64_t)row->number;
    if (v && (v->type != GGUF_BOOL || !gguf_int(v, &value))) return fail_key(g, a, row->key, "is no truth value", e);
    put_key_bool(w, row->name, value != 0);
    return STATUS_OK;
}

/* A little more than the quotient, so that the product with the size of a head, rounded down, is the number again. */
static enum status write_share(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                               const struct key_row *row, struct error *e) {
    const struct gguf_value *v = find_key(g, a, row->key);
    int64_t n = 0, head = head_size(g, a);
    if (v == NULL) return STATUS_OK;
    if (!read_int(v, &n) || n < 1 || n > head) return fail_key(g, a, row->key, "is not a part of a head", e);
    put_key_float(w, row->name, n == head ? 1 : (float)(((double)n + 0.25) / (double)head));
    return STATUS_OK;
}

static enum status write_window(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                const struct key_row *row, struct error *e) {
    const struct gguf_value *v = find_key(g, a, row->key);
    int64_t window = 0;
    if (v && !read_int(v, &window)) return fail_key(g, a, row->key, "is not one whole number", e);
    if (window == 0)
        put_key_null(w, row->name);
    else
        put_key_int(w, row->name, window);
    return STATUS_OK;
}

/* A truth value for each layer. */
static enum status write_layer_types(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                     const struct key_row *row, struct error *e) {
    struct gguf_items it = gguf_items_of(find_key(g, a, row->key));
    struct gguf_value item;
    int64_t windowed;
    put_key_array(w, "layer_types");
    while (gguf_next(&it, &item)) {
        if (item.type != GGUF_BOOL || !gguf_int(&item, &windowed))
            return fail_key(g, a, row->key, "is neither a number nor a list of truth values", e);
        put_string(w, windowed ? "sliding_attention" : "full_attention");
    }
    put_array_end(w);
    return STATUS_OK;
}

/* Without a window no layer has one. */
static enum status write_pattern(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                 const struct key_row *row, struct error *e) {
    const struct gguf_value *v = find_key(g, a, row->key);
    int64_t window = 0, period = (int64_t)row->number;
    if (!read_int(find_key(g, a, "attention.sliding_window"), &window) || window == 0) {
        put_key_int(w, row->name, 1);
        return STATUS_OK;
    }
    if (v && v->type == GGUF_LIST) return write_layer_types(w, g, a, row, e);
    if (v && !gguf_int(v, &period))
        return fail_key(g, a, row->key, "is neither a number nor a list of truth values", e);
    put_key_int(w, row->name, period);
    return STATUS_OK;
}

static enum status write_key(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                             const struct key_row *row, struct error *e) {
    const struct gguf_value *v = find_key(g, a, row->key);
    int64_t whole = 0;
    double number = 0;
    switch (row->kind) {
        case KEY_SECTIONS: return STATUS_OK; /* write_scaling */
        case KEY_IGNORED: return STATUS_OK;
        case KEY_FLOAT: return write_float(w, g, a, row, e);
        case KEY_BOOL: return write_bool(w, g, a, row, e);
        case KEY_SHARE: return write_share(w, g, a, row, e);
        case KEY_WINDOW: return write_window(w, g, a, row, e);
        case KEY_PATTERN: return write_pattern(w, g, a, row, e);
        case KEY_INT:
            if (v && !read_int(v, &whole)) return fail_key(g, a, row->key, "is not one whole number", e);
            if (v) put_key_int(w, row->name, whole);
            return STATUS_OK;
        case KEY_NEUTRAL:
            if (v == NULL || (gguf_number(v, &number) && number == row->number)) return STATUS_OK;
            return fail_key(g, a, row->key, "has a value that is not supported", e);
        case KEY_HEAD:
            if (v == NULL || (read_int(v, &whole) && whole == head_size(g, a))) return STATUS_OK;
            return fail_key(g, a, row->key, "is not the size of a head, which is not supported", e);
    }
    return STATUS_OK;
}

static enum status write_keys(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                              const struct key_row *rows, size_t n, struct error *e) {
    for (size_t i = 0; i < n; i++)
        if (write_key(w, g, a, &rows[i], e)) return e->status;
    return STATUS_OK;
}

static const struct key_row *find_sections(const struct gguf *g, const struct architecture *a) {
    for (size_t i = 0; i < a->n_keys; i++)
        if (a->keys[i].kind == KEY_SECTIONS && find_key(g, a, a->keys[i].key)) return &a->keys[i];
    return NULL;
}

/* Of time, line and column; files have a fourth number, which is 0. */
static enum status write_sections(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                  const struct key_row *row, struct error *e) {
    enum { SECTIONS = 3 };
    struct gguf_items it = gguf_items_of(find_key(g, a, row->key));
    struct gguf_value item;
    int n = 0;
    put_key_array(w, row->name);
    while (gguf_next(&it, &item)) {
        int64_t pairs;
        if (!gguf_int(&item, &pairs) || (n >= SECTIONS && pairs != 0))
            return fail_key(g, a, row->key, "is no list of three whole numbers and zeros", e);
        if (n < SECTIONS) put_int(w, pairs);
        n++;
    }
    put_array_end(w);
    return n < SECTIONS ? fail_key(g, a, row->key, "has fewer than three numbers", e) : STATUS_OK;
}

static enum status write_scaling(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                 struct error *e) {
    const struct gguf_value *v = find_key(g, a, "rope.scaling.type");
    const struct key_row *sections = find_sections(g, a);
    struct text_span type = {"none", 4};
    if (v && !gguf_text(v, &type)) return fail_key(g, a, "rope.scaling.type", "is not a text", e);
    bool scales = !span_is(type, "none");
    if (!scales && sections == NULL) return STATUS_OK;
    if (!scales) type = (struct text_span){"default", 7};
    put_key_object(w, "rope_scaling");
    put_key_string_n(w, "rope_type", type.text, type.size);
    if (scales && write_keys(w, g, a, architecture_scaling_keys, architecture_n_scaling, e)) return e->status;
    if (sections && write_sections(w, g, a, sections, e)) return e->status;
    put_object_end(w);
    return STATUS_OK;
}

/* All ids that end an answer: of the text, of a turn, of a message. */
static void write_ends(struct json_writer *w, const struct gguf *g) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t ids[ARRAY_COUNT(keys)];
    int n = 0;
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        bool known = !gguf_int(gguf_value_find(g, keys[i]), &ids[n]);
        for (int k = 0; k < n; k++) known = known || ids[k] == ids[n];
        n += !known;
    }
    if (n == 0) return;
    put_key_array(w, "eos_token_id");
    for (int i = 0; i < n; i++) put_int(w, ids[i]);
    put_array_end(w);
}

static int64_t find_score_divisor(const struct gguf *g, const struct architecture *a) {
    int64_t layers = 0, hidden = 0, heads = 1;
    read_int(find_key(g, a, "block_count"), &layers);
    read_int(find_key(g, a, "embedding_length"), &hidden);
    read_int(find_key(g, a, "attention.head_count"), &heads);
    return layers == a->divided_layers && heads > 0 ? hidden / heads : head_size(g, a);
}

/* Tensors by which the frequencies of RoPE are divided: all of them, or those of short and of long texts. */
static const char rope_factors[] = "rope_freqs.weight", short_factors[] = "rope_factors_short.weight",
                  long_factors[] = "rope_factors_long.weight";

static enum status write_list(struct json_writer *w, const struct gguf *g, const char *tensor, const char *name,
                              struct error *e) {
    const struct gguf_tensor *t = gguf_find(g, tensor);
    if (t == NULL) return error_set(e, STATUS_CORRUPT, "%s: tensor %s is missing", gguf_name(g), tensor);
    if (t->n_dims != 1 || t->form->dtype != DTYPE_F32 || t->elements > 1 << 16)
        return error_set(e, STATUS_CORRUPT, "%s: tensor %s is no vector of F32", gguf_name(g), tensor);
    put_key_array(w, name);
    for (size_t i = 0; i < t->elements; i++) put_float(w, ((const float *)(const void *)t->data)[i]);
    put_array_end(w);
    return STATUS_OK;
}

/* The tensors tell that this is longrope. */
static enum status write_longrope(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                  struct error *e) {
    static const struct key_row attention = {"rope.scaling.attn_factor", "attention_factor", KEY_FLOAT, 1};
    put_key_object(w, "rope_scaling");
    put_key_string(w, "rope_type", "longrope");
    if (write_list(w, g, short_factors, "short_factor", e) || write_list(w, g, long_factors, "long_factor", e) ||
        write_key(w, g, a, &attention, e))
        return e->status;
    put_object_end(w);
    return STATUS_OK;
}

static bool has_longrope(const struct gguf *g, const struct architecture *a) {
    return strcmp(a->name, "phi3") == 0 && (gguf_find(g, short_factors) || gguf_find(g, long_factors));
}

static enum status write_rotation(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                  struct error *e) {
    if (has_longrope(g, a)) return write_longrope(w, g, a, e);
    if (write_scaling(w, g, a, e)) return e->status;
    return gguf_find(g, rope_factors) ? write_list(w, g, rope_factors, "rope_factors", e) : STATUS_OK;
}

static bool names_key(const struct key_row *rows, size_t n, struct text_span key) {
    for (size_t i = 0; i < n; i++)
        if (span_is(key, rows[i].key)) return true;
    return false;
}

/* Every key of the architecture must be known. */
static enum status check_keys(const struct gguf *g, const struct architecture *a, struct error *e) {
    size_t prefix = strlen(a->name) + 1;
    for (int i = 0; i < gguf_value_count(g); i++) {
        struct text_span key = gguf_value_at(g, i)->key;
        if (key.size < prefix || memcmp(key.text, a->name, prefix - 1) != 0 || key.text[prefix - 1] != '.') continue;
        key = (struct text_span){key.text + prefix, key.size - prefix};
        if (names_key(a->keys, a->n_keys, key) || names_key(architecture_common_keys, architecture_n_common, key) ||
            names_key(architecture_scaling_keys, architecture_n_scaling, key) || span_is(key, "rope.scaling.type"))
            continue;
        return error_set(e, STATUS_UNSUPPORTED, "%s: key \"%s.%.*s\" is not known, and may change results",
                         gguf_name(g), a->name, (int)(key.size < 80 ? key.size : 80), key.text);
    }
    return STATUS_OK;
}

static enum status write_members(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                 struct error *e) {
    const struct gguf_tensor *words = gguf_find(g, "token_embd.weight");
    if (words == NULL || words->n_dims != 2)
        return error_set(e, STATUS_CORRUPT, "%s: tensor token_embd.weight is missing or no matrix", gguf_name(g));
    put_key_string(w, "model_type", a->model_type);
    put_key_int(w, "vocab_size", words->shape[0]);
    for (size_t i = 0; i < a->n_facts; i++) {
        bool there = gguf_find(g, a->facts[i].tensor) != NULL;
        put_key_bool(w, a->facts[i].name, there != a->facts[i].absent);
    }
    const struct gguf_tensor *types = gguf_find(g, "token_types.weight");
    if (types && types->n_dims == 2) put_key_int(w, "type_vocab_size", types->shape[0]);
    if (a->activation) put_key_string(w, "hidden_act", a->activation);
    write_ends(w, g);
    if (write_keys(w, g, a, a->keys, a->n_keys, e)) return e->status;
    for (size_t i = 0; i < architecture_n_common; i++) {
        const struct key_row *row = &architecture_common_keys[i];
        struct text_span key = {row->key, strlen(row->key)};
        if (!names_key(a->keys, a->n_keys, key) && write_key(w, g, a, row, e)) return e->status;
    }
    if (a->divisor) put_key_int(w, a->divisor, find_score_divisor(g, a));
    return write_rotation(w, g, a, e);
}

enum status gguf_write_config(const struct gguf *g, struct buffer *json, struct error *e) {
    const struct architecture *a;
    struct json_writer w;
    if (architecture_find(g, &a, e) || check_keys(g, a, e)) return e->status;
    put_begin_indented(&w, json, 2);
    put_object(&w);
    enum status status = write_members(&w, g, a, e);
    put_object_end(&w);
    return status;
}

enum status gguf_find_pooling(const struct gguf *g, enum gguf_pooling *out, struct error *e) {
    const struct architecture *a;
    if (architecture_find(g, &a, e)) return e->status;
    const struct gguf_value *v = find_key(g, a, "pooling_type");
    int64_t type = GGUF_POOLING_ABSENT;
    if (v && (!gguf_int(v, &type) || type < GGUF_POOLING_MEAN || type > GGUF_POOLING_LAST))
        return fail_key(g, a, "pooling_type", "is not supported: neither 1 (mean), 2 (cls) nor 3 (last)", e);
    *out = (enum gguf_pooling)type;
    return STATUS_OK;
}

static bool has_ending(const char *path, const char *ending) {
    size_t size = strlen(path), tail = strlen(ending);
    return size >= tail && strcmp(path + size - tail, ending) == 0;
}

bool gguf_find_file(const char *path, struct buffer *file) {
    struct stat st;
    struct buffer config = {0}, model = {0};
    if (stat(path, &st) != 0) return false;
    if (!S_ISDIR(st.st_mode)) {
        bool found = has_ending(path, ".gguf");
        if (found) buffer_append_string(file, path);
        return found;
    }
    buffer_printf(&config, "%s/config.json", path);
    buffer_printf(&model, "%s/model.gguf", path);
    bool found = stat(config.data, &st) != 0 && stat(model.data, &st) == 0;
    if (found) buffer_append_string(file, model.data);
    buffer_free(&config);
    buffer_free(&model);
    return found;
}

enum status config_read_text(const char *path, struct buffer *json, struct error *e) {
    struct buffer file = {0};
    struct gguf *g;
    enum status status;
    if (gguf_find_file(path, &file)) {
        status = gguf_open(&g, file.data, e);
        if (status == STATUS_OK) {
            status = gguf_write_config(g, json, e);
            gguf_close(g);
        }
    } else {
        buffer_printf(&file, "%s/config.json", path);
        status = file_read(file.data, JSON_FILE_LIMIT, json, e);
    }
    buffer_free(&file);
    return status;
}

/* Names of tensors. */

/* "blk.7.attn_q.weight": the layer 7, -1 outside of layers; its name's middle; ".weight". */
struct split_name {
    int layer;
    struct text_span middle;
    const char *ending;
};

static bool split_name(struct split_name *s, const char *name) {
    const char *at = name;
    s->layer = -1;
    if (strncmp(name, "blk.", 4) == 0) {
        char *end;
        unsigned long layer = strtoul(name + 4, &end, 10);
        if (end == name + 4 || *end != '.' || layer > 1 << 20) return false;
        s->layer = (int)layer;
        at = end + 1;
    }
    s->ending = strrchr(at, '.');
    if (s->ending == NULL || (strcmp(s->ending, ".weight") != 0 && strcmp(s->ending, ".bias") != 0)) return false;
    s->middle = (struct text_span){at, (size_t)(s->ending - at)};
    return true;
}

static const struct name_row *find_name(const struct architecture *a, const struct split_name *s) {
    const struct rows_of_names *names = s->layer < 0 ? &a->outer : &a->layer;
    for (size_t i = 0; i < names->n; i++)
        if (span_is(s->middle, names->rows[i].from)) return &names->rows[i];
    return NULL;
}

static void join_name(struct gguf_view *view, const struct architecture *a, const struct split_name *s,
                      const char *name) {
    size_t size = sizeof view->name;
    const char *number = strchr(a->layers, '#');
    int used = 0;
    if (s->layer >= 0)
        used = snprintf(view->name, size, "%.*s%d%s", (int)(number - a->layers), a->layers, s->layer, number + 1);
    used += snprintf(view->name + used, size - (size_t)used, "%s%s", name, s->ending);
    CHECK((size_t)used < size);
}

static void view_order(struct gguf_view *view, enum tensor_order order, int64_t head, const struct gguf_tensor *t) {
    int64_t rows = t->shape[0];
    view->turned = order == ORDER_TURNED && t->n_dims == 2;
    view->row = order == ORDER_ROW && t->n_dims == 1;
    if (head <= 0 || head > INT32_MAX) return;
    if (order == ORDER_PAIRED && head % 2 == 0 && rows % head == 0) view->paired = (int)head;
    if (order == ORDER_APART && rows % (3 * head) == 0) view->apart = (int)head;
}

enum status gguf_view_tensor(struct gguf_view *view, const struct gguf *g, const struct gguf_tensor *t,
                             struct error *e) {
    const struct architecture *a;
    struct split_name s;
    *view = (struct gguf_view){.turned = false};
    if (architecture_find(g, &a, e)) return e->status;
    if (strcmp(t->name, rope_factors) == 0) return STATUS_OK;
    if (has_longrope(g, a) && (strcmp(t->name, short_factors) == 0 || strcmp(t->name, long_factors) == 0))
        return STATUS_OK;
    const struct name_row *row = split_name(&s, t->name) ? find_name(a, &s) : NULL;
    if (row == NULL)
        return error_set(e, STATUS_UNSUPPORTED, "%s: tensor \"%s\" has no place in the architecture %s", gguf_name(g),
                         t->name, a->name);
    join_name(view, a, &s, row->to);
    view->stacked = strchr(row->to, '#') != NULL;
    view_order(view, row->order, head_size(g, a), t);
    return STATUS_OK;
}
