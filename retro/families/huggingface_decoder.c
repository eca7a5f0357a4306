/* retro/families/huggingface_decoder.c: the keys of config.json that decoders share, from Llama to
 * Gemma. See huggingface.h. */
#include <limits.h>
#include <string.h>

#include "retro/families/huggingface.h"
#include "retro/weights/fp8_blocks.h"
#include "retro/weights/gguf_folder.h"

/* A decoder alone names its sizes. */
#define SIZE_FIELDS(needed) \
    {"num_hidden_layers", JSON_INT, AT_DECODER(n_layers), .min = 1, .max = MAX_LAYERS, \
     .required = (needed)}, \
        {"hidden_size", JSON_INT,           AT_DECODER(hidden), \
         .min = 1,      .max = LIMIT_WIDTH, .required = (needed)}, \
        {"num_attention_heads", JSON_INT, AT_DECODER(heads), .min = 1, .max = LIMIT_HEADS, \
         .required = (needed)}, \
        {"vocab_size", JSON_INT, AT_SPEC(vocab), .min = 1, .max = LIMIT_IDS, .required = (needed)}, \
    { \
        "intermediate_size", JSON_INT, AT_DECODER(ffn), .min = 1, .max = LIMIT_FFN, \
                                                        .required = (needed) \
    }
static const struct json_field needed_fields[] = {SIZE_FIELDS(true)};
static const struct json_field known_fields[] = {SIZE_FIELDS(false)};
static const struct json_table needed_sizes = JSON_TABLE(needed_fields, .open = true);
static const struct json_table known_sizes = JSON_TABLE(known_fields, .open = true);

static enum status parse_two_sided(struct json_reader *reader, const struct json *value,
                                   void *object) {
    static const struct json_field flag = {.name = "use_bidirectional_attention",
                                           .type = JSON_BOOL};
    struct huggingface_decoder *decoder = object;
    if (!decoder->names_two_sided)
        return json_field_read(reader, &flag, value, &decoder->spec.two_sided);
    decoder->spec.two_sided = json_text_is(value, "all");
    if (decoder->spec.two_sided || json_text_is(value, "vision")) return STATUS_OK;
    return error_set(reader->e, STATUS_INVALID,
                     "config.json: \"use_bidirectional_attention\" must be \"all\" or \"vision\"");
}

/* An activation, or in families that have it xIELU, which is an operation by itself. */
static enum status parse_activation(struct json_reader *reader, const struct json *value,
                                    void *object) {
    static const struct json_field choice = {
        .name = "hidden_act", .type = JSON_CHOICE, .choices = huggingface_activations};
    struct huggingface_decoder *decoder = object;
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER];
    int activation = ACTIVATION_NONE;
    bool xielu = decoder->may_be_xielu && json_text_is(value, "xielu");
    if (!xielu && json_field_read(reader, &choice, value, &activation)) return reader->e->status;
    dims->xielu = xielu;
    dims->activation = (enum activation)activation;
    return STATUS_OK;
}

/* A number, or a run of local layers and a global one behind them, as "LLLG". */
static enum status parse_pattern(struct json_reader *reader, const struct json *value,
                                 void *object) {
    static const struct json_field number = {
        .name = "sliding_window_pattern", .type = JSON_INT, .min = 1, .max = INT_MAX};
    struct huggingface_decoder *decoder = object;
    const char *text = json_text(value).text;
    size_t local = text ? strspn(text, "L") : 0;
    bool none = decoder->spec.window == 0 && json_is_int(value) && json_int(value) == 0;
    if (none) return STATUS_OK;
    if (text == NULL) return json_field_read(reader, &number, value, &decoder->window_pattern);
    if (strcmp(text + local, "G") != 0)
        return error_set(reader->e, STATUS_UNSUPPORTED,
                         "config.json: \"sliding_window_pattern\" is \"%.40s\"; a number is "
                         "supported, and a text of L that ends in one G",
                         text);
    decoder->window_pattern = (int)local + 1;
    return STATUS_OK;
}

static const struct json_field fields[] = {
    {"num_key_value_heads", JSON_INT, AT_DECODER(kv_heads), .min = 1, .max = LIMIT_HEADS},
    {"head_dim", JSON_INT, AT_DECODER(head_dim), .min = 1, .max = LIMIT_HEADS},
    {.name = "eos_token_id", .type = JSON_PARSED, .parse = huggingface_parse_eos},
    {"max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS},
    {"rms_norm_eps", JSON_FLOAT, AT_DECODER(epsilon)},
    {.name = "hidden_act", .type = JSON_PARSED, .parse = parse_activation},
    {"attention_bias", JSON_BOOL, JSON_AT(struct huggingface_decoder, attention_bias)},
    {"mlp_bias", JSON_BOOL, JSON_AT(struct huggingface_decoder, mlp_bias)},
    {"tie_word_embeddings", JSON_BOOL, AT_SPEC(tied)},
    {"sliding_window", JSON_INT, AT_SPEC(window), .min = 0, .max = LIMIT_POSITIONS},
    {"use_sliding_window", JSON_BOOL, JSON_AT(struct huggingface_decoder, use_window)},
    {"max_window_layers", JSON_INT, JSON_AT(struct huggingface_decoder, max_window_layers),
     .min = 0, .max = INT_MAX},
    {.name = "sliding_window_pattern|_sliding_window_pattern",
     .type = JSON_PARSED,
     .parse = parse_pattern},
    {"layer_types", JSON_RAW, JSON_AT(struct huggingface_decoder, layer_types)},
    {.name = "use_bidirectional_attention", .type = JSON_PARSED, .parse = parse_two_sided},
    {"is_causal", JSON_BOOL, JSON_AT(struct huggingface_decoder, causal), .fallback = true},
    {.name = "is_encoder_decoder", .type = JSON_MUST_BE_FALSE},
    {.name = "add_cross_attention", .type = JSON_MUST_BE_FALSE},
    {.name = "pruned_heads", .type = JSON_EMPTY},
    {"per_layer_config", JSON_RAW, JSON_AT(struct huggingface_decoder, layer_configs)},
    {"quantization_config", JSON_RAW, JSON_AT(struct huggingface_decoder, quantisation)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* null says that there is none where an absent key stands for a number. */
static bool is_null(const struct json *config, const char *key) {
    const struct json *value = json_member(config, key);
    return value && json_is_absent(value);
}

static bool is_empty(const struct json *value) {
    return json_is_absent(value) ||
           (json_kind(value) == JSON_KIND_OBJECT && json_count(value) == 0);
}

/* e4m3 numbers with factors of squares of FP8_BLOCK or of whole matrices, which are widened; what
 * multiplies them is not rounded. */
static bool is_fp8(const struct json *value) {
    const struct json *size = json_member(value, "weight_block_size"),
                      *format = json_member(value, "fmt"),
                      *scheme = json_member(value, "activation_scheme");
    bool whole = json_is_absent(size), square = json_is_list(size) && json_count(size) == 2;
    for (size_t i = 0; i < 2 && square; i++) {
        const struct json *side = json_item(size, i);
        square = json_is_int(side) && json_int(side) == FP8_BLOCK;
    }
    return json_text_is(json_member(value, "quant_method"), "fp8") && (whole || square) &&
           (json_is_absent(format) || json_text_is(format, "e4m3") ||
            json_text_is(format, "float8_e4m3fn")) &&
           (json_is_absent(scheme) || json_text_is(scheme, "dynamic") ||
            json_text_is(scheme, "static"));
}

static bool is_number(const struct json *value, int number) {
    return json_is_int(value) && json_int(value) == number;
}

/* e4m3 numbers with one factor a row, or one a matrix, as compressed-tensors says it. */
static bool is_compressed_fp8(const struct json *value) {
    const struct json *groups = json_member(value, "config_groups");
    if (!json_text_is(json_member(value, "format"), "float-quantized") || json_count(groups) == 0)
        return false;
    for (struct json_entry it = {0}; json_next(groups, &it);) {
        const struct json *weights = json_member(it.value, "weights"),
                          *strategy = json_member(weights, "strategy");
        bool known = json_text_is(strategy, "channel") || json_text_is(strategy, "tensor");
        if (!known || !json_text_is(json_member(weights, "type"), "float") ||
            !is_number(json_member(weights, "num_bits"), 8))
            return false;
    }
    return true;
}

/* The other forms of fp8: of compressed-tensors, FBGEMM and ModelOpt. */
static bool is_other_fp8(const struct json *value) {
    const struct json *method = json_member(value, "quant_method");
    if (json_text_is(method, "compressed-tensors")) return is_compressed_fp8(value);
    return json_text_is(method, "fbgemm_fp8") ||
           ((json_is_absent(method) || json_text_is(method, "modelopt")) &&
            json_text_is(json_member(value, "quant_algo"), "FP8"));
}

enum status huggingface_check_quantisation(const struct json *value, bool mxfp4, struct error *e) {
    if (is_empty(value)) return STATUS_OK;
    if (mxfp4 && json_text_is(json_member(value, "quant_method"), "mxfp4")) return STATUS_OK;
    if (is_fp8(value) || is_other_fp8(value)) return STATUS_OK;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "config.json: \"quantization_config\" is not supported but with the \"quant_method\" "
        "\"fp8\" (e4m3, \"weight_block_size\" [128, 128] or null), \"compressed-tensors\" "
        "(\"float-quantized\" by channel or tensor), \"fbgemm_fp8\", \"modelopt\" (\"FP8\")%s",
        mxfp4 ? " or \"mxfp4\"" : "");
}

static enum status check_sides(struct huggingface_decoder *decoder, struct error *e) {
    if (decoder->spec.two_sided && !decoder->may_be_two_sided)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"use_bidirectional_attention\" is not supported in this "
                         "family: leave it out or send false");
    if (!decoder->causal && !decoder->may_look_ahead)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"is_causal\" is false, which is not supported in this "
                         "family: tokens of its models see none behind them");
    decoder->spec.two_sided = decoder->spec.two_sided || !decoder->causal;
    return STATUS_OK;
}

enum status huggingface_refuse_two_windows(const struct model_spec *spec, struct error *e) {
    if (!spec->two_sided || spec->window == 0) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "config.json: \"is_causal\" is false beside a window of %d tokens "
                     "(\"sliding_window\"), which is not supported",
                     spec->window);
}

enum status huggingface_read_decoder(const struct json *config, struct huggingface_decoder *decoder,
                                     struct error *e) {
    struct model_spec *spec = &decoder->spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    const struct json *window = json_member(config, "sliding_window");
    if (is_null(config, "num_key_value_heads")) dims->kv_heads = 0;
    if (is_null(config, "head_dim")) dims->head_dim = 0;
    if (is_null(config, "sliding_window")) spec->window = 0;
    const struct json_table *sizes = dims->hidden > 0 ? &known_sizes : &needed_sizes;
    if (spec_read(config, sizes, decoder, e) || spec_read(config, &table, decoder, e))
        return e->status;
    if (decoder->query_dim > 0) dims->head_dim = decoder->query_dim;
    if (json_is_int(window) && json_int(window) == 0 && !decoder->zero_window)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"sliding_window\" is 0, allowed is 1 .. %d",
                         LIMIT_POSITIONS);
    if (check_sides(decoder, e)) return e->status;
    if (!decoder->layers_differ && !is_empty(decoder->layer_configs))
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"per_layer_config\" is not supported in this family: leave it out");
    if (huggingface_check_quantisation(decoder->quantisation, decoder->mxfp4, e) ||
        huggingface_derive(spec, dims, e) ||
        huggingface_read_rope(config, &decoder->rope, spec, dims, e))
        return e->status;

    dims->norm = NORM_RMS;
    dims->gated = true;
    dims->final_norm = true;
    dims->qkv_bias = dims->proj_bias = decoder->attention_bias;
    dims->mlp_bias = decoder->mlp_bias;
    return spec_check(spec, e);
}

enum status huggingface_read_layer_types(struct huggingface_decoder *decoder, int n,
                                         struct error *e) {
    struct model_spec *spec = &decoder->spec;
    const char *windowed = decoder->window_type ? decoder->window_type : "sliding_attention";
    if (json_count(decoder->layer_types) != (size_t)n || !json_is_list(decoder->layer_types))
        return error_set(e, STATUS_INVALID,
                         "config.json: \"layer_types\" must be a list of %d, one for each layer",
                         n);
    for (int i = 0; i < n; i++) {
        const char *name = json_text(json_item(decoder->layer_types, (size_t)i)).text;
        spec->windowed[i] = name && strcmp(name, windowed) == 0;
        if (!spec->windowed[i] && (name == NULL || strcmp(name, "full_attention") != 0))
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: \"layer_types\" has \"%.40s\"; allowed is "
                             "%s, full_attention",
                             name ? name : "an item that is no text", windowed);
        if (spec->windowed[i] && spec->window == 0)
            return error_set(e, STATUS_INVALID,
                             "config.json: \"layer_types\" has %s, but \"%s\" is off", windowed,
                             decoder->window_type ? "attention_chunk_size" : "sliding_window");
    }
    return STATUS_OK;
}

enum status huggingface_read_windows(struct huggingface_decoder *decoder, struct error *e) {
    struct model_spec *spec = &decoder->spec;
    if (!json_is_absent(decoder->layer_types))
        return huggingface_read_layer_types(decoder, spec->stacks[STACK_DECODER].n_layers, e);
    for (int i = 0; i < spec->stacks[STACK_DECODER].n_layers; i++)
        spec->windowed[i] = (i + 1) % decoder->window_pattern != 0;
    return STATUS_OK;
}

static bool is_one_of(const struct json *value, const char *const *names) {
    for (; *names; names++)
        if (json_text_is(value, *names)) return true;
    return false;
}

enum status huggingface_read_mixers(struct huggingface_decoder *decoder, const char *const *names,
                                    enum mixer mixer, struct error *e) {
    static const char *const attention[] = {"full_attention", "attention", NULL};
    struct model_spec *spec = &decoder->spec;
    int n = spec->stacks[STACK_DECODER].n_layers;
    if (!json_is_list(decoder->layer_types) || json_count(decoder->layer_types) != (size_t)n)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"layer_types\" must be a list of %d, one for each layer",
                         n);
    for (int i = 0; i < n; i++) {
        const struct json *type = json_item(decoder->layer_types, (size_t)i);
        spec->windowed[i] = decoder->mixes_windows && json_text_is(type, "sliding_attention");
        bool attends = spec->windowed[i] || is_one_of(type, attention);
        if (!attends && !is_one_of(type, names))
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: \"layer_types\" [%d] must be %s%s or full_attention", i,
                             names[0], decoder->mixes_windows ? ", sliding_attention" : "");
        if (spec->windowed[i] && spec->window == 0)
            return error_set(e, STATUS_INVALID,
                             "config.json: \"layer_types\" has sliding_attention, but "
                             "\"sliding_window\" is off");
        spec->mixers[i] = attends ? MIXER_ATTENTION : mixer;
    }
    return STATUS_OK;
}

enum status huggingface_read_dense(struct model_spec *spec, int step, const struct json *listed,
                                   struct error *e) {
    int n = spec->stacks[STACK_DECODER].n_layers;
    for (int i = 0; i < n; i++) spec->dense[i] = (i + 1) % step != 0;
    if (json_is_absent(listed)) return STATUS_OK;
    if (!json_is_list(listed))
        return error_set(e, STATUS_INVALID,
                         "config.json: \"mlp_only_layers\" must be a list of layers");
    for (size_t j = 0; j < json_count(listed); j++) {
        const struct json *item = json_item(listed, j);
        if (!json_is_int(item))
            return error_set(e, STATUS_INVALID,
                             "config.json: \"mlp_only_layers\" has an item that is no integer");
        if (json_int(item) >= 0 && json_int(item) < n) spec->dense[json_int(item)] = true;
    }
    return STATUS_OK;
}

enum status huggingface_read_mlp_types(struct model_spec *spec, const struct json *types, int first,
                                       struct error *e) {
    int n = spec->stacks[STACK_DECODER].n_layers;
    bool listed = !json_is_absent(types);
    if (listed && (!json_is_list(types) || json_count(types) != (size_t)n))
        return error_set(
            e, STATUS_INVALID,
            "config.json: \"mlp_layer_types\" must be a list of %d, one for each layer", n);
    for (int i = 0; i < n; i++) {
        const struct json *type = listed ? json_item(types, (size_t)i) : NULL;
        spec->dense[i] = listed ? json_text_is(type, "dense") : i < first;
        if (listed && !spec->dense[i] && !json_text_is(type, "sparse"))
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: \"mlp_layer_types\" [%d] must be dense or sparse", i);
    }
    return STATUS_OK;
}

struct layer_spec huggingface_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    return (struct layer_spec){.parallel = spec->stacks[stack].parallel,
                               .mask = spec->two_sided ? MASK_NONE : MASK_CAUSAL,
                               .window = spec->windowed[i] ? spec->window : 0,
                               .grows = spec->stacks[stack].query_grows_after > 0,
                               .mixer = spec->mixers[i],
                               .latent = spec->stacks[stack].latent.rank > 0,
                               .without_mlp = spec->without_mlp[i],
                               .experts = spec->stacks[stack].experts > 0 && !spec->dense[i],
                               .rope = spec->stacks[stack].rotated > 0 && !spec->unrotated[i]};
}

struct layer_spec huggingface_local_layer(const struct model_spec *spec, enum stack_id stack,
                                          int i) {
    struct layer_spec layer_spec = huggingface_layer(spec, stack, i);
    layer_spec.frequencies = spec->windowed[i] ? ROPE_LOCAL : ROPE_GLOBAL;
    return layer_spec;
}

bool huggingface_ends_with(const char *name, const char *suffix) {
    size_t size = strlen(name), tail = strlen(suffix);
    return size >= tail && strcmp(name + size - tail, suffix) == 0;
}

bool huggingface_ignores_extras(const char *name) {
    static const char *const roundings[] = {
        /* beside fp8: of what multiplies it, and of the cache */
        "activation_scale", ".input_scale", ".input_scale_ub", ".k_scale", ".v_scale"};
    for (size_t i = 0; i < ARRAY_COUNT(roundings); i++)
        if (huggingface_ends_with(name, roundings[i])) return true;
    return strstr(name, ".rotary_emb.inv_freq") != NULL || strcmp(name, "score.weight") == 0 ||
           gguf_is_head(name);
}

const struct tensor_row huggingface_outer_rows[HUGGINGFACE_OUTER_ROWS] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"model.embed_tokens.weight", "embed_tokens.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"model.norm.*", "norm.*"}},
    {.place = offsetof(struct model, output), .names = {"lm_head.*"}},
};

const struct tensor_row huggingface_layer_rows[HUGGINGFACE_LAYER_ROWS] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
};
