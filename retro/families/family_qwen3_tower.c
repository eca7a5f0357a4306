/* retro/families/family_qwen3_tower.c: the vision tower of Qwen3-VL as Hugging Face stores it, with
 * its mergers: as Qwen2-VL's (family_qwen_tower.c), with a learned table of positions beside the
 * rotary ones, all of which is resized to a picture's grid. Rows of some layers reach the decoder
 * by mergers of their own, which norm 2 x 2 rows joined, and not each (DeepStack). Qwen3.5 has the
 * same tower without such layers. */
#include "retro/families/huggingface_vision.h"

/* Keys that have no place in the spec. */
struct qwen3_tower_keys {
    struct qwen_tower_keys shared;
    int positions;
    struct json_list deepstack;
};

#define AT_KEYS(member) JSON_AT(struct qwen3_tower_keys, member)
static const struct json_field layer_number = {"", JSON_INT, .min = 0, .max = MAX_LAYERS - 1};
static const struct json_field shared_fields[] = {
    QWEN_TOWER_FIELDS(27, 16),
    {"hidden_size", JSON_INT, AT_TOWER(hidden), .min = 1, .max = LIMIT_WIDTH, .fallback = 1152},
    {"intermediate_size", JSON_INT, AT_TOWER(ffn), .min = 1, .max = LIMIT_FFN, .fallback = 4304},
    {"out_hidden_size", JSON_INT, AT_SPEC(projector.out), .min = 1, .max = LIMIT_WIDTH,
     .fallback = 3584},
    {"hidden_act", JSON_CHOICE, AT_KEYS(shared.activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_TANH},
    {"num_position_embeddings", JSON_INT, AT_KEYS(positions), .min = 1, .max = LIMIT_POSITIONS,
     .fallback = 2304},
};
static const struct json_table shared_table = JSON_TABLE(shared_fields);
static const struct json_field stacked_fields[] = {
    {.type = JSON_ROWS, .table = &shared_table},
    {"deepstack_visual_indexes", JSON_LIST, AT_KEYS(deepstack), .item = &layer_number,
     .item_size = sizeof(int), .max = MAX_DEEPSTACK},
};
static const struct json_table stacked_table = JSON_TABLE(stacked_fields, .open = true);
static const struct json_field plain_fields[] = {
    {.type = JSON_ROWS, .table = &shared_table},
    {.name = "deepstack_visual_indexes", .type = JSON_EMPTY},
};
static const struct json_table plain_table = JSON_TABLE(plain_fields, .open = true);

/* Layers of the tower, from the first to the last. */
static enum status read_deepstack(struct qwen3_tower_keys *keys, const struct json *config,
                                  struct error *e) {
    static const int usual[] = {8, 16, 24};
    struct tower_spec *tower = &keys->shared.spec.tower;
    bool absent = json_is_absent(json_member(config, "deepstack_visual_indexes"));
    const int *layers = absent ? usual : keys->deepstack.items;
    size_t n = absent ? ARRAY_COUNT(usual) : keys->deepstack.count;
    int before = -1, depth = keys->shared.spec.stacks[STACK_TOWER].n_layers;
    for (size_t i = 0; i < n; i++) {
        if (layers[i] <= before || layers[i] >= depth)
            return error_set(e, STATUS_INVALID,
                             "config.json: \"deepstack_visual_indexes\" has %d, must be layers of "
                             "%d in rising order",
                             layers[i], depth);
        tower->deepstack[i] = before = layers[i];
    }
    tower->n_deepstack = (int)n;
    return STATUS_OK;
}

/* The table is that of a square. */
static enum status read_positions(struct qwen3_tower_keys *keys, struct error *e) {
    struct tower_spec *tower = &keys->shared.spec.tower;
    int side = 1;
    while ((side + 1) * (side + 1) <= keys->positions) side++;
    if (side * side != keys->positions)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"num_position_embeddings\" is %d, must be a square",
                         keys->positions);
    tower->table_h = tower->table_w = side;
    tower->stretches = tower->corners = true;
    return STATUS_OK;
}

static enum status finish_keys(struct qwen3_tower_keys *keys, struct error *e) {
    if (read_positions(keys, e)) return e->status;
    struct projector_spec *projector = &keys->shared.spec.projector;
    keys->shared.spec.stacks[STACK_TOWER].norm = NORM_LAYER;
    keys->shared.spec.tower.patch_bias = true;
    projector->norm = NORM_LAYER;
    projector->epsilon = 1e-6f;
    return qwen_tower_finish(&keys->shared, e);
}

static enum status read_stacked(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct qwen3_tower_keys keys = {.shared.spec = *spec};
    enum status status = spec_read(config, &stacked_table, &keys, e);
    if (status == STATUS_OK) status = read_deepstack(&keys, config, e);
    json_table_free(&stacked_table, &keys);
    if (status || finish_keys(&keys, e)) return e->status;
    *spec = keys.shared.spec;
    return STATUS_OK;
}

static enum status read_plain(const struct json *config, struct model_spec *spec, struct error *e) {
    struct qwen3_tower_keys keys = {.shared.spec = *spec};
    if (spec_read(config, &plain_table, &keys, e) || finish_keys(&keys, e)) return e->status;
    *spec = keys.shared.spec;
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    QWEN_TOWER_ROWS,
    {.place = offsetof(struct layer, fc1), .names = {"mlp.linear_fc1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.linear_fc2.*"}},
};

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, tower.patch), .names = {"patch_embed.proj.*"}},
    {.place = offsetof(struct model, tower.position), .names = {"pos_embed.weight"}},
    {.place = offsetof(struct model, stacks[STACK_TOWER].final_norm), .names = {"merger.norm.*"}},
    {.place = offsetof(struct model, projector.fc1), .names = {"merger.linear_fc1.*"}},
    {.place = offsetof(struct model, projector.fc2), .names = {"merger.linear_fc2.*"}},
    {.place = offsetof(struct model, deepstack[0].norm),
     .names = {"deepstack_merger_list.#.norm.*"}},
    {.place = offsetof(struct model, deepstack[0].fc1),
     .names = {"deepstack_merger_list.#.linear_fc1.*"}},
    {.place = offsetof(struct model, deepstack[0].fc2),
     .names = {"deepstack_merger_list.#.linear_fc2.*"}},
};

#define TOWER(type, reader) \
    .model_type = (type), .read = (reader), .layer = qwen_tower_layer, \
    .stacks[STACK_TOWER] = {{"blocks.#."}, layer_rows, ARRAY_COUNT(layer_rows)}, \
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)}

const struct family qwen3_tower = {TOWER("qwen3_vl_vision", read_stacked)};
const struct family qwen3_moe_tower = {TOWER("qwen3_vl_moe_vision", read_stacked)};
const struct family qwen3_5_tower = {TOWER("qwen3_5_vision", read_plain)};
const struct family qwen3_5_moe_tower = {TOWER("qwen3_5_moe_vision", read_plain)};

static enum status read_alone(const struct json *config, struct model_spec *spec, struct error *e) {
    return qwen_tower_read(config, &qwen3_tower, spec, e) ? e->status : spec_check(spec, e);
}

const struct family family_qwen3_vl_vision = {
    .model_type = "qwen3_vl_vision", .read = read_alone, .layer = qwen_tower_layer};
