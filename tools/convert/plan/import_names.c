/* tools/convert/plan/import_names.c: names of a checkpoint's tensors become those of our families:
 * Megatron-Core's, as Transformer Engine calls the norms (docs/spec/retro-model.md 9.2). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/families/megatron.h"
#include "retro/model/place_names.h"
#include "tools/convert/plan/import.h"

static bool any_starts(const struct checkpoint *checkpoint, const char *start) {
    for (int i = 0; i < checkpoint->n; i++)
        if (starts_with(checkpoint->tensors[i].name, start)) return true;
    return false;
}

static bool any_contains(const struct checkpoint *checkpoint, const char *part) {
    for (int i = 0; i < checkpoint->n; i++)
        if (strstr(checkpoint->tensors[i].name, part)) return true;
    return false;
}

/* Replaces the name by start + the rest of it behind `skip` bytes. */
static void rename_start(struct checkpoint_tensor *tensor, size_t skip, const char *start) {
    struct buffer name = {0};
    buffer_printf(&name, "%s%s", start, tensor->name + skip);
    free(tensor->name);
    tensor->name = name.data;
}

static void rename_part(struct checkpoint_tensor *tensor, const char *part, const char *by) {
    const char *found = strstr(tensor->name, part);
    struct buffer name = {0};
    if (found == NULL) return;
    buffer_printf(&name, "%.*s%s%s", (int)(found - tensor->name), tensor->name, by,
                  found + strlen(part));
    free(tensor->name);
    tensor->name = name.data;
}

/* Containers put the whole model under one or more of these. */
static void strip_outer(struct checkpoint *checkpoint, bool pictures) {
    static const char *const outer[] = {"model.", "module.", "language_model."};
    for (int i = 0; i < checkpoint->n; i++) {
        bool again = true;
        while (again) {
            again = false;
            for (size_t k = 0; k < ARRAY_COUNT(outer) - pictures;
                 k++) { /* a LLaVA's language model keeps its name */
                if (!starts_with(checkpoint->tensors[i].name, outer[k])) continue;
                rename_start(&checkpoint->tensors[i], strlen(outer[k]), "");
                again = true;
            }
        }
    }
}

/* Legacy names. */

/* The number behind "layers." in a name that begins with `stack` + "layers."; -1: another name.
 * *tail is behind it. */
static int layer_of(const char *name, const char *stack, const char **tail) {
    size_t n = strlen(stack);
    if (strncmp(name, stack, n) != 0 || !starts_with(name + n, "layers.") ||
        !isdigit((unsigned char)name[n + 7]))
        return -1;
    char *end;
    long layer = strtol(name + n + 7, &end, 10);
    *tail = end + 1;
    return *end == '.' && layer < 1 << 20 ? (int)layer : -1;
}

/* Spellings that changed over the years. */
static void normalise_legacy(struct checkpoint *checkpoint) {
    for (int i = 0; i < checkpoint->n; i++) {
        struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        if (starts_with(tensor->name, "transformer."))
            rename_start(tensor, strlen("transformer."), "encoder.");
        rename_part(tensor, ".attention.", ".self_attention.");
        rename_part(tensor, "_layernorm.", "_norm.");
    }
}

/* Retro of early 2023 holds the encoder of neighbours at other places, too. */
static void fold_retrievers(struct checkpoint *checkpoint) {
    static const char *const places[] = {"encoder.retriever.", "retriever."};
    int first = -1;
    const char *tail;
    for (int i = 0; i < checkpoint->n; i++) {
        int layer = layer_of(checkpoint->tensors[i].name, "encoder.", &tail);
        if (layer >= 0 && starts_with(tail, "inter_attention.") && (first < 0 || layer < first))
            first = layer;
    }
    if (first < 0) return;
    struct buffer start = {0};
    buffer_printf(&start, "encoder.layers.%d.retriever.", first);
    for (int i = 0; i < checkpoint->n; i++)
        for (size_t k = 0; k < ARRAY_COUNT(places); k++)
            if (starts_with(checkpoint->tensors[i].name, places[k]))
                rename_start(&checkpoint->tensors[i], strlen(places[k]), start.data);
    buffer_free(&start);
}

/* Names in layers, which those of Megatron-Core follow from by its own rows. */
static const struct place_name legacy_layer[] = {
    {offsetof(struct layer, norm_in), PART_WHOLE, "input_norm"},
    {offsetof(struct layer, qkv), PART_WHOLE, "self_attention.query_key_value"},
    {offsetof(struct layer, proj), PART_WHOLE, "self_attention.dense"},
    {offsetof(struct layer, norm_mlp), PART_WHOLE, "post_attention_norm"},
    {offsetof(struct layer, cross_q), PART_WHOLE, "inter_attention.query"},
    {offsetof(struct layer, cross_kv), PART_WHOLE, "inter_attention.key_value"},
    {offsetof(struct layer, cross_proj), PART_WHOLE, "inter_attention.dense"},
    {offsetof(struct layer, norm_mlp), PART_WHOLE, "post_inter_attention_norm"},
    {offsetof(struct layer, fc1), PART_WHOLE, "mlp.dense_h_to_4h"},
    {offsetof(struct layer, fc2), PART_WHOLE, "mlp.dense_4h_to_h"},
};
static const struct place_names legacy_names = {legacy_layer, ARRAY_COUNT(legacy_layer)};

/* Names outside layers. */
static const char *const legacy_outer[][2] = {{"encoder.final_norm.", "encoder.final_layernorm."},
                                              {"decoder.final_norm.", "decoder.final_layernorm."},
                                              {"word_embeddings_for_head.", "output_layer."}};

/* Appends a name behind a layer's number; one that has no row stays as it is, and is found to be
 * unknown later. */
static void put_legacy_tail(struct buffer *name, const char *tail, bool cross, bool neighbours) {
    static const struct tensor_rows rows = {{NULL}, megatron_layer_rows, MEGATRON_LAYER_ROWS};
    const char *ending = strrchr(tail, '.');
    size_t middle = ending ? (size_t)(ending - tail) : strlen(tail);
    const struct tensor_row *row =
        place_names_row(&legacy_names, &rows, (struct text_span){tail, middle}, NULL);
    const char *to = row && ending ? row->names[0] : tail;
    if (cross && starts_with(tail, "post_attention_norm.")) to = "pre_cross_attn_layernorm.*";
    if (cross && neighbours && starts_with(tail, "post_inter_attention_norm."))
        to = "pre_mlp_layernorm.norm.*";
    const char *star = strchr(to, '*');
    buffer_printf(name, "%.*s%s", (int)(star ? (size_t)(star - to) : strlen(to)), to,
                  star ? ending + 1 : "");
}

static bool has_cross(const struct checkpoint *checkpoint, const char *layer) {
    struct buffer start = {0};
    buffer_printf(&start, "%sinter_attention.", layer);
    bool found = any_starts(checkpoint, start.data);
    buffer_free(&start);
    return found;
}

/* A tensor of a layer; `tail` is behind the layer's number. */
static void put_legacy_layer(struct buffer *name, const struct checkpoint *checkpoint,
                             const struct checkpoint_tensor *tensor, const char *tail) {
    const char *inner;
    int j = layer_of(tail, "retriever.", &inner);
    if (j < 0) inner = tail;
    char *layer = xstrndup(tensor->name, (size_t)(inner - tensor->name));
    buffer_append(name, tensor->name, (size_t)(tail - tensor->name));
    if (j >= 0) buffer_printf(name, "cross_attention.encoder.layers.%d.", j);
    put_legacy_tail(name, inner, has_cross(checkpoint, layer), j >= 0);
    free(layer);
}

static char *legacy_name(const struct checkpoint *checkpoint,
                         const struct checkpoint_tensor *tensor, bool two_stacks) {
    struct buffer name = {0};
    const char *tail = tensor->name;
    if (layer_of(tensor->name, "encoder.", &tail) >= 0 ||
        layer_of(tensor->name, "decoder.", &tail) >= 0) {
        put_legacy_layer(&name, checkpoint, tensor, tail);
        return name.data;
    }
    tail = two_stacks && strcmp(tensor->name, "lm_head.bias") == 0 ? "lm_head.output_layer.bias"
                                                                   : tensor->name;
    for (size_t i = 0; i < ARRAY_COUNT(legacy_outer); i++) {
        if (!starts_with(tensor->name, legacy_outer[i][0])) continue;
        buffer_append_string(&name, legacy_outer[i][1]);
        tail = tensor->name + strlen(legacy_outer[i][0]);
    }
    buffer_append_string(&name, tail);
    return name.data;
}

static void rename_legacy(struct checkpoint *checkpoint, bool bert) {
    normalise_legacy(checkpoint);
    fold_retrievers(checkpoint);
    bool two_stacks = any_starts(checkpoint, "decoder.layers.");
    char **names = xcalloc((size_t)checkpoint->n + 1, sizeof *names);
    for (int i = 0; i < checkpoint->n && !two_stacks && !bert;
         i++) /* GPT and Retro have one stack, a decoder */
        if (starts_with(checkpoint->tensors[i].name, "encoder."))
            rename_start(&checkpoint->tensors[i], strlen("encoder."), "decoder.");
    for (int i = 0; i < checkpoint->n; i++)
        names[i] = legacy_name(checkpoint, &checkpoint->tensors[i], two_stacks);
    for (int i = 0; i < checkpoint->n; i++) {
        free(checkpoint->tensors[i].name);
        checkpoint->tensors[i].name = names[i];
        if (two_stacks)
            rename_part(&checkpoint->tensors[i], ".cross_attention.attn.", ".cross_attention.");
    }
    free(names);
}

/* Megatron-Core's names without Transformer Engine, and those that T5 registers twice. */
static void rename_core(struct checkpoint *checkpoint, bool pictures) {
    bool two_stacks = any_starts(checkpoint, "encoder.layers.");
    for (int i = 0; i < checkpoint->n; i++) {
        struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        rename_part(tensor, ".input_layernorm.", ".self_attention.linear_qkv.layer_norm_");
        if (strstr(tensor->name, ".pre_mlp_layernorm.norm.") == NULL)
            rename_part(tensor, ".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_");
        if (pictures) continue;
        if (strcmp(tensor->name, "position_embeddings.weight") == 0)
            rename_start(tensor, 0, "embedding.");
        bool twice = strcmp(tensor->name, "output_layer.bias") == 0 ||
                     (two_stacks && starts_with(tensor->name, "output_layer."));
        if (twice) rename_start(tensor, 0, "lm_head.");
    }
}

/* The halves of a gated matrix, which some containers hold apart, become one. */
static enum status join_halves(struct checkpoint *checkpoint, struct error *e) {
    checkpoint_sort(checkpoint);
    for (int i = 0; i < checkpoint->n; i++) {
        struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        bool gate = ends_with(tensor->name, "linear_fc1.weight_w") ||
                    ends_with(tensor->name, "linear_fc1.bias_w");
        if (!gate || checkpoint->ranked) continue;
        char *name = xstrdup(tensor->name);
        name[strlen(name) - 1] = 'v';
        struct checkpoint_tensor *checkpoint_tensor = checkpoint_find(checkpoint, name);
        free(name);
        if (checkpoint_tensor == NULL || checkpoint_tensor->dtype != tensor->dtype ||
            checkpoint_tensor->n_dims != tensor->n_dims ||
            memcmp(checkpoint_tensor->shape, tensor->shape, sizeof checkpoint_tensor->shape) != 0)
            return error_set(e, STATUS_CORRUPT, "%s: %s has no second half of its shape (%.*s_v)",
                             tensor->file, tensor->name, (int)strlen(tensor->name) - 2,
                             tensor->name);
        tensor->pieces =
            xrealloc(tensor->pieces, (size_t)(tensor->n_pieces + checkpoint_tensor->n_pieces) *
                                         sizeof *tensor->pieces);
        for (int k = 0; k < checkpoint_tensor->n_pieces; k++) {
            tensor->pieces[tensor->n_pieces] = checkpoint_tensor->pieces[k];
            tensor->pieces[tensor->n_pieces].origin[0] += tensor->shape[0];
            tensor->n_pieces++;
        }
        tensor->shape[0] *= 2;
        tensor->name[strlen(tensor->name) - 2] = '\0';
        checkpoint_tensor->used = true;
        checkpoint_tensor->n_pieces = 0;
        checkpoint->dropped++;
    }
    return STATUS_OK;
}

/* Removes what join_halves has joined to another. */
static void drop_joined(struct checkpoint *checkpoint) {
    int n = 0;
    for (int i = 0; i < checkpoint->n; i++) {
        struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        if (tensor->used) {
            free(tensor->name);
            free(tensor->pieces);
            free(tensor->problem);
            continue;
        }
        checkpoint->tensors[n] = *tensor;
        n++;
    }
    checkpoint->n = n;
}

/* Leaves out the heads that BERT was trained with: vectors of texts are made without them. */
static void leave_heads(struct import_plan *plan) {
    static const char *const heads[] = {"lm_head.", "binary_head.", "pooler.", "output_layer."};
    for (int i = 0; i < plan->checkpoint->n; i++) {
        struct checkpoint_tensor *tensor = &plan->checkpoint->tensors[i];
        for (size_t k = 0; k < ARRAY_COUNT(heads) && !tensor->used; k++) {
            tensor->used = starts_with(tensor->name, heads[k]);
            if (tensor->used) plan->trimmed_tensors++;
        }
    }
}

static enum status refuse_others(const struct import_plan *plan, struct error *e) {
    const struct checkpoint *checkpoint = plan->checkpoint;
    bool tower =
        any_contains(checkpoint, "vision_model.") || any_contains(checkpoint, "class_token") ||
        any_contains(checkpoint, "vision_projection.") || any_contains(checkpoint, "conv1.weight");
    if (any_contains(checkpoint, "pre_decoder.") || any_contains(checkpoint, "post_decoder."))
        return error_set(
            e, STATUS_UNSUPPORTED,
            "%s is the Retro of NeMo before 2.0, which is another network than Megatron's",
            checkpoint->folder);
    if (tower && !plan->pictures)
        return error_set(
            e, STATUS_INVALID,
            "%s holds a vision tower, which its arguments do not describe: give its config.json by "
            "--config, with \"architecture\" llava (\"language\" may be left out), clip_vit or "
            "radio_vit",
            checkpoint->folder);
    if (plan->pictures && !tower)
        return error_set(e, STATUS_INVALID, "--config: %s holds no vision tower",
                         checkpoint->folder);
    if (any_contains(checkpoint, "encoder.initial_layernorm.") ||
        any_contains(checkpoint, ".post_mlp_layernorm."))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s is a BERT of NeMo 2 that normalises after its layers: import the "
                         "Hugging Face folder that "
                         "it was made of",
                         checkpoint->folder);
    if (any_contains(checkpoint, ".experts.") || any_contains(checkpoint, ".router."))
        return error_set(e, STATUS_UNSUPPORTED, "%s has experts, which are not imported",
                         checkpoint->folder);
    return STATUS_OK;
}

enum status import_rename(struct import_plan *plan, struct error *e) {
    struct checkpoint *checkpoint = plan->checkpoint;
    if (refuse_others(plan, e)) return e->status;
    strip_outer(checkpoint, plan->pictures);
    bool bert = any_contains(checkpoint, "binary_head.") ||
                any_contains(checkpoint, "lm_head.dense.") ||
                any_contains(checkpoint, "tokentype_embedd");
    if (bert) plan->architecture = IMPORT_BERT;
    plan->legacy = any_contains(checkpoint, ".query_key_value.") ||
                   any_contains(checkpoint, ".dense_h_to_4h.");
    if (plan->legacy)
        rename_legacy(checkpoint, bert);
    else
        rename_core(checkpoint, plan->pictures);
    if (join_halves(checkpoint, e)) return e->status;
    if (bert) leave_heads(plan);
    drop_joined(checkpoint);
    checkpoint_sort(checkpoint);
    return STATUS_OK;
}
