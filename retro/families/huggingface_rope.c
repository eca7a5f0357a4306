/* retro/families/huggingface_rope.c: the keys of config.json about rotary positions, as
 * transformers 4 and 5 write them, and the frequencies that they stand for. The formulas are those
 * of transformers 5.23, modeling_rope_utils.py.
 */
#include <math.h>
#include <string.h>

#include "retro/families/huggingface.h"

enum rope_kind {
    KIND_DEFAULT,
    KIND_LINEAR,
    KIND_LLAMA3,
    KIND_YARN,
    KIND_LONGROPE,
    KIND_DYNAMIC,
    KIND_MROPE,
    KIND_PROPORTIONAL
};

static const struct json_choice kinds[] = {{"default", KIND_DEFAULT},
                                           {"linear", KIND_LINEAR},
                                           {"llama3", KIND_LLAMA3},
                                           {"yarn", KIND_YARN},
                                           {"longrope", KIND_LONGROPE},
                                           {"su", KIND_LONGROPE},
                                           {"mrope", KIND_MROPE},
                                           {"proportional", KIND_PROPORTIONAL},
                                           {NULL, 0}};

/* One dictionary; 0 and NULL stand for what it lacks. */
struct rope_keys {
    int kind, original;
    double base, partial, factor, attention_factor;
    double low, high;                                /* llama3 */
    double beta_fast, beta_slow, mscale, mscale_all; /* yarn */
    double growth, alpha;
    bool truncate;
    const struct json *short_factor, *long_factor; /* longrope */
    bool sectioned;                                /* there is an mrope_section */
    bool interleaved;                              /* whose pairs take turns */
    int sections[MROPE_SECTIONS]; /* of the pairs, how many turn by each of a row's positions */
};

/* rope_parameters: one dictionary, or one for each type of layer. */
struct rope_parameters {
    struct rope_keys flat, full, sliding;
};

struct rope_config {
    double base, local_base, partial, neox_base, neox_partial;
    int original;
    struct rope_parameters parameters;
    struct rope_keys scaling;
    bool scales; /* there is a rope_scaling */
};

static enum status parse_kind(struct json_reader *reader, const struct json *value, void *object) {
    static const struct json_field kind = {.type = JSON_CHOICE, .choices = kinds};
    struct rope_keys *keys = object;
    const char *name = json_text(value).text;
    keys->kind = KIND_DYNAMIC;
    if (name && strcmp(name, "dynamic") == 0) return STATUS_OK;
    return json_field_read(reader, &kind, value, &keys->kind);
}

static enum status parse_sections(struct json_reader *reader, const struct json *value,
                                  void *object) {
    static const struct json_field pairs = {
        .type = JSON_INT, .min = 0, .max = ATTENTION_MAX_HEAD / 2};
    static const struct json_field field = {.type = JSON_LIST,
                                            .min = MROPE_SECTIONS,
                                            .max = MROPE_SECTIONS,
                                            .item = &pairs,
                                            .item_size = sizeof(int)};
    struct rope_keys *keys = object;
    struct json_list list = {0};
    enum status status = json_field_read(reader, &field, value, &list);
    keys->sectioned = status == STATUS_OK;
    if (keys->sectioned) memcpy(keys->sections, list.items, sizeof keys->sections);
    json_list_free(&field, &list);
    return status;
}

#define ROPE_ROWS(type_required) \
    {.name = "rope_type|type", \
     .type = JSON_PARSED, \
     .parse = parse_kind, \
     .required = (type_required)}, \
        {"rope_theta", JSON_DOUBLE, JSON_AT(struct rope_keys, base)}, \
        {"partial_rotary_factor", JSON_DOUBLE, JSON_AT(struct rope_keys, partial)}, \
        {"factor", JSON_DOUBLE, JSON_AT(struct rope_keys, factor)}, \
        {"attention_factor", JSON_DOUBLE, JSON_AT(struct rope_keys, attention_factor)}, \
        {"original_max_position_embeddings", JSON_INT, JSON_AT(struct rope_keys, original), \
         .min = 1, .max = LIMIT_POSITIONS}, \
        {"low_freq_factor", JSON_DOUBLE, JSON_AT(struct rope_keys, low)}, \
        {"high_freq_factor", JSON_DOUBLE, JSON_AT(struct rope_keys, high)}, \
        {"beta_fast", JSON_DOUBLE, JSON_AT(struct rope_keys, beta_fast)}, \
        {"beta_slow", JSON_DOUBLE, JSON_AT(struct rope_keys, beta_slow)}, \
        {"mscale", JSON_DOUBLE, JSON_AT(struct rope_keys, mscale)}, \
        {"mscale_all_dim", JSON_DOUBLE, JSON_AT(struct rope_keys, mscale_all)}, \
        {"llama_4_scaling_beta", JSON_DOUBLE, JSON_AT(struct rope_keys, growth), .fallback = -1}, \
        {"alpha", JSON_DOUBLE, JSON_AT(struct rope_keys, alpha)}, \
        {"truncate", JSON_BOOL, JSON_AT(struct rope_keys, truncate), .fallback = true}, \
        {"short_factor", JSON_RAW, JSON_AT(struct rope_keys, short_factor)}, \
        {"long_factor", JSON_RAW, JSON_AT(struct rope_keys, long_factor)}, \
        {.name = "mrope_section", .type = JSON_PARSED, .parse = parse_sections}, { \
        "mrope_interleaved", JSON_BOOL, JSON_AT(struct rope_keys, interleaved) \
    }

/* transformers 5 falls back to "default", transformers 4 asks for a type. */
static const struct json_field dictionary_fields[] = {ROPE_ROWS(false)};
static const struct json_table dictionary_table = JSON_TABLE(dictionary_fields, .open = true);
static const struct json_field scaling_fields[] = {ROPE_ROWS(true)};
static const struct json_table scaling_table = JSON_TABLE(scaling_fields, .open = true);
static const struct json_field parameters_fields[] = {
    ROPE_ROWS(false),
    {"full_attention", JSON_STRUCT, JSON_AT(struct rope_parameters, full),
     .table = &dictionary_table},
    {"sliding_attention", JSON_STRUCT, JSON_AT(struct rope_parameters, sliding),
     .table = &dictionary_table},
};
static const struct json_table parameters_table = JSON_TABLE(parameters_fields, .open = true);

/* An empty dictionary is none. */
static enum status parse_scaling(struct json_reader *reader, const struct json *value,
                                 void *object) {
    struct rope_config *config = object;
    bool empty = json_kind(value) == JSON_KIND_OBJECT && json_count(value) == 0;
    config->scales = !empty;
    return empty ? STATUS_OK : json_table_read(reader, &scaling_table, value, &config->scaling);
}

static const struct json_field config_fields[] = {
    {"rope_theta", JSON_DOUBLE, JSON_AT(struct rope_config, base)},
    {"rotary_emb_base", JSON_DOUBLE, JSON_AT(struct rope_config, neox_base)},
    {"rotary_pct", JSON_DOUBLE, JSON_AT(struct rope_config, neox_partial)},
    {"rope_local_base_freq", JSON_DOUBLE, JSON_AT(struct rope_config, local_base)},
    {"partial_rotary_factor", JSON_DOUBLE, JSON_AT(struct rope_config, partial)},
    {"original_max_position_embeddings", JSON_INT, JSON_AT(struct rope_config, original), .min = 1,
     .max = LIMIT_POSITIONS},
    {"rope_parameters", JSON_STRUCT, JSON_AT(struct rope_config, parameters),
     .table = &parameters_table},
    {.name = "rope_scaling", .type = JSON_PARSED, .parse = parse_scaling},
};
static const struct json_table config_table = JSON_TABLE(config_fields, .open = true);

static enum status refuse_key(const char *key, double value, const char *rule, struct error *e) {
    return error_set(e, STATUS_INVALID,
                     "config.json: \"%s\" of the rotary positions is %g, must be %s", key, value,
                     rule);
}

/* With an odd number of rotary dimensions the last pair takes one more. */
static void fill_plain(struct rope_table *table, double base, int dim) {
    table->base = (float)base;
    for (int i = 0; i < (dim + 1) / 2; i++)
        table->inv_freq[i] = 1.0f / powf((float)base, (float)(2 * i) / (float)dim);
}

static void scale_linear(struct rope_table *table, const struct rope_keys *keys, int pairs) {
    for (int i = 0; i < pairs; i++) table->inv_freq[i] /= (float)keys->factor;
}

/* The first pairs of a whole head turn, and the others stand. */
static void fill_proportional(struct rope_table *table, const struct rope_keys *keys, int dim) {
    double partial = keys->partial != 0 ? keys->partial : 1,
           factor = keys->factor != 0 ? keys->factor : 1;
    int turning = (int)floor(partial * dim / 2);
    for (int i = 0; i < dim / 2; i++)
        table->inv_freq[i] = i < turning ? table->inv_freq[i] / (float)factor : 0;
}

/* Long waves are stretched, short ones stay, and between the two a smooth mix; with equal factors
 * (Llama 4 Scout) there is nothing between. PyTorch divides a number by a tensor by way of the
 * reciprocal, and far from the start of a text a rounding shows. */
static enum status scale_llama3(struct rope_table *table, const struct rope_keys *keys, int pairs,
                                struct error *e) {
    if (!(keys->low > 0)) return refuse_key("low_freq_factor", keys->low, "positive", e);
    if (!(keys->high >= keys->low))
        return refuse_key("high_freq_factor", keys->high, "low_freq_factor or greater", e);
    float longest = (float)(keys->original / keys->low),
          shortest = (float)(keys->original / keys->high);
    for (int i = 0; i < pairs; i++) {
        float plain = table->inv_freq[i], wave = 1 / plain * (float)(2 * 3.14159265358979323846);
        float turns = 1 / wave * (float)keys->original;
        bool between = keys->high > keys->low;
        float smooth = between ? (turns - (float)keys->low) / (float)(keys->high - keys->low) : 0;
        float mixed = (1 - smooth) * plain / (float)keys->factor + smooth * plain;
        table->inv_freq[i] = wave < shortest  ? plain
                             : wave > longest ? plain / (float)keys->factor
                                              : mixed;
    }
    return STATUS_OK;
}

/* The pair that turns `rotations` times within the original length. */
static double find_pair(double rotations, const struct rope_keys *keys, double base, int dim) {
    return dim * log(keys->original / (rotations * 2 * 3.14159265358979323846)) / (2 * log(base));
}

static double stretch_attention(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* Peng et al. 2023: pairs that turn often stay, pairs that turn seldom are stretched, a ramp
 * between. */
static void scale_yarn(struct rope_table *table, const struct rope_keys *keys, double base,
                       int dim) {
    double factor = keys->factor;
    double low = find_pair(keys->beta_fast != 0 ? keys->beta_fast : 32, keys, base, dim);
    double high = find_pair(keys->beta_slow != 0 ? keys->beta_slow : 1, keys, base, dim);
    if (keys->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, dim - 1);
    if (low == high) high += 0.001;

    for (int i = 0; i < (dim + 1) / 2; i++) {
        float position = powf((float)base, (float)(2 * i) / (float)dim);
        float ramp = fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0), 1),
              kept = 1 - ramp;
        table->inv_freq[i] =
            1.0f / ((float)factor * position) * (1 - kept) + 1.0f / position * kept;
    }

    double attention = keys->attention_factor;
    bool by_dim = keys->mscale != 0 && keys->mscale_all != 0;
    if (attention == 0 && by_dim)
        attention =
            stretch_attention(factor, keys->mscale) / stretch_attention(factor, keys->mscale_all);
    else if (attention == 0)
        attention = stretch_attention(factor, 1);
    table->scale = (float)attention;
    table->yarn =
        (struct rope_yarn){.factor = (float)factor,
                           .original = keys->original,
                           .beta_fast = keys->beta_fast != 0 ? (float)keys->beta_fast : 32,
                           .beta_slow = keys->beta_slow != 0 ? (float)keys->beta_slow : 1,
                           .truncate = keys->truncate,
                           .usual = attention == stretch_attention(factor, 1)};
}

static enum status fill_by_list(struct rope_table *table, const struct json *list, const char *key,
                                double base, int dim, struct error *e) {
    int pairs = (dim + 1) / 2;
    if (!json_is_list(list) || json_count(list) != (size_t)pairs)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"%s\" of longrope must be a list of %d numbers", key,
                         pairs);
    for (int i = 0; i < pairs; i++) {
        const struct json *item = json_item(list, (size_t)i);
        float factor = json_is_numeric(item) ? (float)json_double(item) : 0;
        if (!(factor > 0))
            return error_set(e, STATUS_INVALID,
                             "config.json: \"%s\" of longrope has an entry that is not positive",
                             key);
        table->inv_freq[i] = 1.0f / (factor * powf((float)base, (float)(2 * i) / (float)dim));
    }
    return STATUS_OK;
}

/* transformers takes the long factors as soon as one call has more tokens than the original length;
 * so the same text has two answers while it grows. Here the most tokens that a session may have
 * decide, once for all of them (struct dims). */
static enum status fill_longrope(struct dims *dims, const struct rope_keys *keys, int dim,
                                 struct error *e) {
    struct rope_table *usual = &dims->rope[ROPE_GLOBAL], *far = &dims->rope[ROPE_LONG];
    double attention = keys->attention_factor;
    if (attention == 0)
        attention = keys->factor <= 1 ? 1 : sqrt(1 + log(keys->factor) / log(keys->original));
    usual->scale = far->scale = (float)attention;
    far->base = usual->base;
    dims->rope_long_after = keys->original;
    if (fill_by_list(usual, keys->short_factor, "short_factor", keys->base, dim, e))
        return e->status;
    return fill_by_list(far, keys->long_factor, "long_factor", keys->base, dim, e);
}

static enum status fill_table(struct dims *dims, enum rope_id id, const struct rope_keys *keys,
                              int dim, struct error *e) {
    struct rope_table *table = &dims->rope[id];
    int pairs = (dim + 1) / 2;
    bool scaled =
        keys->kind != KIND_DEFAULT && keys->kind != KIND_MROPE && keys->kind != KIND_PROPORTIONAL;
    if (keys->kind == KIND_DYNAMIC) dims->rope_bounded = true;
    if (!(keys->base > 0)) return refuse_key("rope_theta", keys->base, "positive", e);
    if (scaled && !(keys->factor > 0)) return refuse_key("factor", keys->factor, "positive", e);
    if (keys->attention_factor < 0)
        return refuse_key("attention_factor", keys->attention_factor, "positive", e);
    fill_plain(table, keys->base, dim);
    switch ((enum rope_kind)keys->kind) {
        case KIND_DEFAULT: break;
        case KIND_MROPE: break;   /* read_sections does the rest */
        case KIND_DYNAMIC: break; /* a longer text has no one answer */
        case KIND_PROPORTIONAL: fill_proportional(table, keys, dim); break;
        case KIND_LINEAR: scale_linear(table, keys, pairs); break;
        case KIND_LLAMA3: return scale_llama3(table, keys, pairs, e);
        case KIND_YARN: scale_yarn(table, keys, keys->base, dim); break;
        case KIND_LONGROPE:
            if (id == ROPE_GLOBAL) return fill_longrope(dims, keys, dim, e);
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: longrope in layers with a window is not supported");
    }
    return STATUS_OK;
}

/* A base for longer texts, which does not depend on the text. */
static void stretch_base(struct rope_keys *keys, int head_dim) {
    if (keys->kind != KIND_DYNAMIC || !(keys->alpha > 0) || head_dim <= 2) return;
    keys->kind = KIND_DEFAULT;
    keys->base *= pow(keys->alpha, (double)head_dim / (head_dim - 2));
}

/* The original length: the file's own key wins over the dictionary's. */
static void complete_keys(struct rope_keys *keys, const struct rope_config *config,
                          const struct rope_rules *rules, const struct model_spec *spec,
                          const struct dims *dims) {
    if (keys->base == 0) keys->base = config->base != 0 ? config->base : rules->base;
    if (keys->partial == 0) keys->partial = config->partial != 0 ? config->partial : rules->partial;
    if (rules->alpha) stretch_base(keys, dims->head_dim);
    if (rules->renames_yarn && keys->kind == KIND_YARN) keys->kind = KIND_LONGROPE;
    if (config->original > 0) keys->original = config->original;
    if (keys->original == 0) keys->original = spec->max_positions;
    bool by_lengths = keys->kind == KIND_YARN || keys->kind == KIND_LONGROPE;
    if (keys->factor == 0 && by_lengths && keys->original > 0)
        keys->factor = (double)spec->max_positions / keys->original;
}

static enum status read_partial(const struct rope_keys *keys, const struct rope_rules *rules,
                                const struct dims *dims, int *dim, struct error *e) {
    double partial = keys->partial != 0 ? keys->partial : 1;
    bool share = partial > 0 && partial <= 1;
    if (rules->proportional != 0 && share) { /* fill_proportional takes it */
        *dim = dims->head_dim;
        return STATUS_OK;
    }
    if (rules->partial == 0 && partial != 1)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"partial_rotary_factor\" is %g, which is not supported in "
                         "this family: leave "
                         "it out or send 1",
                         partial);
    int whole = rules->rotated > 0 ? rules->rotated : dims->head_dim;
    *dim = partial > 0 && partial <= 1 ? (int)(whole * partial) : 0;
    if (*dim >= 1) return STATUS_OK;
    return refuse_key("partial_rotary_factor", partial,
                      "a share of a head, with one dimension at least", e);
}

/* Of families whose rows have one position, in any of the dictionaries; and pairs that take turns,
 * of families whose rows have several side by side. */
static enum status refuse_sections(const struct rope_config *config, const struct rope_rules *rules,
                                   struct error *e) {
    const struct rope_keys *const all[] = {&config->scaling, &config->parameters.flat,
                                           &config->parameters.full, &config->parameters.sliding};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        if (all[i]->interleaved && !rules->reads_text && !rules->interleaved)
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: \"mrope_interleaved\" of the rotary positions is not "
                             "supported in this family");
        if (rules->multimodal || rules->reads_text) continue;
        if (all[i]->sectioned || all[i]->kind == KIND_MROPE)
            return error_set(
                e, STATUS_UNSUPPORTED,
                "config.json: \"%s\" of the rotary positions is not supported in this family",
                all[i]->sectioned ? "mrope_section" : "mrope");
    }
    return STATUS_OK;
}

/* Of queries, in proportion to the logarithm of their place; none where the proportion is 0. */
static enum status read_growth(const struct rope_keys *keys, const struct rope_rules *rules,
                               struct dims *dims, struct error *e) {
    if (!rules->grows || keys->growth == 0) return STATUS_OK;
    if (!(keys->growth > 0))
        return refuse_key("llama_4_scaling_beta", keys->growth, "given, and not negative", e);
    dims->query_growth = (float)keys->growth;
    dims->query_grows_after = keys->original;
    return STATUS_OK;
}

/* As transformers does for every table that is not plain. */
static void scale_scores(const struct rope_keys *keys, const struct rope_rules *rules,
                         struct dims *dims) {
    if (!rules->scales_scores || keys->kind == KIND_DEFAULT || keys->mscale_all == 0) return;
    double mscale = stretch_attention(keys->factor, keys->mscale_all);
    dims->score_scale = (float)(dims->score_scale * mscale * mscale);
}

/* Of families whose layers with a window have tables of their own, where there are wide heads. */
static enum status fill_tables(struct dims *dims, const struct rope_rules *rules,
                               const struct rope_keys *global, const struct rope_keys *windowed,
                               int dim, struct error *e) {
    bool wide = rules->proportional != 0 && dims->wide_head_dim > 0;
    if (wide && dims->wide_head_dim > ATTENTION_MAX_HEAD)
        return STATUS_OK; /* spec_check words it */
    if (fill_table(dims, ROPE_GLOBAL, global, wide ? dims->wide_head_dim : dim, e))
        return e->status;
    return rules->local_base != 0 ? fill_table(dims, ROPE_LOCAL, windowed, dim, e) : STATUS_OK;
}

static enum status refuse_kind(const struct rope_keys *keys, const struct rope_rules *rules,
                               const struct model_spec *spec, struct error *e) {
    const char *needed = rules->alpha               ? "a positive \"alpha\" in this family"
                         : rules->multimodal        ? "rows that have one position"
                         : spec->max_positions == 0 ? "\"max_position_embeddings\""
                                                    : NULL;
    if (keys->kind == KIND_DYNAMIC && needed)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"dynamic\" of the rotary positions needs %s", needed);
    if (keys->kind != KIND_PROPORTIONAL || rules->proportional != 0) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "config.json: \"proportional\" of the rotary positions is not supported in "
                     "this family");
}

/* The position that pair i turns by: those of one stand side by side, or the three take turns as
 * long as the row or the column has pairs left, and the others are time's. */
static uint8_t section_of(int i, const int sections[MROPE_SECTIONS], bool interleaved) {
    int turn = i % MROPE_SECTIONS;
    if (interleaved) return i / MROPE_SECTIONS < sections[turn] ? (uint8_t)turn : 0;
    return (uint8_t)((i >= sections[0]) + (i >= sections[0] + sections[1]));
}

/* Tells each pair the position of a row that it turns by. Where pairs take turns, sections may
 * count more or fewer pairs than there are, as in transformers: those left over are time's. */
static enum status read_sections(const struct rope_keys *keys, const struct rope_rules *rules,
                                 struct dims *dims, struct error *e) {
    const int *sections = keys->sectioned ? keys->sections : rules->sections;
    int pairs = dims->rotated / 2;
    for (int i = 0; i < pairs; i++)
        dims->rope_section[i] = section_of(i, sections, rules->interleaved);
    dims->rope_sections = MROPE_SECTIONS;
    if (rules->interleaved || sections[0] + sections[1] + sections[2] == pairs) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "config.json: \"mrope_section\" is %d, %d and %d pairs, and a head has %d",
                     sections[0], sections[1], sections[2], pairs);
}

/* Of dictionaries by layer type: transformers 5.23 reads the key beside them, and not in them. */
static bool truncates(const struct json *parameters) {
    const struct json *value = json_member(parameters, "truncate");
    return json_is_absent(value) || json_bool(value);
}

enum status huggingface_read_rope(const struct json *config, const struct rope_rules *rules,
                                  const struct model_spec *spec, struct dims *dims,
                                  struct error *e) {
    struct rope_config rope_config = {.original = rules->original};
    if (rules->none) return STATUS_OK;
    if (spec_read(config, &config_table, &rope_config, e)) return e->status;
    if (rules->neox_names && rope_config.neox_base != 0) rope_config.base = rope_config.neox_base;
    if (rules->neox_names && rope_config.neox_partial != 0)
        rope_config.partial = rope_config.neox_partial;
    const struct json *nested = json_member(config, "rope_parameters");
    bool by_type = !json_is_absent(json_member(nested, "full_attention")) ||
                   !json_is_absent(json_member(nested, "sliding_attention"));
    bool local = rules->local_base != 0 && !rules->bases_given;
    bool flat = !json_is_absent(nested) && json_count(nested) > 0 && !by_type;
    if (local ? flat : by_type)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"rope_parameters\" must %s in this family",
                         local ? "have \"full_attention\" and \"sliding_attention\""
                               : "be of all layers at once");

    struct rope_keys global = rope_config.scales ? rope_config.scaling
                              : by_type          ? rope_config.parameters.full
                                                 : rope_config.parameters.flat;
    struct rope_keys windowed = rope_config.parameters.sliding;
    if (rules->proportional != 0 && !by_type)
        global = (struct rope_keys){.kind = KIND_PROPORTIONAL, .partial = rules->proportional};
    if (local) global.truncate = windowed.truncate = truncates(nested);
    int dim, same;
    if (rope_config.scales && global.base == 0) global.base = rope_config.parameters.full.base;
    if (rules->bases_given) global.base = rules->base;
    complete_keys(&global, &rope_config, rules, spec, dims);
    if (rules->bases_given) windowed = global;
    if (rules->bases_given) windowed.base = rules->local_base;
    if (windowed.base == 0)
        windowed.base = rope_config.local_base != 0 && !rules->local_fixed ? rope_config.local_base
                                                                           : rules->local_base;
    complete_keys(&windowed, &rope_config, rules, spec, dims);
    if (read_partial(&global, rules, dims, &dim, e) ||
        read_partial(&windowed, rules, dims, &same, e))
        return e->status;
    if (dims->head_dim > ATTENTION_MAX_HEAD) return STATUS_OK; /* spec_check words it */
    dims->rotated = (dim + 1) / 2 * 2;
    if (refuse_kind(&global, rules, spec, e) || refuse_kind(&windowed, rules, spec, e) ||
        fill_tables(dims, rules, &global, &windowed, dim, e) ||
        read_growth(&global, rules, dims, e))
        return e->status;
    scale_scores(&global, rules, dims);
    if (refuse_sections(&rope_config, rules, e)) return e->status;
    return rules->multimodal ? read_sections(&global, rules, dims, e) : STATUS_OK;
}
