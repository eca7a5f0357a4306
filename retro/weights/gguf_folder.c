/* retro/weights/gguf_folder.c: keys and tensors of GGUF's architectures in Hugging Face's words.
 * See gguf_folder.h. */
#include "retro/weights/gguf_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"
#include "retro/weights/gguf_keys.h"
#include "retro/weights/gguf_tower.h"

static enum status write_float(struct json_writer *w, const struct gguf *gguf,
                               const struct architecture *architecture, const struct key_row *row,
                               struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    double number = row->number;
    if (value && (!gguf_number(value, &number) || !isfinite((float)number)))
        return gguf_key_fail(gguf, architecture, row->key, "is not a finite number", e);
    if (value || number != 0) put_key_float(w, row->name, (float)number);
    return STATUS_OK;
}

static enum status write_bool(struct json_writer *w, const struct gguf *gguf,
                              const struct architecture *architecture, const struct key_row *row,
                              struct error *e) {
    const struct gguf_value *gguf_value = architecture_value(gguf, architecture, row->key);
    int64_t value = (int64_t)row->number;
    if (gguf_value && (gguf_value->type != GGUF_BOOL || !gguf_int(gguf_value, &value)))
        return gguf_key_fail(gguf, architecture, row->key, "is no truth value", e);
    put_key_bool(w, row->name, value != 0);
    return STATUS_OK;
}

static enum status write_word(struct json_writer *w, const struct gguf *gguf,
                              const struct architecture *architecture, const struct key_row *row,
                              struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    struct text_span word;
    if (value == NULL) return STATUS_OK;
    if (!gguf_text(value, &word))
        return gguf_key_fail(gguf, architecture, row->key, "is no text", e);
    put_key_string_n(w, row->name, word.text, word.size);
    return STATUS_OK;
}

/* A little more than the quotient, so that the product with the size of a head, rounded down, is
 * the number again. */
static enum status write_share(struct json_writer *w, const struct gguf *gguf,
                               const struct architecture *architecture, const struct key_row *row,
                               struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    int64_t n = 0, head = gguf_head_size(gguf, architecture);
    if (value == NULL) return STATUS_OK;
    if (!gguf_key_int(value, &n) || n < 1 || n > head)
        return gguf_key_fail(gguf, architecture, row->key, "is not a part of a head", e);
    put_key_float(w, row->name, n == head ? 1 : (float)(((double)n + 0.25) / (double)head));
    return STATUS_OK;
}

static enum status write_or_null(struct json_writer *w, const struct gguf *gguf,
                                 const struct architecture *architecture, const struct key_row *row,
                                 struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    int64_t number = 0;
    if (value && !gguf_key_int(value, &number))
        return gguf_key_fail(gguf, architecture, row->key, "is not one whole number", e);
    if (number == 0)
        put_key_null(w, row->name);
    else
        put_key_int(w, row->name, number);
    return STATUS_OK;
}

static enum status write_per_head(struct json_writer *w, const struct gguf *gguf,
                                  const struct architecture *architecture,
                                  const struct key_row *row, struct error *e) {
    int64_t all = 0, heads = 0;
    bool there = gguf_key_int(architecture_value(gguf, architecture, row->key), &all) &&
                 gguf_key_int(architecture_value(gguf, architecture, "ssm.time_step_rank"), &heads);
    if (!there || heads < 1 || all < heads || all % heads != 0)
        return gguf_key_fail(gguf, architecture, row->key,
                             "is absent or no multiple of ssm.time_step_rank", e);
    put_key_int(w, row->name, all / heads);
    return STATUS_OK;
}

static enum status write_int(struct json_writer *w, const struct gguf *gguf,
                             const struct architecture *architecture, const struct key_row *row,
                             struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    int64_t number = (int64_t)row->number;
    bool uneven = row->kind == KEY_UNEVEN;
    if (value && !(uneven ? gguf_key_uneven(value, &number) : gguf_key_int(value, &number)))
        return gguf_key_fail(gguf, architecture, row->key, "is not one whole number", e);
    if (value || number != 0 || row->kind == KEY_COUNT) put_key_int(w, row->name, number);
    return STATUS_OK;
}

static enum status write_turns(struct json_writer *w, const struct gguf *gguf,
                               const struct architecture *architecture, const struct key_row *row,
                               struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    int64_t turns = 1;
    if (value && (value->type != GGUF_BOOL || !gguf_int(value, &turns)))
        return gguf_key_fail(gguf, architecture, row->key, "is no truth value", e);
    put_key_string(w, row->name, turns ? "rope" : "nope");
    return STATUS_OK;
}

static enum status write_differs(struct json_writer *w, const struct gguf *gguf,
                                 const struct architecture *architecture, const struct key_row *row,
                                 struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    double number = 0;
    if (value && !gguf_number(value, &number))
        return gguf_key_fail(gguf, architecture, row->key, "is no number", e);
    put_key_bool(w, row->name, number != row->number);
    return STATUS_OK;
}

static enum status write_mscale(struct json_writer *w, const struct gguf *gguf,
                                const struct architecture *architecture, const struct key_row *row,
                                struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    double number = 0;
    if (value == NULL) return STATUS_OK;
    if (!gguf_number(value, &number) || !isfinite((float)(number / row->number)))
        return gguf_key_fail(gguf, architecture, row->key, "is not a finite number", e);
    float all = (float)(number / row->number);
    put_key_float(w, "mscale_all_dim", all);
    put_key_float(w, "mscale", row->name ? all : 1);
    return STATUS_OK;
}

/* Keys that are not supported, but with a value that changes nothing. */
static enum status check_key(const struct gguf *gguf, const struct architecture *architecture,
                             const struct key_row *row, struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    int64_t whole = 0;
    double number = 0;
    if (value == NULL) return STATUS_OK;
    if (row->kind == KEY_NEUTRAL) {
        if (gguf_number(value, &number) && number == row->number) return STATUS_OK;
        return gguf_key_fail(gguf, architecture, row->key, "has a value that is not supported", e);
    }
    if (gguf_key_int(value, &whole) && whole == gguf_head_size(gguf, architecture))
        return STATUS_OK;
    return gguf_key_fail(gguf, architecture, row->key,
                         "is not the size of a head, which is not supported", e);
}

static enum status write_key(struct json_writer *w, const struct gguf *gguf,
                             const struct architecture *architecture, const struct key_row *row,
                             struct error *e) {
    switch (row->kind) {
        case KEY_SECTIONS: return STATUS_OK; /* write_scaling */
        case KEY_IGNORED: return STATUS_OK;
        case KEY_WRITTEN: return STATUS_OK;
        case KEY_FLOAT: return write_float(w, gguf, architecture, row, e);
        case KEY_BOOL: return write_bool(w, gguf, architecture, row, e);
        case KEY_WORD: return write_word(w, gguf, architecture, row, e);
        case KEY_SHARE: return write_share(w, gguf, architecture, row, e);
        case KEY_OR_NULL: return write_or_null(w, gguf, architecture, row, e);
        case KEY_PATTERN: return gguf_write_pattern(w, gguf, architecture, row, e);
        case KEY_PER_HEAD: return write_per_head(w, gguf, architecture, row, e);
        case KEY_DIFFERS: return write_differs(w, gguf, architecture, row, e);
        case KEY_TURNS: return write_turns(w, gguf, architecture, row, e);
        case KEY_MSCALE: return write_mscale(w, gguf, architecture, row, e);
        case KEY_STATES: return gguf_write_layer_types(w, gguf, architecture, row, e);
        case KEY_LAYERS:
            put_key_int(w, row->name, gguf_layers(gguf, architecture));
            return STATUS_OK;
        case KEY_INT:
        case KEY_COUNT:
        case KEY_UNEVEN: return write_int(w, gguf, architecture, row, e);
        case KEY_NEUTRAL:
        case KEY_HEAD: return check_key(gguf, architecture, row, e);
    }
    return STATUS_OK;
}

enum status gguf_write_keys(struct json_writer *w, const struct gguf *gguf,
                            const struct architecture *architecture, const struct key_row *rows,
                            size_t n, struct error *e) {
    for (size_t i = 0; i < n; i++)
        if (write_key(w, gguf, architecture, &rows[i], e)) return e->status;
    return STATUS_OK;
}

static const struct key_row *find_sections(const struct gguf *gguf,
                                           const struct architecture *architecture) {
    for (size_t i = 0; i < architecture->n_keys; i++)
        if (architecture->keys[i].kind == KEY_SECTIONS &&
            architecture_value(gguf, architecture, architecture->keys[i].key))
            return &architecture->keys[i];
    return NULL;
}

/* Of time, line and column; files have a fourth number, which is 0. */
static enum status write_sections(struct json_writer *w, const struct gguf *gguf,
                                  const struct architecture *architecture,
                                  const struct key_row *row, struct error *e) {
    enum { SECTIONS = 3 };
    struct gguf_items it = gguf_items_of(architecture_value(gguf, architecture, row->key));
    struct gguf_value item;
    int n = 0;
    put_key_array(w, row->name);
    while (gguf_next(&it, &item)) {
        int64_t pairs;
        if (!gguf_int(&item, &pairs) || (n >= SECTIONS && pairs != 0))
            return gguf_key_fail(gguf, architecture, row->key,
                                 "is no list of three whole numbers and zeros", e);
        if (n < SECTIONS) put_int(w, pairs);
        n++;
    }
    put_array_end(w);
    return n < SECTIONS
               ? gguf_key_fail(gguf, architecture, row->key, "has fewer than three numbers", e)
               : STATUS_OK;
}

static enum status write_scaling(struct json_writer *w, const struct gguf *gguf,
                                 const struct architecture *architecture, struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, "rope.scaling.type");
    const struct key_row *sections = find_sections(gguf, architecture);
    struct text_span type = {"none", 4};
    if (value && !gguf_text(value, &type))
        return gguf_key_fail(gguf, architecture, "rope.scaling.type", "is not a text", e);
    bool scales = !span_is(type, "none");
    if (!scales && sections == NULL) return STATUS_OK;
    if (!scales) type = (struct text_span){"default", 7};
    put_key_object(w, "rope_scaling");
    put_key_string_n(w, "rope_type", type.text, type.size);
    if (architecture->untruncated) put_key_bool(w, "truncate", false);
    if (scales &&
        (gguf_write_keys(w, gguf, architecture, architecture_scaling_keys, architecture_n_scaling,
                         e) ||
         gguf_write_keys(w, gguf, architecture, architecture->scaling, architecture->n_scaling, e)))
        return e->status;
    if (sections && write_sections(w, gguf, architecture, sections, e)) return e->status;
    put_object_end(w);
    return STATUS_OK;
}

/* All ids that end an answer: of the text, of a turn, of a message. */
static void write_ends(struct json_writer *w, const struct gguf *gguf) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t ids[ARRAY_COUNT(keys)];
    int n = 0;
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        bool known = !gguf_int(gguf_value_find(gguf, keys[i]), &ids[n]);
        for (int k = 0; k < n; k++) known = known || ids[k] == ids[n];
        n += !known;
    }
    if (n == 0) return;
    put_key_array(w, "eos_token_id");
    for (int i = 0; i < n; i++) put_int(w, ids[i]);
    put_array_end(w);
}

static int64_t find_score_divisor(const struct gguf *gguf,
                                  const struct architecture *architecture) {
    int64_t layers = 0, hidden = 0, heads = 1;
    gguf_key_int(architecture_value(gguf, architecture, "block_count"), &layers);
    gguf_key_int(architecture_value(gguf, architecture, "embedding_length"), &hidden);
    gguf_key_int(architecture_value(gguf, architecture, "attention.head_count"), &heads);
    return layers == architecture->divided_layers && heads > 0 ? hidden / heads
                                                               : gguf_head_size(gguf, architecture);
}

static enum status write_list(struct json_writer *w, const struct gguf *gguf, const char *tensor,
                              const char *name, struct error *e) {
    const struct gguf_tensor *gguf_tensor = gguf_find(gguf, tensor);
    if (gguf_tensor == NULL)
        return error_set(e, STATUS_CORRUPT, "%s: tensor %s is missing", gguf_name(gguf), tensor);
    if (gguf_tensor->n_dims != 1 || gguf_tensor->form->dtype != DTYPE_F32 ||
        gguf_tensor->elements > 1 << 16)
        return error_set(e, STATUS_CORRUPT, "%s: tensor %s is no vector of F32", gguf_name(gguf),
                         tensor);
    put_key_array(w, name);
    for (size_t i = 0; i < gguf_tensor->elements; i++)
        put_float(w, ((const float *)(const void *)gguf_tensor->data)[i]);
    put_array_end(w);
    return STATUS_OK;
}

/* The tensors tell that this is longrope. */
static enum status write_longrope(struct json_writer *w, const struct gguf *gguf,
                                  const struct architecture *architecture, struct error *e) {
    static const struct key_row attention = {"rope.scaling.attn_factor", "attention_factor",
                                             KEY_FLOAT, 1};
    put_key_object(w, "rope_scaling");
    put_key_string(w, "rope_type", "longrope");
    if (write_list(w, gguf, ROPE_SHORT_FACTORS, "short_factor", e) ||
        write_list(w, gguf, ROPE_LONG_FACTORS, "long_factor", e) ||
        write_key(w, gguf, architecture, &attention, e))
        return e->status;
    put_object_end(w);
    return STATUS_OK;
}

static enum status write_rotation(struct json_writer *w, const struct gguf *gguf,
                                  const struct architecture *architecture, struct error *e) {
    if (architecture->wide) return gguf_write_wide(w, gguf, architecture, e);
    if (gguf_has_longrope(gguf, architecture)) return write_longrope(w, gguf, architecture, e);
    if (write_scaling(w, gguf, architecture, e)) return e->status;
    return gguf_find(gguf, ROPE_FACTORS) ? write_list(w, gguf, ROPE_FACTORS, "rope_factors", e)
                                         : STATUS_OK;
}

bool gguf_names_key(const struct key_row *rows, size_t n, struct text_span key) {
    for (size_t i = 0; i < n; i++)
        if (span_is(key, rows[i].key)) return true;
    return false;
}

/* Every key of the architecture must be known. */
static enum status check_keys(const struct gguf *gguf, const struct architecture *architecture,
                              struct error *e) {
    size_t prefix = strlen(architecture->name) + 1;
    for (int i = 0; i < gguf_value_count(gguf); i++) {
        struct text_span key = gguf_value_at(gguf, i)->key;
        if (key.size < prefix || memcmp(key.text, architecture->name, prefix - 1) != 0 ||
            key.text[prefix - 1] != '.')
            continue;
        key = (struct text_span){key.text + prefix, key.size - prefix};
        if (gguf_names_key(architecture->keys, architecture->n_keys, key) ||
            gguf_names_key(architecture_common_keys, architecture_n_common, key) ||
            gguf_names_key(architecture_scaling_keys, architecture_n_scaling, key) ||
            gguf_names_key(architecture->scaling, architecture->n_scaling, key) ||
            span_is(key, "rope.scaling.type"))
            continue;
        return error_set(
            e, STATUS_UNSUPPORTED, "%s: key \"%s.%.*s\" is not known, and may change results",
            gguf_name(gguf), architecture->name, (int)(key.size < 80 ? key.size : 80), key.text);
    }
    return STATUS_OK;
}

static enum status write_members(struct json_writer *w, const struct gguf *gguf,
                                 const struct architecture *architecture, struct error *e) {
    const struct gguf_tensor *words = gguf_find(gguf, "token_embd.weight");
    if (words == NULL || words->n_dims != 2)
        return error_set(e, STATUS_CORRUPT, "%s: tensor token_embd.weight is missing or no matrix",
                         gguf_name(gguf));
    put_key_string(w, "model_type", architecture->model_type);
    put_key_int(w, "vocab_size", words->shape[0]);
    for (size_t i = 0; i < architecture->n_facts; i++) {
        bool there = architecture_has_tensor(gguf, architecture->facts[i].tensor);
        put_key_bool(w, architecture->facts[i].name, there != architecture->facts[i].absent);
    }
    const struct gguf_tensor *types = gguf_find(gguf, "token_types.weight");
    if (types && types->n_dims == 2) put_key_int(w, "type_vocab_size", types->shape[0]);
    if (architecture->activation) put_key_string(w, "hidden_act", architecture->activation);
    write_ends(w, gguf);
    if (gguf_write_keys(w, gguf, architecture, architecture->keys, architecture->n_keys, e))
        return e->status;
    for (size_t i = 0; i < architecture_n_common; i++) {
        const struct key_row *row = &architecture_common_keys[i];
        struct text_span key = {row->key, strlen(row->key)};
        if (!gguf_names_key(architecture->keys, architecture->n_keys, key) &&
            write_key(w, gguf, architecture, row, e))
            return e->status;
    }
    if ((architecture->latent && gguf_write_latents(w, gguf, architecture, e)) ||
        (architecture->kinds_key && gguf_write_kinds(w, gguf, architecture, e)))
        return e->status;
    if (architecture->divisor)
        put_key_int(w, architecture->divisor, find_score_divisor(gguf, architecture));
    return write_rotation(w, gguf, architecture, e);
}

/* A family that reads pictures has the keys of the text in a text_config. */
static enum status write_whole(struct json_writer *w, const struct gguf *gguf,
                               const struct architecture *architecture, const char *whole,
                               struct error *e) {
    put_key_string(w, "model_type", whole);
    put_key_object(w, "text_config");
    if (write_members(w, gguf, architecture, e)) return e->status;
    if (gguf_joined(gguf)) gguf_write_tower_text(w, gguf, architecture);
    put_object_end(w);
    return gguf_joined(gguf) ? gguf_write_tower(w, gguf, e) : STATUS_OK;
}

enum status gguf_write_config(const struct gguf *gguf, struct buffer *json, struct error *e) {
    const struct architecture *architecture;
    struct json_writer w;
    if (architecture_find(gguf, &architecture, e) || check_keys(gguf, architecture, e))
        return e->status;
    const struct tower_kind *tower = gguf_tower_kind(gguf);
    const char *whole = tower ? tower_model_type(tower, architecture) : architecture->whole;
    put_begin_indented(&w, json, 2);
    put_object(&w);
    enum status status = whole ? write_whole(&w, gguf, architecture, whole, e)
                               : write_members(&w, gguf, architecture, e);
    put_object_end(&w);
    return status;
}

/* Keys of every architecture. */
static const struct key_row sampling_keys[] = {
    {"general.sampling.temp", "temperature", KEY_FLOAT, 0},
    {"general.sampling.top_k", "top_k", KEY_INT, 0},
    {"general.sampling.top_p", "top_p", KEY_FLOAT, 0},
    {"general.sampling.min_p", "min_p", KEY_FLOAT, 0},
    {"general.sampling.penalty_repeat", "repetition_penalty", KEY_FLOAT, 0},
};

enum status gguf_write_sampling(const struct gguf *gguf, struct buffer *json, struct error *e) {
    struct json_writer w;
    put_begin(&w, json);
    put_object(&w);
    for (size_t i = 0; i < ARRAY_COUNT(sampling_keys); i++) {
        const struct key_row *row = &sampling_keys[i];
        const struct gguf_value *value = gguf_value_find(gguf, row->key);
        int64_t whole = 0;
        double number = 0;
        bool good = row->kind == KEY_INT ? gguf_int(value, &whole)
                                         : gguf_number(value, &number) && isfinite((float)number);
        if (value && !good)
            return error_set(e, STATUS_UNSUPPORTED, "%s: key \"%s\" is not a %s number",
                             gguf_name(gguf), row->key, row->kind == KEY_INT ? "whole" : "finite");
        if (value && row->kind == KEY_INT) put_key_int(&w, row->name, whole);
        if (value && row->kind == KEY_FLOAT) put_key_float(&w, row->name, (float)number);
    }
    put_object_end(&w);
    return STATUS_OK;
}

enum status gguf_find_pooling(const struct gguf *gguf, enum gguf_pooling *out, struct error *e) {
    const struct architecture *architecture;
    if (architecture_find(gguf, &architecture, e)) return e->status;
    const struct gguf_value *value = architecture_value(gguf, architecture, "pooling_type");
    int64_t type = GGUF_POOLING_ABSENT;
    if (value && (!gguf_int(value, &type) || type < GGUF_POOLING_MEAN || type > GGUF_POOLING_RANK))
        return gguf_key_fail(
            gguf, architecture, "pooling_type",
            "is not supported: neither 1 (mean), 2 (cls), 3 (last) nor 4 (a reranker)", e);
    *out = (enum gguf_pooling)type;
    return STATUS_OK;
}
