/* retro/weights/gguf_names.c: tensors of GGUF's architectures by the names of their families'
 * checkpoints. See gguf_folder.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/weights/gguf_folder.h"
#include "retro/weights/gguf_keys.h"

const char *const gguf_dense_names[GGUF_DENSE] = {"dense_2.weight", "dense_3.weight"};

bool gguf_is_head(const char *name) {
    for (int i = 0; i < GGUF_DENSE; i++)
        if (strcmp(name, gguf_dense_names[i]) == 0) return true;
    return strncmp(name, "cls.", 4) == 0;
}

/* "blk.7.attn_q.weight": the layer 7, -1 outside of layers; its name's middle; ".weight". */
struct split_name {
    int layer;
    struct text_span middle;
    const char *ending;
};

static bool split_name(struct split_name *name_given, const char *name) {
    const char *at = name;
    name_given->layer = -1;
    if (strncmp(name, "blk.", 4) == 0) {
        char *end;
        unsigned long layer = strtoul(name + 4, &end, 10);
        if (end == name + 4 || *end != '.' || layer > 1 << 20) return false;
        name_given->layer = (int)layer;
        at = end + 1;
    }
    bool bare = strcmp(at, "ssm_a") == 0 || strcmp(at, "ssm_d") == 0 || ends_with(at, ".scale");
    name_given->ending = bare ? at + strlen(at) : strrchr(at, '.');
    if (name_given->ending == NULL ||
        (strcmp(name_given->ending, ".weight") != 0 && strcmp(name_given->ending, ".bias") != 0 &&
         *name_given->ending != '\0'))
        return false;
    name_given->middle = (struct text_span){at, (size_t)(name_given->ending - at)};
    return true;
}

/* False: a name without '*' has one ending. */
static bool join_name(struct gguf_view *view, const struct family_tensor *tensor,
                      const struct split_name *split_name) {
    struct buffer name = {0};
    const char *number = strchr(tensor->prefix, '#'), *star = strchr(tensor->name, '*');
    if (number)
        buffer_printf(&name, "%.*s%d%s", (int)(number - tensor->prefix), tensor->prefix,
                      split_name->layer, number + 1);
    if (star)
        buffer_printf(&name, "%.*s%s", (int)(star - tensor->name), tensor->name,
                      split_name->ending + 1);
    else
        buffer_append_string(&name, tensor->name);
    const char *ending = ends_with(tensor->name, "bias") ? ".bias" : ".weight";
    bool whole = *split_name->ending == '\0' || strcmp(split_name->ending, ending) == 0;
    bool fits = name.size < sizeof view->name && (star ? *split_name->ending != '\0' : whole);
    if (fits) memcpy(view->name, name.data, name.size + 1);
    buffer_free(&name);
    return fits;
}

/* Value heads of a tensor that has as many of them as the keys say; a wrong shape is found when it
 * is loaded. */
static struct head_order order_heads(const struct gguf *gguf,
                                     const struct architecture *architecture,
                                     const struct gguf_tensor *tensor, enum family_heads heads) {
    int64_t keys = 0, values = 0, inner = 0, key_dim = 0;
    gguf_int(architecture_value(gguf, architecture, "ssm.group_count"), &keys);
    gguf_int(architecture_value(gguf, architecture, "ssm.time_step_rank"), &values);
    gguf_int(architecture_value(gguf, architecture, "ssm.inner_size"), &inner);
    gguf_int(architecture_value(gguf, architecture, "ssm.state_size"), &key_dim);
    bool sound = keys > 0 && values > keys && values % keys == 0 && values < 1 << 20 && inner > 0 &&
                 inner % values == 0 && inner < 1 << 24 && key_dim > 0 && key_dim < 1 << 20;
    if (!architecture->tiled || heads == FAMILY_HEADS_NONE || !sound)
        return (struct head_order){.size = 0};
    struct head_order order = {.first = heads == FAMILY_HEADS_CHANNELS ? 2 * keys * key_dim : 0,
                               .size = heads == FAMILY_HEADS_ONE ? 1 : (int)(inner / values),
                               .keys = (int)keys,
                               .group = (int)(values / keys),
                               .columns = heads == FAMILY_HEADS_COLUMNS};
    int64_t rows = tensor->shape[order.columns ? tensor->n_dims - 1 : 0];
    bool fits = rows == order.first + order.size * values;
    return fits ? order : (struct head_order){.size = 0};
}

static void view_order(struct gguf_view *view, const struct family_tensor *tensor,
                       const struct architecture *architecture, int64_t head,
                       const struct gguf_tensor *gguf_tensor) {
    int64_t rows = gguf_tensor->shape[0];
    bool bias = ends_with(gguf_tensor->name, ".bias");
    if (strchr(tensor->name, '#')) view->stacked = bias ? 2 : 3;
    view->turned = tensor->transposed && !bias && gguf_tensor->n_dims >= 2;
    view->row = tensor->one_row && gguf_tensor->n_dims == 1;
    view->vector = tensor->vector && gguf_tensor->n_dims == 2;
    if (head <= 0 || head > INT32_MAX) return;
    if (architecture->paired && tensor->rotated && head % 2 == 0 && rows % head == 0)
        view->paired = (int)head;
    if (tensor->by_head && rows % (3 * head) == 0) view->apart = (int)head;
}

enum status gguf_view_tensor(struct gguf_view *view, const struct gguf *gguf,
                             const struct architecture *architecture,
                             const struct gguf_tensor *tensor, struct error *e) {
    struct split_name name;
    struct family_tensor family_tensor;
    *view = (struct gguf_view){.turned = false};
    if (architecture->headed && gguf_is_head(tensor->name)) {
        snprintf(view->name, sizeof view->name, "%s", tensor->name);
        return STATUS_OK;
    }
    if (strcmp(tensor->name, ROPE_FACTORS) == 0) return STATUS_OK;
    if (gguf_has_longrope(gguf, architecture) && (strcmp(tensor->name, ROPE_SHORT_FACTORS) == 0 ||
                                                  strcmp(tensor->name, ROPE_LONG_FACTORS) == 0))
        return STATUS_OK;
    bool split = split_name(&name, tensor->name);
    if (split && name.layer >= gguf_layers(gguf, architecture) &&
        architecture_value(gguf, architecture, "nextn_predict_layers"))
        return STATUS_OK;
    bool known =
        split && family_tensor_find(
                     architecture->named_as ? architecture->named_as : architecture->model_type,
                     name.layer >= 0, name.middle, name.ending, &family_tensor);
    if (!known || !join_name(view, &family_tensor, &name))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: tensor \"%s\" has no place in the architecture %s", gguf_name(gguf),
                         tensor->name, architecture->name);
    view_order(view, &family_tensor, architecture, gguf_head_size(gguf, architecture), tensor);
    view->heads = order_heads(gguf, architecture, tensor, family_tensor.heads);
    return STATUS_OK;
}
