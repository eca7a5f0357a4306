/* tools/convert/plan/import_plan.c: every tensor that the model has, by its configuration, and the
 * tensor of the checkpoint that it comes from. A missing one, one of another shape and one that the
 * model does not have are errors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/nearest.h"
#include "tools/convert/plan/import.h"

enum { NAME_SIZE = 200 };

/* Sizes that depend on the model. */
enum target_size {
    SIZE_NONE,
    SIZE_HIDDEN,
    SIZE_QKV,   /* queries, keys and values of all heads */
    SIZE_HEADS, /* the rows of all heads */
    SIZE_KV,    /* keys and values of all heads */
    SIZE_FC1,
    SIZE_FFN,
    SIZE_VOCAB,
    SIZE_POSITIONS,
    SIZE_TYPES, /* of tokens: BERT's */
    SIZE_BUCKETS,
    SIZE_TABLES /* heads of a table of relative positions */
};

/* When a layer has a tensor. */
enum target_when {
    WHEN_ALWAYS = 0,
    WHEN_BIAS = 1,      /* of matrices */
    WHEN_NORM_BIAS = 2, /* of norms */
    WHEN_CROSS = 4,     /* the layer reads others */
    WHEN_FUSED = 8,     /* its MLP's norm is called after the matrix */
    WHEN_APART = 16,    /* it is not: the first layer of Retro's encoder */
    WHEN_QKV_BIAS = 32  /* of self attention's queries, keys and values */
};

struct target_row {
    const char *name;
    enum target_size rows, columns;
    enum import_split split;
    int parts, when;
};

static const struct target_row layer_rows[] = {
    {"self_attention.linear_qkv.layer_norm_weight", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0,
     WHEN_ALWAYS},
    {"self_attention.linear_qkv.layer_norm_bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0,
     WHEN_NORM_BIAS},
    {"self_attention.linear_qkv.weight", SIZE_QKV, SIZE_HIDDEN, SPLIT_ROWS, 3, WHEN_ALWAYS},
    {"self_attention.linear_qkv.bias", SIZE_QKV, SIZE_NONE, SPLIT_ROWS, 3, WHEN_QKV_BIAS},
    {"self_attention.linear_proj.weight", SIZE_HIDDEN, SIZE_HEADS, SPLIT_COLUMNS, 0, WHEN_ALWAYS},
    {"self_attention.linear_proj.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_BIAS},
    {"pre_cross_attn_layernorm.weight", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_CROSS},
    {"pre_cross_attn_layernorm.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0,
     WHEN_CROSS | WHEN_NORM_BIAS},
    {"cross_attention.attn.linear_q.weight", SIZE_HEADS, SIZE_HIDDEN, SPLIT_ROWS, 0, WHEN_CROSS},
    {"cross_attention.attn.linear_q.bias", SIZE_HEADS, SIZE_NONE, SPLIT_ROWS, 0,
     WHEN_CROSS | WHEN_BIAS},
    {"cross_attention.attn.linear_kv.weight", SIZE_KV, SIZE_HIDDEN, SPLIT_ROWS, 2, WHEN_CROSS},
    {"cross_attention.attn.linear_kv.bias", SIZE_KV, SIZE_NONE, SPLIT_ROWS, 2,
     WHEN_CROSS | WHEN_BIAS},
    {"cross_attention.attn.linear_proj.weight", SIZE_HIDDEN, SIZE_HEADS, SPLIT_COLUMNS, 0,
     WHEN_CROSS},
    {"cross_attention.attn.linear_proj.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0,
     WHEN_CROSS | WHEN_BIAS},
    {"mlp.linear_fc1.layer_norm_weight", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_FUSED},
    {"mlp.linear_fc1.layer_norm_bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0,
     WHEN_FUSED | WHEN_NORM_BIAS},
    {"pre_mlp_layernorm.norm.weight", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_APART},
    {"pre_mlp_layernorm.norm.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0,
     WHEN_APART | WHEN_NORM_BIAS},
    {"mlp.linear_fc1.weight", SIZE_FC1, SIZE_HIDDEN, SPLIT_ROWS, 0, WHEN_ALWAYS},
    {"mlp.linear_fc1.bias", SIZE_FC1, SIZE_NONE, SPLIT_ROWS, 0, WHEN_BIAS},
    {"mlp.linear_fc2.weight", SIZE_HIDDEN, SIZE_FFN, SPLIT_COLUMNS, 0, WHEN_ALWAYS},
    {"mlp.linear_fc2.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_BIAS},
};

static int64_t size_of(const struct import_plan *plan, enum target_size size) {
    int64_t rows = plan->heads * plan->channels;
    switch (size) {
        case SIZE_HIDDEN: return plan->hidden;
        case SIZE_QKV: return rows + 2 * plan->groups * plan->channels;
        case SIZE_HEADS: return rows;
        case SIZE_KV: return 2 * rows;
        case SIZE_FC1: return plan->gated ? 2 * plan->ffn : plan->ffn;
        case SIZE_FFN: return plan->ffn;
        case SIZE_VOCAB: return plan->vocab;
        case SIZE_POSITIONS: return plan->positions;
        case SIZE_TYPES: return plan->token_types;
        case SIZE_BUCKETS: return plan->buckets;
        case SIZE_TABLES: return plan->heads;
        case SIZE_NONE: break;
    }
    return 0;
}

static struct import_target *add_target(struct import_plan *plan, const char *prefix,
                                        const struct target_row *row) {
    plan->targets = xgrow(plan->targets, plan->n, &plan->capacity, sizeof *plan->targets);
    struct import_target *target = &plan->targets[plan->n];
    struct buffer name = {0};
    bool reordered = row->parts > 0 && plan->checkpoint->version < 2 && plan->checkpoint->ranked;
    buffer_printf(&name, "%s%s", prefix, row->name);
    *target =
        (struct import_target){.name = name.data,
                               .n_dims = row->columns == SIZE_NONE ? 1 : 2,
                               .shape = {size_of(plan, row->rows), size_of(plan, row->columns)},
                               .split = row->split,
                               .parts = reordered ? row->parts : 0};
    if (plan->gated && row->rows == SIZE_FC1) target->split = SPLIT_HALVES;
    plan->n++;
    return target;
}

static void add_outer(struct import_plan *plan, const char *name, enum target_size rows,
                      enum target_size columns, enum import_split split) {
    add_target(plan, "", &(struct target_row){name, rows, columns, split, 0, WHEN_ALWAYS});
}

/* The tensors of one layer; `when` is what holds for it. */
static void add_layer(struct import_plan *plan, const char *prefix, int when) {
    if (plan->bias) when |= WHEN_BIAS;
    if (plan->qkv_bias) when |= WHEN_QKV_BIAS;
    if (plan->norm_bias) when |= WHEN_NORM_BIAS;
    for (size_t i = 0; i < ARRAY_COUNT(layer_rows); i++) {
        if ((layer_rows[i].when & when) != layer_rows[i].when) continue;
        struct target_row row = layer_rows[i];
        struct buffer name = {0};
        const char *inner = strstr(row.name, "cross_attention.attn.");
        if (inner && plan->architecture == IMPORT_T5) {
            buffer_printf(&name, "cross_attention.%s", row.name + strlen("cross_attention.attn."));
            row.name = name.data;
        }
        add_target(plan, prefix, &row);
        buffer_free(&name);
    }
}

static void add_layers(struct import_plan *plan) {
    char prefix[NAME_SIZE];
    for (int64_t i = 0; i < plan->layers; i++) {
        bool cross = plan->architecture == IMPORT_T5 || (plan->cross[i] && !plan->trimmed);
        snprintf(prefix, sizeof prefix, "%s.layers.%lld.", plan->stack, (long long)i);
        add_layer(plan, prefix, WHEN_FUSED | (cross ? WHEN_CROSS : 0));
    }
    for (int64_t j = 0; j < plan->encoder_layers && !plan->trimmed; j++) {
        bool retro = plan->architecture == IMPORT_RETRO;
        if (retro)
            snprintf(prefix, sizeof prefix,
                     "decoder.layers.%d.cross_attention.encoder.layers.%lld.", plan->first_cross,
                     (long long)j);
        else
            snprintf(prefix, sizeof prefix, "encoder.layers.%lld.", (long long)j);
        add_layer(plan, prefix, retro && j == 0 ? WHEN_APART | WHEN_CROSS : WHEN_FUSED);
    }
}

static void add_norm(struct import_plan *plan, const char *name) {
    char whole[NAME_SIZE];
    snprintf(whole, sizeof whole, "%s.weight", name);
    add_outer(plan, whole, SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE);
    snprintf(whole, sizeof whole, "%s.bias", name);
    if (plan->norm_bias) add_outer(plan, whole, SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE);
}

static void add_targets(struct import_plan *plan) {
    bool t5 = plan->architecture == IMPORT_T5;
    add_outer(plan, "embedding.word_embeddings.weight", SIZE_VOCAB, SIZE_HIDDEN, SPLIT_ROWS);
    if (plan->learned)
        add_outer(plan, "embedding.position_embeddings.weight", SIZE_POSITIONS, SIZE_HIDDEN,
                  SPLIT_NONE);
    if (t5 && plan->relative) {
        add_outer(plan, "encoder_relative_pos_emb.relative_attention_bias.weight", SIZE_BUCKETS,
                  SIZE_TABLES, SPLIT_NONE);
        add_outer(plan, "decoder_relative_pos_emb.relative_attention_bias.weight", SIZE_BUCKETS,
                  SIZE_TABLES, SPLIT_NONE);
    }
    add_layers(plan);
    if (t5) add_norm(plan, "encoder.final_layernorm");
    if (plan->token_types > 0)
        add_outer(plan, "embedding.tokentype_embeddings.weight", SIZE_TYPES, SIZE_HIDDEN,
                  SPLIT_NONE);
    if (t5 || plan->final_norm)
        add_norm(plan, plan->architecture == IMPORT_BERT ? "encoder.final_layernorm"
                                                         : "decoder.final_layernorm");
    if (!plan->tied)
        add_outer(plan, t5 ? "lm_head.output_layer.weight" : "output_layer.weight", SIZE_VOCAB,
                  SIZE_HIDDEN, SPLIT_ROWS);
    if (plan->output_bias)
        add_outer(plan, "lm_head.output_layer.bias", SIZE_VOCAB, SIZE_NONE, SPLIT_ROWS);
}

/* The last pipeline stage of a tied model holds the word table again; it has to be the same, and is
 * left out. */
static void mark_tied(struct import_plan *plan) {
    static const char *const names[] = {"output_layer.weight", "lm_head.output_layer.weight"};
    struct checkpoint_tensor *word =
        checkpoint_find(plan->checkpoint, "embedding.word_embeddings.weight");
    for (size_t i = 0; plan->tied && i < ARRAY_COUNT(names); i++) {
        struct checkpoint_tensor *copy = checkpoint_find(plan->checkpoint, names[i]);
        if (copy == NULL) continue;
        free(copy->name);
        copy->name = xstrdup(word->name);
        copy->stage = word->stage + 1;
    }
    checkpoint_sort(plan->checkpoint);
}

static void offer_unused(const struct checkpoint *checkpoint, const char *wanted,
                         struct nearest_name *nearest) {
    for (int i = 0; i < checkpoint->n; i++)
        if (!checkpoint->tensors[i].used)
            nearest_offer(nearest, (struct text_span){wanted, strlen(wanted)},
                          (struct text_span){checkpoint->tensors[i].name,
                                             strlen(checkpoint->tensors[i].name)});
}

static enum status fail_missing(const struct import_plan *plan, const struct import_target *target,
                                struct error *e) {
    struct nearest_name nearest = {0};
    offer_unused(plan->checkpoint, target->name, &nearest);
    return error_set(
        e, STATUS_CORRUPT, "%s: the tensor %s is missing%s%.*s", plan->checkpoint->folder,
        target->name,
        nearest.name.text ? "; of those that the model does not have the nearest is " : "",
        (int)nearest.name.size, nearest.name.text ? nearest.name.text : "");
}

/* The part that a rank should have; false: the ranks cannot share it evenly. */
static bool part_shape(const struct import_plan *plan, const struct import_target *target,
                       int64_t shape[2]) {
    int64_t rows = plan->checkpoint->ranked && target->split != SPLIT_NONE ? plan->checkpoint->ranks
                                                                           : 1,
            columns = rows;
    if (target->split == SPLIT_COLUMNS)
        rows = 1;
    else
        columns = 1;
    int64_t halves = target->split == SPLIT_HALVES ? 2 : 1;
    shape[0] = target->shape[0] / rows;
    shape[1] = target->shape[1] / columns;
    return target->shape[0] % (rows * halves) == 0 && target->shape[1] % columns == 0;
}

static enum status check_shape(const struct import_plan *plan, const struct import_target *target,
                               struct error *e) {
    int64_t shape[2];
    const struct checkpoint_tensor *from = target->from;
    bool fits = part_shape(plan, target, shape) && from->n_dims == target->n_dims &&
                from->shape[0] == shape[0] && (target->n_dims < 2 || from->shape[1] == shape[1]);
    if (fits) return STATUS_OK;
    struct buffer found = {0}, wanted = {0};
    for (int i = 0; i < from->n_dims; i++)
        buffer_printf(&found, "%s%lld", i ? ", " : "", (long long)from->shape[i]);
    for (int i = 0; i < target->n_dims; i++)
        buffer_printf(&wanted, "%s%lld", i ? ", " : "", (long long)shape[i]);
    error_set(e, STATUS_CORRUPT, "%s: %s has the shape [%s]; the configuration wants [%s]%s",
              from->file, target->name, found.data ? found.data : "", wanted.data,
              plan->checkpoint->ranked ? " of each rank" : "");
    buffer_free(&found);
    buffer_free(&wanted);
    return e->status;
}

static bool has_prefix_of(const char *name, const char *part) { return strstr(name, part) != NULL; }

/* Whether a tensor goes when a Retro becomes a GPT. */
static bool is_trimmed(const struct import_plan *plan, const char *name) {
    return plan->trimmed && (has_prefix_of(name, ".cross_attention.") ||
                             has_prefix_of(name, ".pre_cross_attn_layernorm."));
}

static enum status check_left_over(struct import_plan *plan, struct error *e) {
    const struct checkpoint *checkpoint = plan->checkpoint;
    for (int i = 0; i < checkpoint->n; i++) {
        const struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        struct nearest_name nearest = {0};
        if (tensor->used) continue;
        if (is_trimmed(plan, tensor->name)) {
            plan->trimmed_tensors++;
            continue;
        }
        for (int k = 0; k < plan->n; k++)
            nearest_offer(&nearest, (struct text_span){tensor->name, strlen(tensor->name)},
                          (struct text_span){plan->targets[k].name, strlen(plan->targets[k].name)});
        return error_set(e, STATUS_CORRUPT, "%s: the model has no tensor %s%s%.*s", tensor->file,
                         tensor->name, nearest.name.text ? "; the nearest that it has is " : "",
                         (int)nearest.name.size, nearest.name.text ? nearest.name.text : "");
    }
    return STATUS_OK;
}

static int compare_targets(const void *a, const void *b) {
    return strcmp(((const struct import_target *)a)->name, ((const struct import_target *)b)->name);
}

/* Finds what targets come from; all tensors of a name are used by it. */
static void match_names(struct import_plan *plan) {
    struct checkpoint *checkpoint = plan->checkpoint;
    for (int i = 0; i < plan->n; i++) {
        struct checkpoint_tensor *found = checkpoint_find(checkpoint, plan->targets[i].name);
        plan->targets[i].from = found;
        for (; found && found < checkpoint->tensors + checkpoint->n &&
               strcmp(found->name, plan->targets[i].name) == 0;
             found++)
            found->used = true;
    }
}

enum status import_match(struct import_plan *plan, struct error *e) {
    mark_tied(plan);
    add_targets(plan);
    qsort(plan->targets, (size_t)plan->n, sizeof *plan->targets, compare_targets);
    match_names(plan);
    for (int i = 0; i < plan->n; i++)
        if (plan->targets[i].from == NULL) return fail_missing(plan, &plan->targets[i], e);
    if (check_left_over(plan, e)) return e->status;
    for (int i = 0; i < plan->n; i++) {
        const struct checkpoint_tensor *from = plan->targets[i].from;
        if (from->problem) return error_set(e, STATUS_UNSUPPORTED, "%s", from->problem);
        if (check_shape(plan, &plan->targets[i], e)) return e->status;
    }
    return STATUS_OK;
}
