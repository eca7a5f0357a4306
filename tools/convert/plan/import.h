/* tools/convert/plan/import.h: checkpoints of Megatron and NeMo as model folders. A checkpoint is
 * opened (checkpoint.h), its tensors get the names that our families know, its settings become
 * config.json, and every tensor that the model has is joined of its parts and written.
 * docs/import.md is the manual. */
#pragma once

#include "tools/convert/containers/checkpoint.h"
#include "tools/convert/plan/convert.h"

struct import_options {
    const char *from, *to;  /* a checkpoint and a folder */
    const char *tokenizer;  /* a file or a folder, or NULL */
    const char *as;         /* "retro", "gpt", or NULL: as it is */
    const char *gate;       /* of the decoder's cross attention, or NULL */
    const char *retro_args; /* a JSON file of Megatron's retrieval settings, or NULL */
    const char
        *config;  /* a JSON file of keys of config.json, which win over the checkpoint, or NULL */
    bool inspect; /* only says what is there */
    /* The types of matrices, which change as they are written, but for a vision model's; NULL: they
     * stay as they are.
     */
    const struct convert_options *types;
    const char *note; /* of the card, about them; or NULL */
};

enum import_architecture { IMPORT_RETRO, IMPORT_GPT, IMPORT_T5, IMPORT_BERT };

/* How ranks share a tensor. */
enum import_split {
    SPLIT_NONE,
    SPLIT_ROWS,
    SPLIT_COLUMNS,
    SPLIT_HALVES /* rows: a rank has its part of the first half, then its part of the second */
};

/* A tensor of the model to be. */
struct import_target {
    char *name;
    int n_dims;
    int64_t shape[STORED_MAX_DIMS];
    enum import_split split;
    int parts; /* of each head in the rows: 3 of query_key_value, 2 of key_value; else 0 */
    const struct checkpoint_tensor *from;
    enum dtype type, to; /* that it has, and that it is written in */
};

struct import_plan {
    struct checkpoint *checkpoint;
    char *scratch; /* folder of what has to be unpacked */
    enum import_architecture architecture;
    bool pictures; /* a vision tower, alone or in LLaVA: --config is config.json, but for "language"
                    */
    bool legacy;   /* named as Megatron-LM did before Megatron-Core */
    bool trimmed;  /* a Retro that becomes the GPT that it computes */
    const char *stack; /* "decoder" or "encoder": that `layers` are of */
    int64_t layers, encoder_layers, hidden, heads, groups, channels, ffn, vocab, positions;
    bool gated, bias, qkv_bias, norm_bias, tied, final_norm, learned, relative, output_bias;
    bool *cross; /* [layers]: which read neighbours */
    int first_cross;
    int64_t buckets, token_types;
    struct settings given;  /* the files --config and --retro-args */
    struct settings config; /* config.json, in order */
    struct buffer missing;  /* keys of config.json that nothing says */
    struct import_target *targets;
    int n, capacity;
    int trimmed_tensors;
};

/* import_config.c: the files --config and --retro-args, before anything else. */
enum status import_read_given(struct import_plan *plan, const struct import_options *options,
                              struct error *e);
/* import_names.c: gives the tensors the names of our families and joins what a container holds
 * apart. */
enum status import_rename(struct import_plan *plan, struct error *e);
/* import_layers.c: reads the architecture and its depths from the names. */
enum status import_find_layers(struct import_plan *plan, const struct import_options *options,
                               struct error *e);
/* import_config.c: config.json, from the settings, the tensors and the options. */
enum status import_configure(struct import_plan *plan, const struct import_options *options,
                             struct error *e);
/* import_tokenizer.c: the vocabulary's size and special ids, from the tokenizer. */
enum status import_read_tokenizer(struct import_plan *plan, const struct import_options *options,
                                  struct error *e);
/* A path that is given or lies beside the checkpoint, the caller frees it; NULL: none, or the
 * container brings one. */
char *import_find_tokenizer(const struct import_plan *plan, const struct import_options *options);
bool import_is_folder(const char *path);
/* import_plan.c: every tensor of the model, with where it comes from; nothing of the checkpoint is
 * left over. */
enum status import_match(struct import_plan *plan, struct error *e);
/* import_pictures.c: the same of towers, by what names say of how ranks share a tensor; the shapes
 * are checked when the folder is opened. */
bool import_is_pictures(const struct settings *given);
enum status import_match_pictures(struct import_plan *plan, struct error *e);
/* import_language.c: of a LLaVA whose language model --config leaves out, its keys:
 * "language.num_layers", ... */
enum status import_describe_language(struct import_plan *plan, const struct import_options *options,
                                     struct error *e);
/* import_types.c: the type that each tensor is written in, by the rules of conversion_open. */
enum status import_choose_types(struct import_plan *plan, const struct import_options *options,
                                struct error *e);
/* Rows of a target, as f32 or narrower, in the type that they are written in. */
struct import_rows {
    char *planes[MATRIX_PLANES]; /* room for a block of rows each */
    struct deviation deviation;  /* of all that was converted */
};
/* Fills the planes with n converted rows; `first` is for messages. */
enum status import_convert_rows(struct import_rows *import_rows, const struct import_target *target,
                                const char *rows, int64_t first, int64_t n, struct error *e);
/* import_identity.c: a line that names the checkpoint's files as they are, the tensors and their
 * types. */
void import_identify(struct buffer *out, const struct import_plan *plan);
/* import_report.c: what was found, on stdout. */
void import_report(const struct import_plan *plan);

/* import.c: opens a checkpoint, plans the folder and says both on stdout. */
enum status import_open(struct import_plan *plan, const struct import_options *options,
                        struct error *e);
void import_close(struct import_plan *plan);
