/* tools/bench/bench_shapes.c: the shapes that retro-bench knows by name; other programs' benchmarks use the same. */
#include <string.h>

#include "tools/bench/bench.h"

static const struct bench_shape shapes[] = {
    /* A small Llama. */
    {"m", "retro-m",
     "\"num_layers\": 22, \"hidden_size\": 2048, \"num_attention_heads\": 32, \"ffn_hidden_size\": 5632,\n"
     " \"vocab_size\": 32000, \"max_position_embeddings\": 4096, \"position_embedding_type\": \"rope\",\n"
     " \"normalization\": \"RMSNorm\", \"activation\": \"swiglu\", \"add_bias_linear\": false,\n"
     " \"tie_word_embeddings\": false, \"final_norm\": true"},
    /* A small GPT. */
    {"s", "retro-s",
     "\"num_layers\": 12, \"hidden_size\": 768, \"num_attention_heads\": 12, \"ffn_hidden_size\": 3072,\n"
     " \"vocab_size\": 50304, \"max_position_embeddings\": 2048, \"position_embedding_type\": \"learned_absolute\",\n"
     " \"activation\": \"gelu_tanh\", \"tie_word_embeddings\": false, \"final_norm\": true"},
};

/* q4_0 has no minimum, so half a bit less a weight than int4. */
static const struct {
    const char *name;
    enum dtype dtype;
} peer_types[] = {{"q8_0", DTYPE_INT8}, {"q4_1", DTYPE_INT4}, {"q4_0", DTYPE_INT4}};

static bool parse_type(const char *name, enum dtype *dtype) {
    for (size_t i = 0; i < ARRAY_COUNT(peer_types); i++)
        if (strcmp(peer_types[i].name, name) == 0) {
            *dtype = peer_types[i].dtype;
            return true;
        }
    return dtype_parse(dtype, name);
}

bool bench_shape_parse(const char *name, const struct bench_shape **shape, enum dtype *dtype) {
    size_t length = strcspn(name, "-");
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        if (strlen(shapes[i].name) != length || strncmp(shapes[i].name, name, length) != 0) continue;
        *shape = &shapes[i];
        return name[length] == '\0' || parse_type(name + length + 1, dtype);
    }
    return false;
}
