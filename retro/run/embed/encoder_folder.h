/* retro/run/embed/encoder_folder.h: what the folder of an embedder says beside its model: the
 * modules after the transformer, how token rows become one vector, prompts, the limit of tokens. It
 * is read as sentence-transformers 2 to 6 write it; what we do not compute is an error by name. */
#pragma once

#include "config/base/base.h"

/* How the rows of a text become one (Reimers and Gurevych 2019, section 3, and
 * sentence-transformers' Pooling). */
enum pooling_mode {
    POOLING_CLS, /* the first row */
    POOLING_MAX, /* the largest of each column */
    POOLING_MEAN,
    POOLING_MEAN_SQRT, /* the sum by the root of the number of rows */
    POOLING_WEIGHTED,  /* the mean weighted by 1, 2, 3, ...: Muennighoff 2022 */
    POOLING_LAST,      /* the last row: of decoders */
    POOLING_MODES
};

enum dense_activation {
    DENSE_IDENTITY,
    DENSE_TANH,
    DENSE_RELU,
    DENSE_SIGMOID,
    DENSE_GELU,
    DENSE_SILU
};

/* A module after pooling. */
struct encoder_module {
    bool normalize; /* divides by the L2 norm; else y = norm(activation(x W^T + b)) */
    int n_in, n_out, bias, activation;
    char *folder; /* of W and b */
    /* Their names among the tensors of the folder's model; NULL: they are "linear.weight" and
     * "linear.bias" of a model.safetensors in the folder. */
    const char *weight_name, *bias_name;
    /* W is one row of the tensor less another: row[0] - row[1]. n_out is 1 then. */
    bool contrast;
    int row[2];
    const char *norm_name;      /* of the gamma of a LayerNorm; NULL: there is no norm */
    const char *norm_bias_name; /* of its beta; NULL: there is none */
    float epsilon;              /* of that norm */
};

/* The kind of a text, which decides its prompt. */
enum encoder_role { ENCODER_PLAIN, ENCODER_QUERY, ENCODER_DOCUMENT, ENCODER_ROLES };

enum { ENCODER_MAX_MODULES = 8 };

struct encoder_folder {
    char *model; /* folder of the model and its tokenizer */
    enum pooling_mode modes[POOLING_MODES];
    int n_modes;         /* their vectors lie side by side */
    int pooled;          /* the size of a row, -1 where the folder does not say */
    bool include_prompt; /* false: rows of the prompt are left out of pooling */
    struct encoder_module modules[ENCODER_MAX_MODULES];
    int n_modules;
    bool raw;             /* no Normalize is last: vectors have any length */
    bool described;       /* it has modules.json or a pooling configuration */
    int max_tokens;       /* of a text, by the transformer's own file; 0: it does not say */
    int tokenizer_tokens; /* the same by the tokenizer's, which goes behind the model's positions */
    bool lowercase;       /* the tokenizer must lowercase */
    char *prompts[ENCODER_ROLES]; /* "" without */
};

/* Reads modules.json and what it names, sentence_bert_config.json, tokenizer_config.json and
 * config_sentence_transformers.json. A folder without modules.json is a transformer and mean
 * pooling. STATUS_UNSUPPORTED names file and key of what we lack. A GGUF file has pooling and, of
 * EmbeddingGemma, the matrices after it. */
enum status encoder_folder_read(struct encoder_folder *out, const char *folder, struct error *e);
/* Takes the folder for a transformer alone, and reads how long the tokenizer's texts may be. */
enum status encoder_folder_read_model(struct encoder_folder *out, const char *folder,
                                      struct error *e);
void encoder_folder_free(struct encoder_folder *folder); /* of a zeroed one: nothing */
