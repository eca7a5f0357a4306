/* retro/weights/gguf_folder.h: a GGUF file as a folder of Hugging Face, so that families, loading
 * and conversion know folders only: config.json from its metadata, tensors by the names of the
 * family's checkpoints.
 *
 * A row of the tables in gguf_architectures.h is a key, one of place_names.h a tensor. A key or a
 * tensor without a row is an error: a key that is not understood may change the results. */
#pragma once

#include "retro/weights/gguf.h"
#include "retro/weights/weights.h"

/* The GGUF file that a model's path stands for: a file called *.gguf, or model.gguf in a folder
 * without config.json. Appends it to *file; false when there is none. */
bool gguf_find_file(const char *path, struct buffer *file);

/* Appends config.json. The tensor rope_freqs.weight, by which the frequencies of RoPE are divided
 * (Llama 3.1), becomes its key "rope_factors", which is our own. */
enum status gguf_write_config(const struct gguf *gguf, struct buffer *json, struct error *e);
/* Appends generation_config.json: what the keys general.sampling say of drawing tokens. */
enum status gguf_write_sampling(const struct gguf *gguf, struct buffer *json, struct error *e);
/* Appends the text of config.json of a folder or a GGUF file. */
enum status config_read_text(const char *path, struct buffer *json, struct error *e);

/* How the rows of an embedder's text become one; of a reranker's, a number. */
enum gguf_pooling {
    GGUF_POOLING_ABSENT = -1,
    GGUF_POOLING_MEAN = 1,
    GGUF_POOLING_CLS,
    GGUF_POOLING_LAST,
    GGUF_POOLING_RANK
};
enum status gguf_find_pooling(const struct gguf *gguf, enum gguf_pooling *out, struct error *e);

/* Tensors behind the rows, which have the same names among those of the folder: the matrices behind
 * the mean of EmbeddingGemma's rows, first to last, and the head of a reranker ("cls."). */
enum { GGUF_DENSE = 2 };
extern const char *const gguf_dense_names[GGUF_DENSE];
bool gguf_is_head(const char *name);

/* Parts of a tensor that may lie in another order (struct head_order). */
enum family_heads {
    FAMILY_HEADS_NONE,
    FAMILY_HEADS_CHANNELS, /* queries and keys, and behind them the rows of value heads */
    FAMILY_HEADS_VALUES,   /* the rows of value heads */
    FAMILY_HEADS_ONE,      /* a row of each value head */
    FAMILY_HEADS_COLUMNS   /* the columns of value heads */
};

/* The tensor of a family's own files that GGUF has under another name, without the ending ".weight"
 * or ".bias". */
struct family_tensor {
    const char *prefix, *name; /* of layer '#', or ""; '#' is an expert and '*' the ending, as in
                                  struct tensor_row */
    bool transposed;           /* stored as [in, out] */
    bool by_head;              /* queries, keys and values of a head beside each other */
    bool one_row;              /* a matrix of one row, which some GGUF files have as a vector */
    bool vector;               /* a vector, which some GGUF files have as a matrix */
    bool rotated;              /* queries or keys */
    enum family_heads heads;
};
/* By the rows of the family with this model_type, which is known (retro/model/place_names.c), of
 * those with this ending; false: it has none. */
bool family_tensor_find(const char *model_type, bool in_layer, struct text_span name,
                        const char *ending, struct family_tensor *out);

/* A tensor as the folder has it. */
struct gguf_view {
    char name[2 * GGUF_NAME + 32]; /* "": config.json has it, or it is of a layer that foretells
                                      tokens */
    bool turned;                   /* the folder has [in, out], the file [out, in] */
    int paired; /* rows of a head: RoPE turns rows 2i and 2i + 1 of it in the file, i and i + half
                   in the folder. 0: none */
    int apart;  /* rows of a head: all queries, keys and values one after another in the file, those
                   of a head in the  folder. 0: none */
    bool row;   /* a vector, in the folder [1, in] */
    bool vector;   /* a matrix, in the folder a vector */
    bool scalar;   /* a vector of one number, in the folder of no dimensions */
    bool by_pixel; /* the product of a patch [d, colours, P, P], in the folder [d, P * P * colours]
                    */
    struct head_order heads;
    int stacked; /* dimensions of a tensor of all experts, of which '#' in the name stands for the
                    number: 3, of biases 2. 0: it is no such tensor */
};
/* `architecture` is the file's (architecture_find). */
struct architecture;
enum status gguf_view_tensor(struct gguf_view *view, const struct gguf *gguf,
                             const struct architecture *architecture,
                             const struct gguf_tensor *tensor, struct error *e);
