/* tools/bench/bench_shapes.c: the shapes that retro-bench knows by name; other programs' benchmarks
 * use the same. */
#include <string.h>
#include <strings.h>

#include "tools/bench/bench.h"

static const struct bench_shape shapes[] = {
    /* A small Llama. */
    {.name = "m",
     .retro_name = "retro-m",
     .layers = 22,
     .hidden = 2048,
     .heads = 32,
     .ffn = 5632,
     .vocab = 32000,
     .positions = 4096,
     .position = "rope",
     .norm = "RMSNorm",
     .activation = "swiglu"},
    /* A small GPT. */
    {.name = "s",
     .retro_name = "retro-s",
     .layers = 12,
     .hidden = 768,
     .heads = 12,
     .ffn = 3072,
     .vocab = 50304,
     .positions = 2048,
     .position = "learned_absolute",
     .norm = "LayerNorm",
     .activation = "gelu_tanh",
     .bias = true},
};

/* Names of other programs, and types that only a file or a benchmark gives. q4_0 has no minimum, so
 * half a bit less a weight than int4. */
static const struct {
    const char *name;
    enum dtype dtype;
} peer_types[] = {{"q8_0", DTYPE_INT8}, {"q4_1", DTYPE_INT4}, {"q4_0", DTYPE_INT4},
                  {"q4_k", DTYPE_Q4_K}, {"q5_k", DTYPE_Q5_K}, {"q6_k", DTYPE_Q6_K}};

bool bench_dtype_parse(const char *name, enum dtype *dtype) {
    for (size_t i = 0; i < ARRAY_COUNT(peer_types); i++)
        if (strcasecmp(peer_types[i].name, name) == 0) {
            *dtype = peer_types[i].dtype;
            return true;
        }
    return dtype_parse(dtype, name);
}

bool bench_shape_parse(const char *name, const struct bench_shape **shape, enum dtype *dtype) {
    size_t length = strcspn(name, "-");
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        if (strlen(shapes[i].name) != length || strncmp(shapes[i].name, name, length) != 0)
            continue;
        *shape = &shapes[i];
        return name[length] == '\0' || bench_dtype_parse(name + length + 1, dtype);
    }
    return false;
}
