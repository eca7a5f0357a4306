/* tools/convert/plan/import_names.c: names of a checkpoint's tensors become those of our families: Megatron-Core's, as
 * Transformer Engine calls the norms (docs/spec/retro-model.md 9.2). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/families/megatron.h"
#include "retro/model/place_names.h"
#include "tools/convert/plan/import.h"

static bool any_starts(const struct checkpoint *c, const char *start) {
    for (int i = 0; i < c->n; i++)
        if (starts_with(c->tensors[i].name, start)) return true;
    return false;
}

static bool any_contains(const struct checkpoint *c, const char *part) {
    for (int i = 0; i < c->n; i++)
        if (strstr(c->tensors[i].name, part)) return true;
    return false;
}

/* Replaces the name by start + the rest of it behind `skip` bytes. */
static void rename_start(struct checkpoint_tensor *t, size_t skip, const char *start) {
    struct buffer name = {0};
    buffer_printf(&name, "%s%s", start, t->name + skip);
    free(t->name);
    t->name = name.data;
}

static void rename_part(struct checkpoint_tensor *t, const char *part, const char *by) {
    const char *found = strstr(t->name, part);
    struct buffer name = {0};
    if (found == NULL) return;
    buffer_printf(&name, "%.*s%s%s", (int)(found - t->name), t->name, by, found + strlen(part));
    free(t->name);
    t->name = name.data;
}

/* Containers put the whole model under one or more of these. */
static void strip_outer(struct checkpoint *c, bool pictures) {
    static const char *const outer[] = {"model.", "module.", "language_model."};
    for (int i = 0; i < c->n; i++) {
        bool again = true;
        while (again) {
            again = false;
            for (size_t k = 0; k < ARRAY_COUNT(outer) - pictures; k++) { /* a LLaVA's language model keeps its name */
                if (!starts_with(c->tensors[i].name, outer[k])) continue;
                rename_start(&c->tensors[i], strlen(outer[k]), "");
                again = true;
            }
        }
    }
}

/* Legacy names. */

/* The number behind "layers." in a name that begins with `stack` + "layers."; -1: another name. *tail is behind it. */
static int layer_of(const char *name, const char *stack, const char **tail) {
    size_t n = strlen(stack);
    if (strncmp(name, stack, n) != 0 || !starts_with(name + n, "layers.") || !isdigit((unsigned char)name[n + 7]))
        return -1;
    char *end;
    long layer = strtol(name + n + 7, &end, 10);
    *tail = end + 1;
    return *end == '.' && layer < 1 << 20 ? (int)layer : -1;
}

/* Spellings that changed over the years. */
static void normalise_legacy(struct checkpoint *c) {
    for (int i = 0; i < c->n; i++) {
        struct checkpoint_tensor *t = &c->tensors[i];
        if (starts_with(t->name, "transformer.")) rename_start(t, strlen("transformer."), "encoder.");
        rename_part(t, ".attention.", ".self_attention.");
        rename_part(t, "_layernorm.", "_norm.");
    }
}

/* Retro of early 2023 holds the encoder of neighbours at other places, too. */
static void fold_retrievers(struct checkpoint *c) {
    static const char *const places[] = {"encoder.retriever.", "retriever."};
    int first = -1;
    const char *tail;
    for (int i = 0; i < c->n; i++) {
        int layer = layer_of(c->tensors[i].name, "encoder.", &tail);
        if (layer >= 0 && starts_with(tail, "inter_attention.") && (first < 0 || layer < first)) first = layer;
    }
    if (first < 0) return;
    struct buffer start = {0};
    buffer_printf(&start, "encoder.layers.%d.retriever.", first);
    for (int i = 0; i < c->n; i++)
        for (size_t k = 0; k < ARRAY_COUNT(places); k++)
            if (starts_with(c->tensors[i].name, places[k])) rename_start(&c->tensors[i], strlen(places[k]), start.data);
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

/* Appends a name behind a layer's number; one that has no row stays as it is, and is found to be unknown later. */
static void put_legacy_tail(struct buffer *name, const char *tail, bool cross, bool neighbours) {
    static const struct tensor_rows rows = {{NULL}, megatron_layer_rows, MEGATRON_LAYER_ROWS};
    const char *ending = strrchr(tail, '.');
    size_t middle = ending ? (size_t)(ending - tail) : strlen(tail);
    const struct tensor_row *row = place_names_row(&legacy_names, &rows, (struct text_span){tail, middle});
    const char *to = row && ending ? row->names[0] : tail;
    if (cross && starts_with(tail, "post_attention_norm.")) to = "pre_cross_attn_layernorm.*";
    if (cross && neighbours && starts_with(tail, "post_inter_attention_norm.")) to = "pre_mlp_layernorm.norm.*";
    const char *star = strchr(to, '*');
    buffer_printf(name, "%.*s%s", (int)(star ? (size_t)(star - to) : strlen(to)), to, star ? ending + 1 : "");
}

static bool has_cross(const struct checkpoint *c, const char *layer) {
    struct buffer start = {0};
    buffer_printf(&start, "%sinter_attention.", layer);
    bool found = any_starts(c, start.data);
    buffer_free(&start);
    return found;
}

/* A tensor of a layer; `tail` is behind the layer's number. */
static void put_legacy_layer(struct buffer *name, const struct checkpoint *c, const struct checkpoint_tensor *t,
                             const char *tail) {
    const char *inner;
    int j = layer_of(tail, "retriever.", &inner);
    if (j < 0) inner = tail;
    char *layer = xstrndup(t->name, (size_t)(inner - t->name));
    buffer_append(name, t->name, (size_t)(tail - t->name));
    if (j >= 0) buffer_printf(name, "cross_attention.encoder.layers.%d.", j);
    put_legacy_tail(name, inner, has_cross(c, layer), j >= 0);
    free(layer);
}

static char *legacy_name(const struct checkpoint *c, const struct checkpoint_tensor *t, bool two_stacks) {
    struct buffer name = {0};
    const char *tail = t->name;
    if (layer_of(t->name, "encoder.", &tail) >= 0 || layer_of(t->name, "decoder.", &tail) >= 0) {
        put_legacy_layer(&name, c, t, tail);
        return name.data;
    }
    tail = two_stacks && strcmp(t->name, "lm_head.bias") == 0 ? "lm_head.output_layer.bias" : t->name;
    for (size_t i = 0; i < ARRAY_COUNT(legacy_outer); i++) {
        if (!starts_with(t->name, legacy_outer[i][0])) continue;
        buffer_append_string(&name, legacy_outer[i][1]);
        tail = t->name + strlen(legacy_outer[i][0]);
    }
    buffer_append_string(&name, tail);
    return name.data;
}

static void rename_legacy(struct checkpoint *c, bool bert) {
    normalise_legacy(c);
    fold_retrievers(c);
    bool two_stacks = any_starts(c, "decoder.layers.");
    char **names = xcalloc((size_t)c->n + 1, sizeof *names);
    for (int i = 0; i < c->n && !two_stacks && !bert; i++) /* GPT and Retro have one stack, a decoder */
        if (starts_with(c->tensors[i].name, "encoder.")) rename_start(&c->tensors[i], strlen("encoder."), "decoder.");
    for (int i = 0; i < c->n; i++) names[i] = legacy_name(c, &c->tensors[i], two_stacks);
    for (int i = 0; i < c->n; i++) {
        free(c->tensors[i].name);
        c->tensors[i].name = names[i];
        if (two_stacks) rename_part(&c->tensors[i], ".cross_attention.attn.", ".cross_attention.");
    }
    free(names);
}

/* Megatron-Core's names without Transformer Engine, and those that T5 registers twice. */
static void rename_core(struct checkpoint *c, bool pictures) {
    bool two_stacks = any_starts(c, "encoder.layers.");
    for (int i = 0; i < c->n; i++) {
        struct checkpoint_tensor *t = &c->tensors[i];
        rename_part(t, ".input_layernorm.", ".self_attention.linear_qkv.layer_norm_");
        if (strstr(t->name, ".pre_mlp_layernorm.norm.") == NULL)
            rename_part(t, ".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_");
        if (pictures) continue;
        if (strcmp(t->name, "position_embeddings.weight") == 0) rename_start(t, 0, "embedding.");
        bool twice = strcmp(t->name, "output_layer.bias") == 0 || (two_stacks && starts_with(t->name, "output_layer."));
        if (twice) rename_start(t, 0, "lm_head.");
    }
}

/* The halves of a gated matrix, which some containers hold apart, become one. */
static enum status join_halves(struct checkpoint *c, struct error *e) {
    checkpoint_sort(c);
    for (int i = 0; i < c->n; i++) {
        struct checkpoint_tensor *w = &c->tensors[i];
        bool gate = ends_with(w->name, "linear_fc1.weight_w") || ends_with(w->name, "linear_fc1.bias_w");
        if (!gate || c->ranked) continue;
        char *name = xstrdup(w->name);
        name[strlen(name) - 1] = 'v';
        struct checkpoint_tensor *v = checkpoint_find(c, name);
        free(name);
        if (v == NULL || v->dtype != w->dtype || v->n_dims != w->n_dims ||
            memcmp(v->shape, w->shape, sizeof v->shape) != 0)
            return error_set(e, STATUS_CORRUPT, "%s: %s has no second half of its shape (%.*s_v)", w->file, w->name,
                             (int)strlen(w->name) - 2, w->name);
        w->pieces = xrealloc(w->pieces, (size_t)(w->n_pieces + v->n_pieces) * sizeof *w->pieces);
        for (int k = 0; k < v->n_pieces; k++) {
            w->pieces[w->n_pieces] = v->pieces[k];
            w->pieces[w->n_pieces].origin[0] += w->shape[0];
            w->n_pieces++;
        }
        w->shape[0] *= 2;
        w->name[strlen(w->name) - 2] = '\0';
        v->used = true;
        v->n_pieces = 0;
        c->dropped++;
    }
    return STATUS_OK;
}

/* Removes what join_halves has joined to another. */
static void drop_joined(struct checkpoint *c) {
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        struct checkpoint_tensor *t = &c->tensors[i];
        if (t->used) {
            free(t->name);
            free(t->pieces);
            free(t->problem);
            continue;
        }
        c->tensors[n] = *t;
        n++;
    }
    c->n = n;
}

/* Leaves out the heads that BERT was trained with: vectors of texts are made without them. */
static void leave_heads(struct import_plan *p) {
    static const char *const heads[] = {"lm_head.", "binary_head.", "pooler.", "output_layer."};
    for (int i = 0; i < p->checkpoint->n; i++) {
        struct checkpoint_tensor *t = &p->checkpoint->tensors[i];
        for (size_t k = 0; k < ARRAY_COUNT(heads) && !t->used; k++) {
            t->used = starts_with(t->name, heads[k]);
            if (t->used) p->trimmed_tensors++;
        }
    }
}

static enum status refuse_others(const struct import_plan *p, struct error *e) {
    const struct checkpoint *c = p->checkpoint;
    bool tower = any_contains(c, "vision_model.") || any_contains(c, "class_token") ||
                 any_contains(c, "vision_projection.") || any_contains(c, "conv1.weight");
    if (any_contains(c, "pre_decoder.") || any_contains(c, "post_decoder."))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s is the Retro of NeMo before 2.0, which is another network than Megatron's", c->folder);
    if (tower && !p->pictures)
        return error_set(e, STATUS_INVALID,
                         "%s holds a vision tower, which its arguments do not describe: give its config.json by "
                         "--config, with \"architecture\" llava (\"language\" may be left out), clip_vit or radio_vit",
                         c->folder);
    if (p->pictures && !tower) return error_set(e, STATUS_INVALID, "--config: %s holds no vision tower", c->folder);
    if (any_contains(c, "encoder.initial_layernorm.") || any_contains(c, ".post_mlp_layernorm."))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s is a BERT of NeMo 2 that normalises after its layers: import the Hugging Face folder that "
                         "it was made of",
                         c->folder);
    if (any_contains(c, ".experts.") || any_contains(c, ".router."))
        return error_set(e, STATUS_UNSUPPORTED, "%s has experts, which are not imported", c->folder);
    return STATUS_OK;
}

enum status import_rename(struct import_plan *p, struct error *e) {
    struct checkpoint *c = p->checkpoint;
    if (refuse_others(p, e)) return e->status;
    strip_outer(c, p->pictures);
    bool bert =
        any_contains(c, "binary_head.") || any_contains(c, "lm_head.dense.") || any_contains(c, "tokentype_embedd");
    if (bert) p->architecture = IMPORT_BERT;
    p->legacy = any_contains(c, ".query_key_value.") || any_contains(c, ".dense_h_to_4h.");
    if (p->legacy)
        rename_legacy(c, bert);
    else
        rename_core(c, p->pictures);
    if (join_halves(c, e)) return e->status;
    if (bert) leave_heads(p);
    drop_joined(c);
    checkpoint_sort(c);
    return STATUS_OK;
}
