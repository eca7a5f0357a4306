/* retro/model.h: a loaded checkpoint: dimensions, layers, packed weights. Immutable after model_open; it outlives every
 * session. A folder holds config.json (Megatron's names, see docs/model-format.md), safetensors and a tokenizer. */
#pragma once

#include "kernels/comm.h"
#include "retro/grid.h"

struct model;

/* What a caller may want to know. m, k, r are 0 for a model without retrieval. */
struct model_info {
    const char *family; /* "retro", "gpt", "bert" */
    int n_layers, hidden, heads, head_dim, ffn;
    int vocab;            /* ids a tokenizer can produce; sampling never goes beyond */
    int padded_vocab;     /* columns of the logits */
    int max_positions;    /* longest sequence; 0: unlimited (RoPE) */
    int chunk_length;     /* m */
    int num_neighbors;    /* k as trained */
    int retrieved_length; /* r: neighbour and continuation */
    int n_retro_layers, n_encoder_layers;
    int eod;          /* end of document id, -1 when config.json has none */
    enum dtype dtype; /* of the packed matrices */
    int64_t n_parameters;
    size_t weight_bytes; /* packed, on the device */
    size_t decode_bytes; /* read by one decode step of one sequence that closes no chunk */
};

struct model_options {
    bool convert;     /* false: keep the stored dtype */
    enum dtype dtype; /* what the matrices are packed as when convert */
    bool random;      /* benchmarks: only config.json is read, weights are small random numbers */
};

/* model.dtype or retrieval.embedder_dtype of a configuration (enum config_dtype) as loading options. */
struct model_options model_options_of(int config_dtype);

/* Reads, verifies and packs. Every tensor the family's name table asks for must be there with the right shape; an error
 * names the tensor, both shapes and the option of config.json that decides. backend and comm are borrowed. */
enum status model_open(struct model **out, const char *folder, struct backend *b, struct comm *c,
                       const struct model_options *o, struct error *e);
void model_close(struct model *m);
const struct model_info *model_info(const struct model *m);
