/* tools/convert/plan/import_pictures.c: vision towers, alone or in LLaVA. Their checkpoints say
 * nothing of the tower, so all of config.json is given; names say how ranks share a tensor, and the
 * folder's own family checks names and shapes.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/convert/plan/import.h"

static const char *const architectures[] = {"llava", "clip_vit", "radio_vit"};

bool import_is_pictures(const struct settings *given) {
    const char *named = settings_text(given, "architecture");
    for (size_t i = 0; named && i < ARRAY_COUNT(architectures); i++)
        if (strcmp(architectures[i], named) == 0) return true;
    return false;
}

static bool ends_with_one(const char *name, const char *const *ends, size_t n) {
    size_t size = strlen(name);
    for (size_t i = 0; i < n; i++) {
        size_t end = strlen(ends[i]);
        if (size >= end && strcmp(name + size - end, ends[i]) == 0) return true;
    }
    return false;
}

/* Whether the MLP of the part that a name belongs to is gated. */
static bool is_gated(const struct import_plan *plan, const char *name) {
    static const char *const parts[][2] = {{"language_model.", "language.activation"},
                                           {"vision_model.", "vision.activation"},
                                           {"vision_projection.", "projector.activation"},
                                           {"", "activation"}};
    size_t i = 0;
    while (strncmp(name, parts[i][0], strlen(parts[i][0])) != 0) i++;
    const char *activation = settings_text(&plan->given, parts[i][1]);
    return activation &&
           (strcmp(activation, "swiglu") == 0 || strncmp(activation, "geglu", 5) == 0);
}

static enum import_split split_of(const struct import_plan *plan, const char *name) {
    static const char *const rows[] = {
        "word_embeddings.weight", "output_layer.weight", "linear_qkv.weight", "linear_qkv.bias",
        "linear_fc1.weight",      "linear_fc1.bias",     "embedder.weight",   "embedder.bias"};
    static const char *const columns[] = {"linear_proj.weight", "linear_fc2.weight"};
    if (!plan->checkpoint->ranked || plan->checkpoint->ranks == 1) return SPLIT_NONE;
    if (ends_with_one(name, columns, ARRAY_COUNT(columns))) return SPLIT_COLUMNS;
    if (!ends_with_one(name, rows, ARRAY_COUNT(rows))) return SPLIT_NONE;
    return strstr(name, "linear_fc1.") && is_gated(plan, name) ? SPLIT_HALVES : SPLIT_ROWS;
}

static enum status add_target(struct import_plan *plan, const struct checkpoint_tensor *from,
                              struct error *e) {
    if (from->problem) return error_set(e, STATUS_UNSUPPORTED, "%s", from->problem);
    struct import_target target = {
        .n_dims = from->n_dims, .split = split_of(plan, from->name), .from = from};
    memcpy(target.shape, from->shape, sizeof target.shape);
    if (target.split == SPLIT_ROWS || target.split == SPLIT_HALVES)
        target.shape[0] *= plan->checkpoint->ranks;
    if (target.split == SPLIT_COLUMNS) target.shape[1] *= plan->checkpoint->ranks;
    bool possible = target.n_dims > 0 && (target.split != SPLIT_COLUMNS || target.n_dims == 2) &&
                    (target.split != SPLIT_HALVES || from->shape[0] % 2 == 0);
    for (int k = 0; !plan->checkpoint->ranked && k < from->n_pieces; k++)
        for (int axis = 2; axis < target.n_dims; axis++)
            possible = possible && from->pieces[k].extent[axis] == target.shape[axis];
    if (!possible)
        return error_set(e, STATUS_CORRUPT, "%s: %s cannot be joined of its parts", from->file,
                         from->name);
    plan->targets = xgrow(plan->targets, plan->n, &plan->capacity, sizeof *plan->targets);
    plan->targets[plan->n] = target;
    plan->targets[plan->n].name = xstrdup(from->name);
    plan->n++;
    return STATUS_OK;
}

enum status import_match_pictures(struct import_plan *plan, struct error *e) {
    const struct checkpoint *checkpoint = plan->checkpoint;
    const char *named = settings_text(&plan->given, "architecture");
    settings_put_text(&plan->config, "architecture", (struct text_span){named, strlen(named)});
    settings_say(&plan->config, "architecture", "--config, as all of config.json");
    for (int i = 0; i < checkpoint->n; i++) {
        bool copy =
            i > 0 && strcmp(checkpoint->tensors[i].name, checkpoint->tensors[i - 1].name) == 0;
        if (!copy && add_target(plan, &checkpoint->tensors[i], e)) return e->status;
    }
    return STATUS_OK;
}
