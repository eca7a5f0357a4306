/* tools/convert/plan/convert.h: a conversion, planned tensor by tensor. sink.h writes it. */
#pragma once

#include "retro/model/model.h"
#include "tools/convert/formats/planes.h"

struct conversion;

/* A file that a model is written as in place of model.safetensors, whose matrices keep their types.
 */
struct written_format {
    const char *name;      /* of --to */
    const char *described; /* in the card */
    const char *doing;     /* in messages: "packing" */
    bool packs;            /* made of weights as the backend holds them, not of stored tensors */
    bool whole;            /* says all: no config.json and no tokenizer stands beside it */
    /* Of the folder or file `from`, into `folder`. */
    enum status (*write)(const struct conversion *conversion, const char *from, const char *folder,
                         struct error *e);
};

struct convert_options {
    const char *from, *to;               /* folders */
    enum dtype dtype;                    /* of matrices, without a format */
    const struct written_format *format; /* NULL: a folder of safetensors */
    bool from_gguf;                      /* `from` is a GGUF file */
    const char *calibrate;               /* a text, or NULL */
    const char *const *keep;             /* patterns of tensors that stay as they are */
    int n_keep;
    bool resume; /* goes on where an earlier run with the same identity ended, and keeps what is
                    complete */
    const char *identity; /* a line that names what the files depend on; NULL: such a run cannot be
                             gone on with */
};

/* One tensor of the model and what becomes of it. */
struct change {
    const struct stored_tensor *stored;
    const struct stored_tensor *scales; /* of e4m3 numbers, which are read as bf16; else NULL */
    enum tensor_role role;
    const struct weight *weight; /* that it fills in the model that was opened to convert */
    int64_t rows, cols;          /* of weights, as they are converted; a vector is one column */
    enum dtype from, to;         /* the same: written as it is */
    /* Families that hold floats as [in, out] hold quantised matrices as [out, in]
     * (docs/model-format.md). */
    bool by_column;             /* the rows that are converted are the columns of what is stored */
    bool turned_back;           /* what was converted as [out, in] is written as [in, out] */
    const float *importance;    /* of its columns, or NULL */
    struct deviation deviation; /* of what was written from what was read */
};

struct conversion {
    struct weights *weights;
    struct backend *backend;
    struct comm *comm;
    struct model *model; /* loaded only to calibrate, else checked */
    struct change *changes;
    int n;
};

/* convert_plan.c: opens the model, refuses what makes no sense, decides for every tensor. */
enum status conversion_open(struct conversion *conversion, const struct convert_options *options,
                            struct error *e);
void conversion_close(struct conversion *conversion);
/* The table: shape, types, error and sizes of every matrix that changed, and the sums. */
void conversion_print(const struct conversion *conversion);

/* convert_plan.c: the type of a matrix when matrices become `to`, and whether a name is of the
 * patterns. */
enum dtype conversion_choose(enum tensor_role role, enum dtype to);
bool conversion_keeps(const struct convert_options *options, const char *name);
