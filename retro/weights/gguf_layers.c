/* retro/weights/gguf_layers.c: what the keys of a file say of its layers. See gguf_keys.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/weights/gguf_keys.h"

enum status gguf_key_fail(const struct gguf *gguf, const struct architecture *architecture,
                          const char *key, const char *what, struct error *e) {
    return error_set(e, STATUS_UNSUPPORTED, "%s: key \"%s.%s\" %s", gguf_name(gguf),
                     architecture->name, key, what);
}

/* The one number of a list, 0 left out where `uneven` says so. */
static bool read_list(const struct gguf_value *value, bool uneven, int64_t *out) {
    struct gguf_items it = gguf_items_of(value);
    struct gguf_value item;
    bool all = true, any = false;
    *out = 0;
    while (all && gguf_next(&it, &item)) {
        int64_t next;
        all = gguf_int(&item, &next);
        if (!all || (uneven && next == 0)) continue;
        all = !any || next == *out;
        *out = next;
        any = true;
    }
    return all && (any || uneven);
}

bool gguf_key_int(const struct gguf_value *value, int64_t *out) {
    bool list = value && value->type == GGUF_LIST;
    return list ? read_list(value, false, out) : gguf_int(value, out);
}

bool gguf_key_uneven(const struct gguf_value *value, int64_t *out) {
    bool list = value && value->type == GGUF_LIST;
    return list ? read_list(value, true, out) : gguf_int(value, out);
}

int64_t gguf_head_size(const struct gguf *gguf, const struct architecture *architecture) {
    int64_t size = 0, hidden = 0, heads = 0;
    if (gguf_key_int(architecture_value(gguf, architecture, "attention.key_length"), &size))
        return size;
    gguf_key_int(architecture_value(gguf, architecture, "embedding_length"), &hidden);
    gguf_key_int(architecture_value(gguf, architecture, "attention.head_count"), &heads);
    return heads > 0 ? hidden / heads : 0;
}

int64_t gguf_layers(const struct gguf *gguf, const struct architecture *architecture) {
    int64_t all = 0, further = 0;
    gguf_int(architecture_value(gguf, architecture, "block_count"), &all);
    gguf_int(architecture_value(gguf, architecture, "nextn_predict_layers"), &further);
    return further > 0 && further < all ? all - further : all;
}

bool gguf_has_longrope(const struct gguf *gguf, const struct architecture *architecture) {
    return strcmp(architecture->name, "phi3") == 0 &&
           (gguf_find(gguf, ROPE_SHORT_FACTORS) || gguf_find(gguf, ROPE_LONG_FACTORS));
}

enum status gguf_write_layer_types(struct json_writer *w, const struct gguf *gguf,
                                   const struct architecture *architecture,
                                   const struct key_row *row, struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    const char *kind = row->kind == KEY_STATES ? "linear_attention" : "sliding_attention";
    struct gguf_items it = gguf_items_of(value);
    struct gguf_value item;
    int64_t told, left = gguf_layers(gguf, architecture);
    if (value == NULL) return STATUS_OK;
    put_key_array(w, "layer_types");
    for (; left > 0 && gguf_next(&it, &item); left--) {
        if (item.type != GGUF_BOOL || !gguf_int(&item, &told))
            return gguf_key_fail(gguf, architecture, row->key,
                                 "is neither a number nor a list of truth values", e);
        put_string(w, told ? kind : "full_attention");
    }
    put_array_end(w);
    return STATUS_OK;
}

/* Without a window no layer has one. */
enum status gguf_write_pattern(struct json_writer *w, const struct gguf *gguf,
                               const struct architecture *architecture, const struct key_row *row,
                               struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, row->key);
    int64_t window = 0, period = (int64_t)row->number;
    if (!gguf_key_int(architecture_value(gguf, architecture, "attention.sliding_window"),
                      &window) ||
        window == 0) {
        put_key_int(w, row->name, 1);
        return STATUS_OK;
    }
    if (value && value->type == GGUF_LIST)
        return gguf_write_layer_types(w, gguf, architecture, row, e);
    if (value && !gguf_int(value, &period))
        return gguf_key_fail(gguf, architecture, row->key,
                             "is neither a number nor a list of truth values", e);
    put_key_int(w, row->name, period);
    return STATUS_OK;
}

/* A number of the next layer: of a list, or of all layers. */
struct layer_numbers {
    struct gguf_items items;
    int64_t all;
    bool listed;
};

static struct layer_numbers layer_numbers_of(const struct gguf *gguf,
                                             const struct architecture *architecture,
                                             const char *key) {
    const struct gguf_value *value = architecture_value(gguf, architecture, key);
    struct layer_numbers numbers = {.listed = value && value->type == GGUF_LIST};
    numbers.items = gguf_items_of(value);
    gguf_int(value, &numbers.all);
    return numbers;
}

/* False: the list is too short, or has an item that is no number. */
static bool layer_number_next(struct layer_numbers *numbers, int64_t *out) {
    struct gguf_value item;
    *out = numbers->all;
    return !numbers->listed || (gguf_next(&numbers->items, &item) && gguf_int(&item, out));
}

enum status gguf_write_kinds(struct json_writer *w, const struct gguf *gguf,
                             const struct architecture *architecture, struct error *e) {
    static const char heads_key[] = "attention.head_count_kv", mlp_key[] = "feed_forward_length";
    struct layer_numbers heads = layer_numbers_of(gguf, architecture, heads_key),
                         mlps = layer_numbers_of(gguf, architecture, mlp_key);
    int64_t n = gguf_layers(gguf, architecture);
    put_key_array(w, architecture->kinds_key);
    for (int64_t i = 0; i < n && i < ARCHITECTURE_LAYERS; i++) {
        int64_t kv_heads, mlp;
        if (!layer_number_next(&heads, &kv_heads))
            return gguf_key_fail(gguf, architecture, heads_key, "does not list every layer", e);
        if (!layer_number_next(&mlps, &mlp))
            return gguf_key_fail(gguf, architecture, mlp_key, "does not list every layer", e);
        bool alone = architecture->mlp_kind && mlp != 0;
        put_string(w, alone           ? architecture->mlp_kind
                      : kv_heads == 0 ? architecture->state_kind
                                      : "full_attention");
    }
    put_array_end(w);
    return STATUS_OK;
}

/* Sizes are added and subtracted, so they are bounded first. 0 where the key is absent. */
static enum status read_size(const struct gguf *gguf, const struct architecture *architecture,
                             const char *key, int64_t *out, struct error *e) {
    const struct gguf_value *value = architecture_value(gguf, architecture, key);
    *out = 0;
    if (value == NULL || (gguf_int(value, out) && *out >= 0 && *out <= INT32_MAX)) return STATUS_OK;
    return gguf_key_fail(gguf, architecture, key, "is no size", e);
}

/* The layers with a window and without, and the last ones, which read the keys of others. */
struct wide_layers {
    bool windowed[ARCHITECTURE_LAYERS];
    int64_t n, own;      /* layers, and those before the last ones */
    int64_t kv_heads[2]; /* of layers without a window, and with one; 0: there are none */
    int64_t ffn[2];      /* of the first layers, and of the last ones */
};

/* The number that all of them have. */
static bool agree(int64_t *of_all, int64_t number) {
    if (*of_all == 0) *of_all = number;
    return number > 0 && number <= INT32_MAX && *of_all == number;
}

static enum status read_wide_layers(struct wide_layers *out, const struct gguf *gguf,
                                    const struct architecture *architecture, struct error *e) {
    static const char pattern_key[] = "attention.sliding_window_pattern",
                      heads_key[] = "attention.head_count_kv", mlp_key[] = "feed_forward_length";
    struct layer_numbers windows = layer_numbers_of(gguf, architecture, pattern_key),
                         heads = layer_numbers_of(gguf, architecture, heads_key),
                         mlps = layer_numbers_of(gguf, architecture, mlp_key);
    int64_t shared;
    *out = (struct wide_layers){.n = gguf_layers(gguf, architecture)};
    if (out->n < 1 || out->n > ARCHITECTURE_LAYERS)
        return gguf_key_fail(gguf, architecture, "block_count", "is no number of layers", e);
    if (read_size(gguf, architecture, "attention.shared_kv_layers", &shared, e)) return e->status;
    out->own = out->n - shared;
    for (int64_t i = 0; i < out->n; i++) {
        int64_t windowed, kv_heads, ffn;
        if (!windows.listed || !layer_number_next(&windows, &windowed) ||
            (windowed && i == out->n - 1))
            return gguf_key_fail(gguf, architecture, pattern_key,
                                 "does not list every layer, of which the last has no window", e);
        out->windowed[i] = windowed != 0;
        if (!layer_number_next(&heads, &kv_heads) ||
            !agree(&out->kv_heads[windowed != 0], kv_heads))
            return gguf_key_fail(gguf, architecture, heads_key,
                                 "does not give all layers of a type as many heads", e);
        if (!layer_number_next(&mlps, &ffn) || !agree(&out->ffn[i >= out->own], ffn))
            return gguf_key_fail(gguf, architecture, mlp_key,
                                 "does not give the first and the last layers MLPs of one width",
                                 e);
    }
    if (out->ffn[1] == 0 || out->ffn[1] == out->ffn[0] || out->ffn[1] == 2 * out->ffn[0])
        return STATUS_OK;
    return gguf_key_fail(gguf, architecture, mlp_key,
                         "gives the last layers neither the width of the first nor twice that", e);
}

/* Whether values are keys: the first layer without a window that has keys of its own has no values.
 */
static bool lacks_values(const struct gguf *gguf, const struct wide_layers *layers) {
    char name[GGUF_NAME + 1];
    for (int64_t i = 0; i < layers->own; i++) {
        if (layers->windowed[i]) continue;
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", (int)i);
        return gguf_find(gguf, name) == NULL;
    }
    return false;
}

static void write_wide_layers(struct json_writer *w, const struct wide_layers *layers,
                              int64_t head) {
    put_key_array(w, "layer_types");
    for (int64_t i = 0; i < layers->n; i++)
        put_string(w, layers->windowed[i] ? "sliding_attention" : "full_attention");
    put_array_end(w);
    put_key_object(w, "per_layer_config");
    for (int64_t i = 0; i < layers->n; i++) {
        char number[24];
        if (layers->windowed[i]) continue;
        snprintf(number, sizeof number, "%d", (int)i);
        put_key_object(w, number);
        put_key_int(w, "head_dim", head);
        put_key_int(w, "num_key_value_heads", layers->kv_heads[0]);
        put_object_end(w);
    }
    put_object_end(w);
}

/* Frequencies are divided by 1, and in the last pairs by so much that these do not turn. */
static enum status find_turning(const struct gguf *gguf, int64_t head, double *share,
                                struct error *e) {
    const struct gguf_tensor *factors = gguf_find(gguf, ROPE_FACTORS);
    int64_t turning = 0;
    *share = 1;
    if (factors == NULL) return STATUS_OK;
    bool good =
        factors->n_dims == 1 && factors->form->dtype == DTYPE_F32 && factors->shape[0] == head / 2;
    const float *numbers = (const float *)(const void *)factors->data;
    while (good && turning < head / 2 && numbers[turning] == 1) turning++;
    for (int64_t i = turning; good && i < head / 2; i++) good = numbers[i] >= 1e20f;
    if (!good)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: tensor %s is not 1 for the first pairs of a head and very large for "
                         "the others",
                         gguf_name(gguf), ROPE_FACTORS);
    if (turning < head / 2) *share = ((double)(2 * turning) + 0.5) / (double)head;
    return STATUS_OK;
}

static enum status write_wide_rotation(struct json_writer *w, const struct gguf *gguf,
                                       const struct architecture *architecture, int64_t head,
                                       struct error *e) {
    const struct gguf_value *type = architecture_value(gguf, architecture, "rope.scaling.type");
    struct text_span none;
    double base = 10000, local = 10000, share;
    if (type && (!gguf_text(type, &none) || !span_is(none, "none")))
        return gguf_key_fail(gguf, architecture, "rope.scaling.type",
                             "has a value that is not supported", e);
    gguf_number(architecture_value(gguf, architecture, "rope.freq_base"), &base);
    gguf_number(architecture_value(gguf, architecture, "rope.freq_base_swa"), &local);
    if (!isfinite((float)base) || !isfinite((float)local))
        return gguf_key_fail(gguf, architecture, "rope.freq_base", "is not a finite number", e);
    if (find_turning(gguf, head, &share, e)) return e->status;
    put_key_object(w, "rope_parameters");
    put_key_object(w, "full_attention");
    put_key_string(w, "rope_type", "proportional");
    put_key_float(w, "rope_theta", (float)base);
    put_key_float(w, "partial_rotary_factor", (float)share);
    put_object_end(w);
    put_key_object(w, "sliding_attention");
    put_key_string(w, "rope_type", "default");
    put_key_float(w, "rope_theta", (float)local);
    put_object_end(w);
    put_object_end(w);
    return STATUS_OK;
}

enum status gguf_write_wide(struct json_writer *w, const struct gguf *gguf,
                            const struct architecture *architecture, struct error *e) {
    static const char *const sizes[] = {"attention.value_length_swa", "rope.dimension_count_swa"};
    const struct gguf_tensor *words = gguf_find(gguf, "per_layer_token_embd.weight");
    struct wide_layers layers;
    int64_t head = 0, narrow;
    if (read_size(gguf, architecture, "attention.key_length", &head, e) ||
        read_size(gguf, architecture, "attention.key_length_swa", &narrow, e) ||
        read_wide_layers(&layers, gguf, architecture, e))
        return e->status;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        int64_t size;
        if (read_size(gguf, architecture, sizes[i], &size, e)) return e->status;
        if (architecture_value(gguf, architecture, sizes[i]) && size != narrow)
            return gguf_key_fail(gguf, architecture, sizes[i],
                                 "is not the size of a head with a window, which is not supported",
                                 e);
    }
    put_key_int(w, "num_key_value_heads", layers.kv_heads[layers.kv_heads[1] > 0]);
    put_key_int(w, "intermediate_size", layers.ffn[0]);
    put_key_bool(w, "use_double_wide_mlp", layers.ffn[1] > layers.ffn[0]);
    put_key_bool(w, "attention_k_eq_v", lacks_values(gguf, &layers));
    if (words && words->n_dims == 2) put_key_int(w, "vocab_size_per_layer_input", words->shape[0]);
    write_wide_layers(w, &layers, head);
    return write_wide_rotation(w, gguf, architecture, head, e);
}

/* Files of today have heads as they meet latents, and keys of their own for those that are made;
 * older ones have the latter alone. */
static enum status find_latent_head(const struct gguf *gguf,
                                    const struct architecture *architecture, const char *key,
                                    int64_t met, int64_t *made, struct error *e) {
    char own[40];
    int64_t size = 0;
    snprintf(own, sizeof own, "%s_mla", key);
    if (read_size(gguf, architecture, key, &size, e) || read_size(gguf, architecture, own, made, e))
        return e->status;
    if (architecture_value(gguf, architecture, own) == NULL) {
        bool there = architecture_value(gguf, architecture, key) != NULL;
        *made = size;
        return there ? STATUS_OK : gguf_key_fail(gguf, architecture, key, "is absent", e);
    }
    return size == met ? STATUS_OK
                       : gguf_key_fail(gguf, architecture, key,
                                       "is not the size of a head that meets latents", e);
}

enum status gguf_write_latents(struct json_writer *w, const struct gguf *gguf,
                               const struct architecture *architecture, struct error *e) {
    int64_t rank, rope, heads = 0, groups = 0, sigmoid = 0, key, value;
    gguf_int(architecture_value(gguf, architecture, "attention.head_count"), &heads);
    gguf_int(architecture_value(gguf, architecture, "expert_group_count"), &groups);
    if (read_size(gguf, architecture, "attention.kv_lora_rank", &rank, e) ||
        read_size(gguf, architecture, "rope.dimension_count", &rope, e) ||
        find_latent_head(gguf, architecture, "attention.key_length", rank + rope, &key, e) ||
        find_latent_head(gguf, architecture, "attention.value_length", rank, &value, e))
        return e->status;
    put_key_int(w, "qk_nope_head_dim", key - rope);
    put_key_int(w, "v_head_dim", value);
    put_key_int(w, "num_key_value_heads", heads);
    put_key_bool(w, "rope_interleave", true);
    sigmoid = strcmp(architecture->model_type, "deepseek_v3") == 0;
    if (!sigmoid) put_key_string(w, "topk_method", groups > 1 ? "group_limited_greedy" : "greedy");
    return STATUS_OK;
}
