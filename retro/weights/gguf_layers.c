/* retro/weights/gguf_layers.c: what the keys of a file say of its layers. See gguf_keys.h. */
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
