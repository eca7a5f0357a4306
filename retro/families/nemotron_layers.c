/* retro/families/nemotron_layers.c: see nemotron_layers.h. */
#include "retro/families/nemotron_layers.h"

/* The kinds of a layer, by their names and their letters. */
static const struct nemotron_layer {
    const char *names[2];
    char letter;
    enum mixer mixer;
    bool without_mlp, experts;
} kinds[] = {{{"linear_attention", "mamba"}, 'M', MIXER_SPACE, true, false},
             {{"full_attention", "attention"}, '*', MIXER_ATTENTION, true, false},
             {{"mlp", "mlp"}, '-', MIXER_NONE, false, false},
             {{"moe", "moe"}, 'E', MIXER_NONE, false, true}};

/* The keys that say it. */
struct nemotron_kinds {
    const struct json *types, *pattern;
};

#define AT_KINDS(member) JSON_AT(struct nemotron_kinds, member)
static const struct json_field fields[] = {
    {"layers_block_type|layer_types", JSON_RAW, AT_KINDS(types)},
    {"hybrid_override_pattern", JSON_RAW, AT_KINDS(pattern)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* The kind of layer i; NULL: it has none that is known. */
static const struct nemotron_layer *find_kind(const struct nemotron_kinds *keys, size_t i) {
    struct text_span pattern = json_text(keys->pattern);
    const struct json *type = json_item(keys->types, i);
    bool listed = !json_is_absent(keys->types);
    for (size_t j = 0; j < ARRAY_COUNT(kinds); j++) {
        const struct nemotron_layer *kind = &kinds[j];
        if (listed ? json_text_is(type, kind->names[0]) || json_text_is(type, kind->names[1])
                   : pattern.text[i] == kind->letter)
            return kind;
    }
    return NULL;
}

/* The number of layers is that of their kinds. */
enum status nemotron_read_layers(const struct json *config, struct model_spec *spec, bool *experts,
                                 struct error *e) {
    struct nemotron_kinds keys = {0};
    if (spec_read(config, &table, &keys, e)) return e->status;
    bool listed = !json_is_absent(keys.types);
    const char *key = listed ? "layers_block_type" : "hybrid_override_pattern";
    size_t n = listed ? json_count(keys.types) : json_text(keys.pattern).size;
    if (n < 1 || n > MAX_LAYERS || (listed && !json_is_list(keys.types)))
        return error_set(e, STATUS_INVALID,
                         "config.json: \"%s\" must name 1 .. %d layers, it has %zu", key,
                         MAX_LAYERS, n);
    spec->stacks[STACK_DECODER].n_layers = (int)n;
    for (size_t i = 0; i < n; i++) {
        const struct nemotron_layer *kind = find_kind(&keys, i);
        if (kind == NULL)
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: \"%s\" [%zu] must be linear_attention (M), "
                             "full_attention (*), mlp (-) or moe (E)",
                             key, i);
        spec->mixers[i] = kind->mixer;
        spec->without_mlp[i] = kind->without_mlp;
        spec->dense[i] = !kind->experts;
        *experts = *experts || kind->experts;
    }
    return STATUS_OK;
}
