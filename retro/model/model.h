/* retro/model/model.h: a loaded checkpoint: dimensions, layers, packed weights. Immutable after
 * model_open; it outlives every session. A folder holds config.json (Megatron's names, see
 * docs/model-format.md), safetensors and a tokenizer.
 */
#pragma once

#include "kernels/comm/comm.h"
#include "retro/model/generation_config.h"
#include "retro/model/grid.h"

struct model;
struct place;

/* The facts about a model that a caller may want. m, k, r are 0 for a model without retrieval. */
struct model_info {
    const char *family; /* "retro", "gpt", "bert", "t5" */
    int n_layers, hidden, heads, head_dim, ffn;
    int vocab;             /* ids a tokenizer can produce; sampling never goes beyond */
    int text_ids;          /* that a text may have: the vocabulary, and the id behind it where that
                              stands for a picture */
    int padded_vocab;      /* columns of the logits */
    int trained_positions; /* that config.json names; 0: none. RoPE goes further, with less sense */
    int max_positions;     /* longest sequence; 0: unlimited (RoPE) */
    int chunk_length;      /* m */
    int num_neighbors;     /* k as trained */
    int retrieved_length;  /* r: neighbour and continuation */
    int n_retro_layers;
    bool writes;      /* text: it has a decoder */
    int picture_rows; /* of the tower, for the largest picture that a text may have; 0: texts have
                         none */
    bool any_picture; /* pictures may have any size: few have so many rows */
    int picture_columns; /* f32 numbers of a row that the decoder is given of a picture */
    bool reads_source;   /* an encoder reads a session's source, the decoder starts from `start` */
    int start;           /* the decoder's first id; -1 without an encoder of sources */
    int eod;             /* end of document id, -1 when the folder names none */
    struct end_ids
        ends; /* all ids that end a text, of generation_config.json or else of config.json */
    struct generation_config generation;
    enum dtype dtype;         /* of the decoder's matrices; others may be wider */
    enum dtype cache_dtype;   /* of keys and values, for whoever opens a session pool: that of
                                 model_options, else f32 beside f32 matrices and f16 beside others */
    bool cache_narrows;       /* keys and values can be int8 */
    int64_t n_parameters;     /* of the whole model */
    int64_t local_parameters; /* that this rank keeps */
    size_t weight_bytes; /* packed, on this rank's device; of a model open for checking: what it
                            would take */
    bool mapped;         /* most of them lie in a mapped file */
    size_t expert_bytes; /* of weight_bytes: matrices of experts that rows choose */
    size_t mapped_expert_bytes; /* of these, in a mapped file that memory does not hold; else 0 */
    size_t held_expert_bytes;   /* of these, as many as memory has room for */
    size_t cache_row_bytes;     /* of keys and values of one token, on all ranks together */
    size_t state_bytes;  /* of all delta nets of one sequence, on all ranks together; 0: none */
    size_t decode_bytes; /* read by one decode step of one sequence that closes no chunk */
    size_t decode_expert_bytes; /* of these: of the experts that it chooses */
};

/* The purpose of a checkpoint's tensor. */
enum tensor_role { TENSOR_OTHER, TENSOR_WORD, TENSOR_OUTPUT, TENSOR_LINEAR };

/* A tensor as loading comes to it, for progress and for retro-convert. */
struct loaded_tensor {
    const char *name; /* of a quantised one that of its values */
    enum tensor_role role;
    const struct weight
        *weight;        /* what it becomes, or becomes a part of; NULL where that is no matrix */
    bool transposed;    /* a matrix that folders of the family hold as [in, out], unless it is
                           quantised */
    int table_rows;     /* that a table is read as; 0: the tensor is of no table */
    size_t done, total; /* bytes of the checkpoint */
};

struct model_options {
    bool convert;     /* false: each matrix keeps its stored dtype */
    enum dtype dtype; /* what the matrices are packed as when convert; quantised only when random */
    bool cache_given; /* false: keys and values take the type that fits the matrices */
    enum dtype cache_dtype; /* F32, F16, BF16; INT8 on the CPU, without latent attention */
    bool random;     /* benchmarks: only config.json is read, weights are small random numbers */
    bool storable;   /* matrices take types that files of ours hold: no super-blocks of GGUF */
    bool rows_only;  /* an embedder: rows are wanted and no logits, so there is no output matrix */
    bool check_only; /* names, shapes and types are checked, nothing is loaded: such a model
                        computes nothing */
    /* Of model.packed, where memory does not hold it: matrices of experts are read from the file
     * when rows choose them, all others are copied into memory, from which no file can push them.
     */
    bool fetch_experts;
    size_t held_expert_bytes; /* of these, as many as memory has room for; for model_info */
    void (*loaded)(void *context, const struct loaded_tensor *tensor); /* or NULL */
    /* Each place (retro/model/tensors.h) as it lies on the device, one after another. Its memory is
     * given back once this returns, so that one place at a time is in memory, and such a model
     * computes nothing. NULL: all stay. A failure ends the loading. Not of model.packed. */
    enum status (*passed)(void *context, const struct place *place, struct error *e);
    void *context;
};

/* The type that weights are kept in, which is not int8, or keys and values, which is not fp8. auto:
 * as weights are stored, as fits the weights. */
enum model_dtype {
    MODEL_DTYPE_AUTO,
    MODEL_DTYPE_F32,
    MODEL_DTYPE_F16,
    MODEL_DTYPE_BF16,
    MODEL_DTYPE_FP8,
    MODEL_DTYPE_INT8
};
/* Two of enum model_dtype as loading options. */
struct model_options model_options_of(int dtype, int cache_dtype);

/* Reads, verifies and packs. Every tensor the family's name table asks for must be there with the
 * right shape; an error names the tensor, both shapes and the option of config.json that decides.
 * backend and comm are borrowed. */
enum status model_open(struct model **out, const char *folder, struct backend *backend,
                       struct comm *comm, const struct model_options *options, struct error *e);
void model_close(struct model *model);
const struct model_info *model_info(const struct model *model);
