/* tools/convert/plan/import_plan.c: every tensor that the model has, by its configuration, and the tensor of the
 * checkpoint that it comes from. A missing one, one of another shape and one that the model does not have are errors.
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
    {"self_attention.linear_qkv.layer_norm_weight", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_ALWAYS},
    {"self_attention.linear_qkv.layer_norm_bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_NORM_BIAS},
    {"self_attention.linear_qkv.weight", SIZE_QKV, SIZE_HIDDEN, SPLIT_ROWS, 3, WHEN_ALWAYS},
    {"self_attention.linear_qkv.bias", SIZE_QKV, SIZE_NONE, SPLIT_ROWS, 3, WHEN_QKV_BIAS},
    {"self_attention.linear_proj.weight", SIZE_HIDDEN, SIZE_HEADS, SPLIT_COLUMNS, 0, WHEN_ALWAYS},
    {"self_attention.linear_proj.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_BIAS},
    {"pre_cross_attn_layernorm.weight", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_CROSS},
    {"pre_cross_attn_layernorm.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_CROSS | WHEN_NORM_BIAS},
    {"cross_attention.attn.linear_q.weight", SIZE_HEADS, SIZE_HIDDEN, SPLIT_ROWS, 0, WHEN_CROSS},
    {"cross_attention.attn.linear_q.bias", SIZE_HEADS, SIZE_NONE, SPLIT_ROWS, 0, WHEN_CROSS | WHEN_BIAS},
    {"cross_attention.attn.linear_kv.weight", SIZE_KV, SIZE_HIDDEN, SPLIT_ROWS, 2, WHEN_CROSS},
    {"cross_attention.attn.linear_kv.bias", SIZE_KV, SIZE_NONE, SPLIT_ROWS, 2, WHEN_CROSS | WHEN_BIAS},
    {"cross_attention.attn.linear_proj.weight", SIZE_HIDDEN, SIZE_HEADS, SPLIT_COLUMNS, 0, WHEN_CROSS},
    {"cross_attention.attn.linear_proj.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_CROSS | WHEN_BIAS},
    {"mlp.linear_fc1.layer_norm_weight", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_FUSED},
    {"mlp.linear_fc1.layer_norm_bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_FUSED | WHEN_NORM_BIAS},
    {"pre_mlp_layernorm.norm.weight", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_APART},
    {"pre_mlp_layernorm.norm.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_APART | WHEN_NORM_BIAS},
    {"mlp.linear_fc1.weight", SIZE_FC1, SIZE_HIDDEN, SPLIT_ROWS, 0, WHEN_ALWAYS},
    {"mlp.linear_fc1.bias", SIZE_FC1, SIZE_NONE, SPLIT_ROWS, 0, WHEN_BIAS},
    {"mlp.linear_fc2.weight", SIZE_HIDDEN, SIZE_FFN, SPLIT_COLUMNS, 0, WHEN_ALWAYS},
    {"mlp.linear_fc2.bias", SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE, 0, WHEN_BIAS},
};

static int64_t size_of(const struct import_plan *p, enum target_size size) {
    int64_t rows = p->heads * p->channels;
    switch (size) {
        case SIZE_HIDDEN: return p->hidden;
        case SIZE_QKV: return rows + 2 * p->groups * p->channels;
        case SIZE_HEADS: return rows;
        case SIZE_KV: return 2 * rows;
        case SIZE_FC1: return p->gated ? 2 * p->ffn : p->ffn;
        case SIZE_FFN: return p->ffn;
        case SIZE_VOCAB: return p->vocab;
        case SIZE_POSITIONS: return p->positions;
        case SIZE_TYPES: return p->token_types;
        case SIZE_BUCKETS: return p->buckets;
        case SIZE_TABLES: return p->heads;
        case SIZE_NONE: break;
    }
    return 0;
}

static struct import_target *add_target(struct import_plan *p, const char *prefix, const struct target_row *row) {
    p->targets = xgrow(p->targets, p->n, &p->capacity, sizeof *p->targets);
    struct import_target *t = &p->targets[p->n];
    struct buffer name = {0};
    bool reordered = row->parts > 0 && p->checkpoint->version < 2 && p->checkpoint->ranked;
    buffer_printf(&name, "%s%s", prefix, row->name);
    *t = (struct import_target){.name = name.data,
                                .n_dims = row->columns == SIZE_NONE ? 1 : 2,
                                .shape = {size_of(p, row->rows), size_of(p, row->columns)},
                                .split = row->split,
                                .parts = reordered ? row->parts : 0};
    if (p->gated && row->rows == SIZE_FC1) t->split = SPLIT_HALVES;
    p->n++;
    return t;
}

static void add_outer(struct import_plan *p, const char *name, enum target_size rows, enum target_size columns,
                      enum import_split split) {
    add_target(p, "", &(struct target_row){name, rows, columns, split, 0, WHEN_ALWAYS});
}

/* The tensors of one layer; `when` is what holds for it. */
static void add_layer(struct import_plan *p, const char *prefix, int when) {
    if (p->bias) when |= WHEN_BIAS;
    if (p->qkv_bias) when |= WHEN_QKV_BIAS;
    if (p->norm_bias) when |= WHEN_NORM_BIAS;
    for (size_t i = 0; i < ARRAY_COUNT(layer_rows); i++) {
        if ((layer_rows[i].when & when) != layer_rows[i].when) continue;
        struct target_row row = layer_rows[i];
        struct buffer name = {0};
        const char *inner = strstr(row.name, "cross_attention.attn.");
        if (inner && p->architecture == IMPORT_T5) {
            buffer_printf(&name, "cross_attention.%s", row.name + strlen("cross_attention.attn."));
            row.name = name.data;
        }
        add_target(p, prefix, &row);
        buffer_free(&name);
    }
}

static void add_layers(struct import_plan *p) {
    char prefix[NAME_SIZE];
    for (int64_t i = 0; i < p->layers; i++) {
        bool cross = p->architecture == IMPORT_T5 || (p->cross[i] && !p->trimmed);
        snprintf(prefix, sizeof prefix, "%s.layers.%lld.", p->stack, (long long)i);
        add_layer(p, prefix, WHEN_FUSED | (cross ? WHEN_CROSS : 0));
    }
    for (int64_t j = 0; j < p->encoder_layers && !p->trimmed; j++) {
        bool retro = p->architecture == IMPORT_RETRO;
        if (retro)
            snprintf(prefix, sizeof prefix, "decoder.layers.%d.cross_attention.encoder.layers.%lld.", p->first_cross,
                     (long long)j);
        else
            snprintf(prefix, sizeof prefix, "encoder.layers.%lld.", (long long)j);
        add_layer(p, prefix, retro && j == 0 ? WHEN_APART | WHEN_CROSS : WHEN_FUSED);
    }
}

static void add_norm(struct import_plan *p, const char *name) {
    char whole[NAME_SIZE];
    snprintf(whole, sizeof whole, "%s.weight", name);
    add_outer(p, whole, SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE);
    snprintf(whole, sizeof whole, "%s.bias", name);
    if (p->norm_bias) add_outer(p, whole, SIZE_HIDDEN, SIZE_NONE, SPLIT_NONE);
}

static void add_targets(struct import_plan *p) {
    bool t5 = p->architecture == IMPORT_T5;
    add_outer(p, "embedding.word_embeddings.weight", SIZE_VOCAB, SIZE_HIDDEN, SPLIT_ROWS);
    if (p->learned) add_outer(p, "embedding.position_embeddings.weight", SIZE_POSITIONS, SIZE_HIDDEN, SPLIT_NONE);
    if (t5 && p->relative) {
        add_outer(p, "encoder_relative_pos_emb.relative_attention_bias.weight", SIZE_BUCKETS, SIZE_TABLES, SPLIT_NONE);
        add_outer(p, "decoder_relative_pos_emb.relative_attention_bias.weight", SIZE_BUCKETS, SIZE_TABLES, SPLIT_NONE);
    }
    add_layers(p);
    if (t5) add_norm(p, "encoder.final_layernorm");
    if (p->token_types > 0) add_outer(p, "embedding.tokentype_embeddings.weight", SIZE_TYPES, SIZE_HIDDEN, SPLIT_NONE);
    if (t5 || p->final_norm)
        add_norm(p, p->architecture == IMPORT_BERT ? "encoder.final_layernorm" : "decoder.final_layernorm");
    if (!p->tied)
        add_outer(p, t5 ? "lm_head.output_layer.weight" : "output_layer.weight", SIZE_VOCAB, SIZE_HIDDEN, SPLIT_ROWS);
    if (p->output_bias) add_outer(p, "lm_head.output_layer.bias", SIZE_VOCAB, SIZE_NONE, SPLIT_ROWS);
}

/* The last pipeline stage of a tied model holds the word table again; it has to be the same, and is left out. */
static void mark_tied(struct import_plan *p) {
    static const char *const names[] = {"output_layer.weight", "lm_head.output_layer.weight"};
    struct checkpoint_tensor *word = checkpoint_find(p->checkpoint, "embedding.word_embeddings.weight");
    for (size_t i = 0; p->tied && i < ARRAY_COUNT(names); i++) {
        struct checkpoint_tensor *copy = checkpoint_find(p->checkpoint, names[i]);
        if (copy == NULL) continue;
        free(copy->name);
        copy->name = xstrdup(word->name);
        copy->stage = word->stage + 1;
    }
    checkpoint_sort(p->checkpoint);
}

static void offer_unused(const struct checkpoint *c, const char *wanted, struct nearest_name *nearest) {
    for (int i = 0; i < c->n; i++)
        if (!c->tensors[i].used)
            nearest_offer(nearest, (struct text_span){wanted, strlen(wanted)},
                          (struct text_span){c->tensors[i].name, strlen(c->tensors[i].name)});
}

static enum status fail_missing(const struct import_plan *p, const struct import_target *t, struct error *e) {
    struct nearest_name nearest = {0};
    offer_unused(p->checkpoint, t->name, &nearest);
    return error_set(e, STATUS_CORRUPT, "%s: the tensor %s is missing%s%.*s", p->checkpoint->folder, t->name,
                     nearest.name.text ? "; of those that the model does not have the nearest is " : "",
                     (int)nearest.name.size, nearest.name.text ? nearest.name.text : "");
}

/* The part that a rank should have; false: the ranks cannot share it evenly. */
static bool part_shape(const struct import_plan *p, const struct import_target *t, int64_t shape[2]) {
    int64_t rows = p->checkpoint->ranked && t->split != SPLIT_NONE ? p->checkpoint->ranks : 1, columns = rows;
    if (t->split == SPLIT_COLUMNS)
        rows = 1;
    else
        columns = 1;
    int64_t halves = t->split == SPLIT_HALVES ? 2 : 1;
    shape[0] = t->shape[0] / rows;
    shape[1] = t->shape[1] / columns;
    return t->shape[0] % (rows * halves) == 0 && t->shape[1] % columns == 0;
}

static enum status check_shape(const struct import_plan *p, const struct import_target *t, struct error *e) {
    int64_t shape[2];
    const struct checkpoint_tensor *from = t->from;
    bool fits = part_shape(p, t, shape) && from->n_dims == t->n_dims && from->shape[0] == shape[0] &&
                (t->n_dims < 2 || from->shape[1] == shape[1]);
    if (fits) return STATUS_OK;
    struct buffer found = {0}, wanted = {0};
    for (int i = 0; i < from->n_dims; i++) buffer_printf(&found, "%s%lld", i ? ", " : "", (long long)from->shape[i]);
    for (int i = 0; i < t->n_dims; i++) buffer_printf(&wanted, "%s%lld", i ? ", " : "", (long long)shape[i]);
    error_set(e, STATUS_CORRUPT, "%s: %s has the shape [%s]; the configuration wants [%s]%s", from->file, t->name,
              found.data ? found.data : "", wanted.data, p->checkpoint->ranked ? " of each rank" : "");
    buffer_free(&found);
    buffer_free(&wanted);
    return e->status;
}

static bool has_prefix_of(const char *name, const char *part) { return strstr(name, part) != NULL; }

/* Whether a tensor goes when a Retro becomes a GPT. */
static bool is_trimmed(const struct import_plan *p, const char *name) {
    return p->trimmed &&
           (has_prefix_of(name, ".cross_attention.") || has_prefix_of(name, ".pre_cross_attn_layernorm."));
}

static enum status check_left_over(struct import_plan *p, struct error *e) {
    const struct checkpoint *c = p->checkpoint;
    for (int i = 0; i < c->n; i++) {
        const struct checkpoint_tensor *t = &c->tensors[i];
        struct nearest_name nearest = {0};
        if (t->used) continue;
        if (is_trimmed(p, t->name)) {
            p->trimmed_tensors++;
            continue;
        }
        for (int k = 0; k < p->n; k++)
            nearest_offer(&nearest, (struct text_span){t->name, strlen(t->name)},
                          (struct text_span){p->targets[k].name, strlen(p->targets[k].name)});
        return error_set(e, STATUS_CORRUPT, "%s: the model has no tensor %s%s%.*s", t->file, t->name,
                         nearest.name.text ? "; the nearest that it has is " : "", (int)nearest.name.size,
                         nearest.name.text ? nearest.name.text : "");
    }
    return STATUS_OK;
}

static int compare_targets(const void *a, const void *b) {
    return strcmp(((const struct import_target *)a)->name, ((const struct import_target *)b)->name);
}

/* Finds what targets come from; all tensors of a name are used by it. */
static void match_names(struct import_plan *p) {
    struct checkpoint *c = p->checkpoint;
    for (int i = 0; i < p->n; i++) {
        struct checkpoint_tensor *found = checkpoint_find(c, p->targets[i].name);
        p->targets[i].from = found;
        for (; found && found < c->tensors + c->n && strcmp(found->name, p->targets[i].name) == 0; found++)
            found->used = true;
    }
}

enum status import_match(struct import_plan *p, struct error *e) {
    mark_tied(p);
    add_targets(p);
    qsort(p->targets, (size_t)p->n, sizeof *p->targets, compare_targets);
    match_names(p);
    for (int i = 0; i < p->n; i++)
        if (p->targets[i].from == NULL) return fail_missing(p, &p->targets[i], e);
    if (check_left_over(p, e)) return e->status;
    for (int i = 0; i < p->n; i++) {
        const struct checkpoint_tensor *from = p->targets[i].from;
        if (from->problem) return error_set(e, STATUS_UNSUPPORTED, "%s", from->problem);
        if (check_shape(p, &p->targets[i], e)) return e->status;
    }
    return STATUS_OK;
}
