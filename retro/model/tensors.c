/* retro/model/tensors.c: the walk over all places that a model keeps weights in, and the names of
 * their tensors. See tensors.h. */
#include "retro/model/layer_places.h"
#include "retro/model/tensor_shapes.h"

#include <stdio.h>
#include <string.h>

/* Names. */

/* prefix + spelling, with '*', '~' and '#' replaced. */
static const char *spell(const char *prefix, const char *spelling, bool bias, int expert,
                         char name[TENSOR_NAME]) {
    int used = snprintf(name, TENSOR_NAME, "%s", prefix);
    for (const char *at = spelling; *at; at++) {
        CHECK(used >= 0 && used < TENSOR_NAME);
        char *to = name + used;
        size_t room = (size_t)(TENSOR_NAME - used);
        if (*at == '*')
            used += snprintf(to, room, "%s", bias ? "bias" : "weight");
        else if (*at == '~')
            used += snprintf(to, room, "%s", bias ? "beta" : "gamma");
        else if (*at == '#')
            used += snprintf(to, room, "%d", expert);
        else
            used += snprintf(to, room, "%c", *at);
    }
    CHECK(used > 0 && used < TENSOR_NAME);
    return name;
}

const char *place_spelling(const struct place *place, int i, int j, char name[TENSOR_NAME]) {
    const struct tensor_row *row = &place->rows->rows[i];
    int n = 0;
    while (n < (int)ARRAY_COUNT(row->names) && row->names[n]) n++;
    if (place->roots == NULL)
        return j < n ? spell(place->prefix, row->names[j], place->bias, place->expert, name) : NULL;
    if (j >= n * PART_ROOTS || place->roots[j / n] == NULL) return NULL;
    return spell(place->roots[j / n], row->names[j % n], place->bias, place->expert, name);
}

/* "decoder.layers.#." of layer 3 is "decoder.layers.3." behind the root; '@' is the first retro
 * layer. */
static void make_prefix(const struct model *model, const char *root, const char *form, int layer,
                        char prefix[TENSOR_NAME]) {
    size_t used = strlen(root);
    CHECK(used < TENSOR_NAME);
    memcpy(prefix, root, used);
    for (; *form; form++) {
        size_t room = TENSOR_NAME - used;
        int number = *form == '#' ? layer : model->spec.retro.first_layer;
        bool numbered = *form == '#' || *form == '@';
        int n = numbered ? snprintf(prefix + used, room, "%d", number)
                         : snprintf(prefix + used, room, "%c", *form);
        CHECK(n > 0 && (size_t)n < room);
        used += (size_t)n;
    }
    prefix[used] = '\0';
}

/* Listing the places. */

static bool is_state_shape(const struct place_shape *shape) {
    return shape->out == EXTENT_STATE_IN || shape->out == EXTENT_STATE_GATES ||
           shape->in == EXTENT_STATE_VALUES;
}

static bool has_bias(const struct model *model, const struct dims *dims,
                     const struct tensor_row *row, const struct place_shape *shape, bool absent) {
    if (row->bias_if_there) return !absent;
    if (shape->out == EXTENT_PROJECTOR_NORM) return model->spec.projector.norm == NORM_LAYER;
    if (shape->in == EXTENT_PROJECTOR_IN) return false;
    if (shape->in == EXTENT_PROJECTOR_MERGED || shape->out == EXTENT_PROJECTOR_OUT)
        return model->spec.projector.bias;
    if (shape->out == EXTENT_JOINT) return model->spec.dual_encoder_bias;
    if (shape->in == EXTENT_PATCH) return model->spec.tower.patch_bias;
    if (shape->kind == KIND_NORM) return dims->norm == NORM_LAYER;
    if (shape->out == EXTENT_VOCAB) return model->spec.output_bias;
    if (shape->out == EXTENT_EXPERTS || shape->kind == KIND_EXPERTS) return dims->expert_bias;
    if (shape->out == EXTENT_FC1 || shape->in == EXTENT_FFN) return dims->mlp_bias;
    if (shape->out == EXTENT_EXPERT_WIDTH || shape->in == EXTENT_EXPERT_WIDTH)
        return dims->shared_bias;
    if (is_state_shape(shape)) return dims->state.proj_bias;
    if (shape->out == EXTENT_LATENT_QUERIES) return false;
    if (shape->out == EXTENT_SHARED_FC1 || shape->in == EXTENT_SHARED_FFN) return dims->shared_bias;
    bool cross =
        shape->out == EXTENT_HEADS || shape->out == EXTENT_CROSS_KV; /* retro-model.md 5.6 */
    return shape->in == EXTENT_HEADS || cross ? dims->proj_bias : dims->qkv_bias;
}

static bool is_first_row(const struct tensor_rows *rows, int i) {
    for (int j = 0; j < i; j++)
        if (rows->rows[j].place == rows->rows[i].place) return false;
    return true;
}

struct tensor_walk {
    struct model *model;
    place_visitor *visit;
    void *context;
    struct error *error;
};

/* The matrices of heads are parts of one tensor: each has a name of its own. */
static void name_head(struct place *place) {
    enum part part = place->rows->rows[place->row].part;
    size_t used = strlen(place->name);
    if (!part_is_head(part)) return;
    int n = snprintf(place->name + used, TENSOR_NAME - used, ".%d.%s", place->expert,
                     part == PART_HEAD_KEYS ? "keys" : "values");
    CHECK(n > 0 && (size_t)n < TENSOR_NAME - used);
}

static enum status visit_one(const struct tensor_walk *walk, struct place *place,
                             enum place_form form, bool bias, void *at) {
    place->form = form;
    place->bias = bias;
    place->at = at;
    CHECK(place_spelling(place, place->row, 0, place->name) != NULL);
    name_head(place);
    return walk->visit(walk->context, place, walk->error);
}

/* A bias has the rows of its matrix, and one column that no rank splits. */
static struct share share_of_bias(struct share share) {
    share.whole_cols = share.cols = 1;
    share.first_col = 0;
    return share;
}

/* The one or two places of each expert. */
static enum status visit_experts(const struct tensor_walk *walk, struct place place,
                                 struct expert_projections *experts) {
    int n = walk->model->stacks[place.stack].dims.experts;
    const struct share share = place.share;
    for (int i = 0; i < n; i++) {
        place.expert = i;
        place.share = share;
        if (visit_one(walk, &place, PLACE_MATRIX, false, &experts->weights[i]))
            return walk->error->status;
        if (experts->biases == NULL) continue;
        place.share = share_of_bias(share);
        if (visit_one(walk, &place, PLACE_VECTOR, true, &experts->biases[i]))
            return walk->error->status;
    }
    return STATUS_OK;
}

/* The place of each head; those of other ranks are checked alone. */
static enum status visit_heads(const struct tensor_walk *walk, struct place place,
                               struct weight *weights) {
    const struct stack *stack = &walk->model->stacks[place.stack];
    bool elsewhere = place.elsewhere;
    for (int i = 0; i < stack->dims.heads; i++) {
        bool mine = i >= stack->heads.first && i < stack->heads.first + stack->heads.n;
        place.expert = i;
        place.elsewhere = elsewhere || !mine;
        if (visit_one(walk, &place, PLACE_MATRIX, false, &weights[i])) return walk->error->status;
    }
    return STATUS_OK;
}

/* The one or two places of a row: weight and bias, gamma and beta. */
static enum status visit_row(const struct tensor_walk *walk, struct place place,
                             const struct place_shape *shape, void *base, bool absent) {
    struct model *model = walk->model;
    const struct tensor_row *row = &place.rows->rows[place.row];
    char *at = (char *)base + row->place;
    bool bias = has_bias(model, &model->stacks[place.stack].dims, row, shape, absent);
    const struct layer *layer = place.outer ? NULL : base;
    place.share = share_make(model, place.stack, layer ? &layer->spec : NULL, shape);

    switch (shape->kind) {
        case KIND_MATRIX: return visit_one(walk, &place, PLACE_MATRIX, false, at);
        case KIND_EXPERTS: return visit_experts(walk, place, (void *)at);
        case KIND_HEADS: return visit_heads(walk, place, *(struct weight **)(void *)at);
        case KIND_TABLE: return visit_one(walk, &place, PLACE_TABLE, false, at);
        case KIND_RELATIVE: return visit_one(walk, &place, PLACE_RELATIVE, false, at);
        case KIND_NORM: {
            struct norm_weights *norm = (struct norm_weights *)(void *)at;
            if (visit_one(walk, &place, PLACE_GAMMA, false, &norm->gamma))
                return walk->error->status;
            return bias ? visit_one(walk, &place, PLACE_VECTOR, true, &norm->beta) : STATUS_OK;
        }
        case KIND_PROJECTION: {
            struct projection *projection = (struct projection *)(void *)at;
            if (visit_one(walk, &place, PLACE_MATRIX, false, &projection->weight))
                return walk->error->status;
            place.share = share_of_bias(place.share);
            return bias ? visit_one(walk, &place, PLACE_VECTOR, true, &projection->bias)
                        : STATUS_OK;
        }
    }
    return STATUS_OK;
}

bool place_routes(const struct place *the_place) {
    size_t place = the_place->rows->rows[the_place->row].place;
    return !the_place->outer && (place == offsetof(struct layer, router) ||
                                 place == offsetof(struct layer, shared_gate));
}

bool place_is_expert(const struct place *the_place) {
    size_t place = the_place->rows->rows[the_place->row].place;
    return !the_place->outer && the_place->form == PLACE_MATRIX &&
           (place == offsetof(struct layer, expert_fc1) ||
            place == offsetof(struct layer, expert_fc2));
}

static enum status visit_layer(const struct tensor_walk *walk, struct layer *layer,
                               struct place the_place) {
    for (int i = 0; i < the_place.rows->n; i++) {
        size_t place = the_place.rows->rows[i].place;
        if (!is_first_row(the_place.rows, i) ||
            !layer_has_place(layer, &walk->model->stacks[the_place.stack].dims, place))
            continue;
        the_place.row = i;
        if (visit_row(walk, the_place, layer_shape(place), layer, layer->absent >> i & 1))
            return walk->error->status;
    }
    return STATUS_OK;
}

static bool in_stack(size_t place, enum stack_id stack) {
    size_t first = offsetof(struct model, stacks) + (size_t)stack * sizeof(struct stack);
    return place >= first && place < first + sizeof(struct stack);
}

/* The dims that an outer place takes its shape from. */
static enum stack_id stack_of(const struct model *model, size_t place) {
    size_t first = offsetof(struct model, tower),
           end = offsetof(struct model, newline) + sizeof model->newline;
    if (in_stack(place, STACK_ENCODER)) return STACK_ENCODER;
    if (in_stack(place, STACK_TOWER) || (place >= first && place < end)) return STACK_TOWER;
    return model_has_stack(model, STACK_DECODER) ? STACK_DECODER : STACK_ENCODER;
}

static bool outer_needed(const struct model *model, const struct place_shape *shape,
                         enum stack_id stack) {
    const struct dims *dims = &model->stacks[stack].dims;
    if (shape->kind == KIND_RELATIVE) return dims->buckets > 0;
    if (shape->out == EXTENT_DISTANCES) return dims->distances.span > 0;
    if (shape->place == offsetof(struct model, stacks[STACK_ENCODER].norm_distances))
        return dims->distances.normed;
    if (in_stack(shape->place, stack)) return dims->final_norm;
    if (shape->out == EXTENT_POSITIONS) return model->spec.learned_positions;
    if (shape->out == EXTENT_INPUT_VOCAB)
        return dims->layer_input > 0 && model->spec.input_vocab > 0;
    if (shape->out == EXTENT_LAYER_INPUTS || shape->out == EXTENT_LAYER_INPUT)
        return dims->layer_input > 0;
    if (shape->out == EXTENT_TYPES) return model->spec.type_vocab > 0;
    if (shape->place == offsetof(struct model, output))
        return model_writes(model) && !model->rows_only;
    if (shape->place == offsetof(struct model, tower.norm_before))
        return model->spec.tower.norm_before;
    if (shape->place == offsetof(struct model, tower.norm_head)) return model->spec.tower.pooled;
    if (shape->out == EXTENT_CHANNELS) return model->spec.tower.conditioned;
    if (shape->place == offsetof(struct model, tower.shift) ||
        shape->place == offsetof(struct model, tower.stretch))
        return model->spec.tower.standardized;
    if (shape->place == offsetof(struct model, tower.class_token))
        return model->spec.tower.class_tokens > 0;
    if (shape->place == offsetof(struct model, projector.norm)) return model->spec.projector.normed;
    if (shape->place == offsetof(struct model, projector.merge))
        return model->spec.projector.merged > 0;
    if (shape->place == offsetof(struct model, projector.fc1)) return model->spec.projector.out > 0;
    if (shape->place == offsetof(struct model, projector.fc2)) return model->spec.projector.ffn > 0;
    return true;
}

/* The embedding is on the first stage and on that of the neighbour encoder, the output on the last.
 */
static bool keeps_outer(const struct model *model, const struct place_shape *shape) {
    const struct comm *comm = model->comm;
    bool first = comm->stage == 0, last = comm->stage == comm->stages - 1,
         tied = model->spec.tied && comm->size == 1;
    bool word = shape->place == offsetof(struct model, embedding.word);
    if (shape->place == offsetof(struct model, output) || in_stack(shape->place, STACK_DECODER))
        return last;
    return first || comm->stage == model->encodes || (word && tied && last);
}

/* A tied output matrix is the word table; on several ranks each has its own part, cut from the word
 * table. */
static enum status visit_output(const struct tensor_walk *walk, struct place place,
                                const struct place_shape *shape, bool absent) {
    struct model *model = walk->model;
    bool bias = has_bias(model, &model->stacks[place.stack].dims, &place.rows->rows[place.row],
                         shape, absent);
    place.share = share_make(model, place.stack, NULL, shape);
    if (model->spec.tied && model->comm->size > 1) {
        struct place cut = place;
        cut.row = 0; /* of every family: the word table */
        if (visit_one(walk, &cut, PLACE_MATRIX, false, &model->output.weight))
            return walk->error->status;
    } else if (!model->spec.tied &&
               visit_one(walk, &place, PLACE_MATRIX, false, &model->output.weight)) {
        return walk->error->status;
    }
    place.share = share_of_bias(place.share);
    return bias ? visit_one(walk, &place, PLACE_VECTOR, true, &model->output.bias) : STATUS_OK;
}

/* How often the model has an outer place: one for each projector of the deepstack, whose rows are
 * those of the first. */
static int count_outer(const struct model *model, size_t place) {
    size_t first = offsetof(struct model, deepstack);
    bool deepstack = place >= first && place < first + sizeof model->deepstack;
    return deepstack ? model->spec.tower.n_deepstack : 1;
}

/* The outer places that a family's rows name. */
static enum status visit_part(const struct tensor_walk *walk, const struct model_part *part,
                              uint64_t absent) {
    struct model *model = walk->model;
    const struct tensor_rows *rows = &part->family->outer;
    for (int i = 0; i < rows->n; i++) {
        size_t place = rows->rows[i].place;
        const struct place_shape *shape = outer_shape(place);
        struct place the_place = {.prefix = "",
                                  .roots = part->roots,
                                  .rows = rows,
                                  .row = i,
                                  .outer = true,
                                  .stack = stack_of(model, place)};
        if (!is_first_row(rows, i) || !outer_needed(model, shape, the_place.stack)) continue;
        the_place.elsewhere = !keeps_outer(model, shape);
        bool output = place == offsetof(struct model, output), lacks = absent >> i & 1;
        CHECK(!output || rows->rows[0].place == offsetof(struct model, embedding.word));
        if (output && visit_output(walk, the_place, shape, lacks)) return walk->error->status;
        for (int j = 0; j < count_outer(model, place) && !output; j++) {
            the_place.expert = j;
            char *base = (char *)model + (size_t)j * sizeof *model->deepstack;
            if (visit_row(walk, the_place, shape, base, lacks)) return walk->error->status;
        }
    }
    return STATUS_OK;
}

static enum status visit_outer(const struct tensor_walk *walk) {
    struct model *model = walk->model;
    const struct model_part own = {.family = model->family, .roots = {""}};
    if (visit_part(walk, &own, model->absent[STACK_COUNT])) return walk->error->status;
    for (int id = 0; id < STACK_COUNT; id++) {
        const struct model_part *part = &model->spec.parts[id];
        if (part->family && visit_part(walk, part, model->absent[id])) return walk->error->status;
    }
    return STATUS_OK;
}

/* Layers of a decoder are on one stage each, an encoder is whole on one. */
static bool layer_elsewhere(const struct model *model, enum stack_id id, int i) {
    const struct portion *kept = &model->stacks[id].kept;
    return i < kept->first || i >= kept->first + kept->n;
}

/* model_resolve has chosen the spelling. */
static const char *layer_prefix(const struct model *model, enum stack_id id, int layer,
                                char prefix[TENSOR_NAME]) {
    struct model_part part = model_part_of(model, id);
    const struct tensor_rows *rows = &part.family->stacks[id];
    int spelling = model->stacks[id].prefix, forms = (int)ARRAY_COUNT(rows->prefixes);
    make_prefix(model, part.roots[spelling / forms], rows->prefixes[spelling % forms], layer,
                prefix);
    return prefix;
}

static const struct tensor_rows *layer_rows_of(const struct model *model, int id) {
    return &model_part_of(model, (enum stack_id)id).family->stacks[id];
}

enum status model_visit(struct model *model, place_visitor *visit, void *context, struct error *e) {
    struct tensor_walk walk = {.model = model, .visit = visit, .context = context, .error = e};
    char prefix[TENSOR_NAME];
    if (visit_outer(&walk)) return e->status;
    for (int id = 0; id < STACK_COUNT; id++) {
        struct stack *stack = &model->stacks[id];
        for (int i = 0; i < stack->dims.n_layers; i++) {
            struct place place = {.rows = layer_rows_of(model, id), .stack = (enum stack_id)id};
            place.prefix = layer_prefix(model, place.stack, i, prefix);
            place.elsewhere = layer_elsewhere(model, place.stack, i);
            if (visit_layer(&walk, &stack->layers[i], place)) return e->status;
        }
    }
    return STATUS_OK;
}

void place_kept(const struct model *model, const struct place *place, int *rows, int *cols) {
    bool relative = place->form == PLACE_RELATIVE;
    *rows = relative ? place->share.cols : place->share.rows;
    *cols = relative ? 2 * model->stacks[place->stack].dims.max_distance + 1 : place->share.cols;
}

/* Whether the weights has the weight or the bias of a row under one of the row's spellings behind
 * one of the prefixes. */
static bool has_row(const struct weights *weights, const char *const *prefixes, int n,
                    const struct tensor_row *row, bool bias) {
    char name[TENSOR_NAME];
    for (int i = 0; i < n && prefixes[i]; i++)
        for (size_t j = 0; j < ARRAY_COUNT(row->names) && row->names[j]; j++)
            if (weights_find(weights, spell(prefixes[i], row->names[j], bias, 0, name)))
                return true;
    return false;
}

static uint64_t find_absent(const struct tensor_rows *rows, const char *const *prefixes, int n,
                            const struct weights *weights) {
    uint64_t absent = 0;
    CHECK(rows->n <= 64);
    for (int i = 0; i < rows->n; i++) {
        const struct tensor_row *row = &rows->rows[i];
        bool there = row->bias_if_there && weights && has_row(weights, prefixes, n, row, true);
        if (!there) absent |= (uint64_t)1 << i;
    }
    return absent;
}

/* The spelling under which the weights has a tensor of the first layer, of roots times prefixes;
 * the family's own where it has none. */
static int find_prefix(const struct model *model, const struct model_part *part,
                       const struct tensor_rows *rows, const struct weights *weights) {
    char prefix[TENSOR_NAME];
    const char *const prefixes[] = {prefix};
    int forms = (int)ARRAY_COUNT(rows->prefixes);
    for (int j = 0; weights && j < forms * PART_ROOTS; j++) {
        const char *root = part->roots[j / forms], *form = rows->prefixes[j % forms];
        if (root == NULL || form == NULL) continue;
        make_prefix(model, root, form, 0, prefix);
        for (int i = 0; i < rows->n; i++)
            if (has_row(weights, prefixes, 1, &rows->rows[i], false)) return j;
    }
    return 0;
}

static void resolve_stack(struct model *model, enum stack_id id, const struct weights *weights) {
    char prefix[TENSOR_NAME];
    const char *const prefixes[] = {prefix};
    struct stack *stack = &model->stacks[id];
    struct model_part part = model_part_of(model, id);
    const struct tensor_rows *rows = &part.family->stacks[id];
    if (model->spec.parts[id].family)
        model->absent[id] = find_absent(&part.family->outer, part.roots, PART_ROOTS, weights);
    stack->prefix = find_prefix(model, &part, rows, weights);
    for (int i = 0; i < stack->dims.n_layers; i++) {
        layer_prefix(model, id, i, prefix);
        stack->layers[i].absent = find_absent(rows, prefixes, 1, weights);
    }
}

void model_resolve(struct model *model, const struct weights *weights) {
    const char *const none[] = {""};
    model->absent[STACK_COUNT] = find_absent(&model->family->outer, none, 1, weights);
    for (int id = 0; id < STACK_COUNT; id++) resolve_stack(model, (enum stack_id)id, weights);
}
