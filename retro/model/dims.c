/* retro/model/dims.c: checked access to config.json and the rules that join its keys. See spec.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "retro/model/spec.h"

static enum status wrong_type(struct error *e, const char *key, const char *expected) {
    return error_set(e, STATUS_INVALID, "config.json: \"%s\" must be %s", key, expected);
}

static enum status missing(struct error *e, const char *key) {
    return error_set(e, STATUS_INVALID, "config.json: required key \"%s\" is missing", key);
}

static enum status int_value(const struct json *value, const char *key, struct range range, int *out, struct error *e) {
    if (!json_is_int(value)) return wrong_type(e, key, "an integer");
    int64_t v = json_int(value);
    if (v < range.min || v > range.max)
        return error_set(e, STATUS_INVALID, "config.json: \"%s\" is %lld, allowed is %d .. %d", key, (long long)v,
                         range.min, range.max);
    *out = (int)v;
    return STATUS_OK;
}

enum status dims_int(const struct json *config, const char *key, struct range range, int *out, struct error *e) {
    const struct json *value = json_member(config, key);
    return value ? int_value(value, key, range, out, e) : missing(e, key);
}

enum status dims_int_or(const struct json *config, const char *key, struct range range, int fallback, int *out,
                        struct error *e) {
    const struct json *value = json_member(config, key);
    *out = fallback;
    return !json_is_absent(value) ? int_value(value, key, range, out, e) : STATUS_OK;
}

enum status dims_float_or(const struct json *config, const char *key, float fallback, float *out, struct error *e) {
    const struct json *value = json_member(config, key);
    *out = fallback;
    if (!value || json_is_absent(value)) return STATUS_OK;
    if (!json_is_numeric(value) || !isfinite(json_double(value))) return wrong_type(e, key, "a finite number");
    *out = (float)json_double(value);
    return STATUS_OK;
}

enum status dims_bool_or(const struct json *config, const char *key, bool fallback, bool *out, struct error *e) {
    const struct json *value = json_member(config, key);
    *out = fallback;
    if (!value || json_is_absent(value)) return STATUS_OK;
    if (json_kind(value) != JSON_KIND_BOOL) return wrong_type(e, key, "true or false");
    *out = json_bool(value);
    return STATUS_OK;
}

enum status dims_choice(const struct json *config, const char *key, const char *const *choices, int fallback, int *out,
                        struct error *e) {
    const struct json *value = json_member(config, key);
    *out = fallback;
    if (!value || json_is_absent(value)) return fallback >= 0 ? STATUS_OK : missing(e, key);
    if (!json_is_text(value)) return wrong_type(e, key, "a string");
    char known[200] = "";
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], json_text(value).text) == 0) {
            *out = i;
            return STATUS_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s\"%s\"", i ? ", " : "", choices[i]);
    }
    return error_set(e, STATUS_INVALID, "config.json: \"%s\" is \"%.60s\", known are %s", key, json_text(value).text,
                     known);
}

enum status dims_relative(const struct json *config, struct dims *d, struct error *e) {
    if (dims_int_or(config, "relative_attention_num_buckets", (struct range){4, 1 << 16}, 32, &d->buckets, e) ||
        dims_int_or(config, "relative_attention_max_distance", (struct range){2, 1 << 16}, 128, &d->max_distance, e))
        return e->status;
    if (d->buckets % 4 == 0 && d->max_distance > d->buckets / 2) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "config.json: relative_attention_num_buckets is %d, must be a multiple of 4 and less than twice "
                     "relative_attention_max_distance, which is %d",
                     d->buckets, d->max_distance);
}

struct model_spec model_spec_default(void) {
    struct model_spec s = {.logit_scale = 1, .eod = -1, .start = -1};
    s.retro.first_layer = -1;
    return s;
}

static enum status check_stack(const struct dims *d, struct error *e) {
    if (d->heads % d->kv_heads != 0)
        return error_set(e, STATUS_INVALID, "config.json: %d attention heads cannot share %d key/value heads", d->heads,
                         d->kv_heads);
    if (d->reads != EDGE_NONE && d->reads != EDGE_NEIGHBORS && d->reads != EDGE_CHUNK && d->heads != d->kv_heads)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: %d attention heads share %d key/value heads; cross attention to a source needs "
                         "as many of both",
                         d->heads, d->kv_heads);
    if (!(d->epsilon > 0))
        return error_set(e, STATUS_INVALID, "config.json: the norm's epsilon is %g, must be positive",
                         (double)d->epsilon);
    if (d->head_dim > ATTENTION_MAX_HEAD)
        return error_set(e, STATUS_UNSUPPORTED, "config.json: attention heads of %d, the largest supported is %d",
                         d->head_dim, ATTENTION_MAX_HEAD);
    if (d->rotated % 2 != 0 || d->rotated > d->head_dim)
        return error_set(e, STATUS_INVALID, "config.json: %d rotary dimensions of a head of %d; must be even and fit",
                         d->rotated, d->head_dim);
    return STATUS_OK;
}

enum status spec_check(const struct model_spec *s, struct error *e) {
    for (int i = 0; i < STACK_COUNT; i++)
        if (s->stacks[i].n_layers > 0 && check_stack(&s->stacks[i], e)) return e->status;
    if (s->vocab > s->padded_vocab)
        return error_set(e, STATUS_INVALID, "config.json: vocab_size %d is larger than padded_vocab_size %d", s->vocab,
                         s->padded_vocab);
    if (s->learned_positions && s->retro.retrieved_length > s->max_positions)
        return error_set(e, STATUS_INVALID, "config.json: retro_retrieved_length %d exceeds the %d learned positions",
                         s->retro.retrieved_length, s->max_positions);
    return STATUS_OK;
}
