/* tools/convert/convert.h: what the files of retro-convert share. A conversion is planned tensor by tensor, then
 * written into a folder beside the target, which takes the target's name when it is complete. */
#pragma once

#include "config/base/buffer.h"
#include "kernels/quantise.h"
#include "retro/model/model.h"
#include "retro/weights/weights.h"

struct convert_options {
    const char *from, *to;   /* folders */
    enum dtype dtype;        /* of matrices, unless packed */
    bool packed;             /* as the CPU backend lays weights out */
    bool gguf;               /* as a GGUF file, in the types it has */
    bool from_gguf;          /* `from` is a GGUF file */
    const char *calibrate;   /* a text, or NULL */
    const char *const *keep; /* patterns of tensors that stay as they are */
    int n_keep;
    bool resume;          /* goes on where an earlier run with the same identity ended, and keeps what is complete */
    const char *identity; /* a line that names what the files depend on; NULL: such a run cannot be gone on with */
};

/* One tensor of the model and what becomes of it. */
struct change {
    const struct stored_tensor *stored;
    enum tensor_role role;
    const struct weight *weight; /* that it fills in the model that was opened to convert */
    int64_t rows, cols;          /* of weights, as they are converted; a vector is one column */
    enum dtype from, to;         /* the same: written as it is */
    /* Families that hold floats as [in, out] hold quantised matrices as [out, in] (docs/model-format.md). */
    bool by_column;             /* the rows that are converted are the columns of what is stored */
    bool turned_back;           /* what was converted as [out, in] is written as [in, out] */
    const float *importance;    /* of its columns, or NULL */
    struct deviation deviation; /* of what was written from what was read */
};

struct conversion {
    struct weights *weights;
    struct backend *backend;
    struct comm *comm;
    struct model *model; /* loaded only to calibrate or pack, else checked */
    struct change *changes;
    int n;
};

/* convert_plan.c: opens the model, refuses what makes no sense, decides for every tensor. */
enum status conversion_open(struct conversion *p, const struct convert_options *o, struct error *e);
void conversion_close(struct conversion *p);
/* The table: shape, types, error and sizes of every matrix that changed, and the sums. */
void conversion_print(const struct conversion *p);

/* convert_plan.c: the type of a matrix when matrices become `to`, and whether a name is of the patterns. */
enum dtype conversion_choose(enum tensor_role role, enum dtype to);
bool conversion_keeps(const struct convert_options *o, const char *name);

/* convert_planes.c: a matrix is up to three tensors of a file: X, X.scale, X.minimum. */
enum { MATRIX_PLANES = 3 };
extern const char *const plane_suffixes[MATRIX_PLANES];
int planes_of(enum dtype t);
enum stored_dtype plane_dtype(enum dtype t, int plane);
size_t plane_element_bytes(enum dtype t, int plane);
int64_t plane_cols(int64_t cols, enum dtype t, int plane); /* elements of a row */
/* Row i of planes of a quantised type. */
struct quantised_row planes_row(void *const planes[MATRIX_PLANES], enum dtype t, int cols, int64_t i);
/* Writes a row [cols] of floats as another type of floats, and reads it back; false: a number does not fit. */
bool planes_write_floats(void *to, enum dtype t, const float *w, float *back, int cols);

/* convert_calibrate.c: runs a model over a text and remembers the mean square of every input column of its matrices. */
struct calibration;
enum status calibration_run(struct calibration **out, const struct conversion *p, const struct convert_options *o,
                            struct error *e);
/* [n_in] of a matrix of the conversion's model; NULL for one that the text never reached. */
const float *calibration_importance(const struct calibration *c, const struct weight *w);
int calibration_tokens(const struct calibration *c);
void calibration_close(struct calibration *c);

/* convert_file.c: a safetensors file written tensor by tensor in any order. Data begins at a multiple of 64 bytes. */
struct tensor_spec {
    const char *name;
    enum stored_dtype dtype;
    int n_dims;
    int64_t shape[STORED_MAX_DIMS];
    size_t bytes, offset; /* offset: set by tensor_file_open, within the data */
};
struct tensor_file;
/* Tensors lie in the order of specs, which are borrowed until the file is closed. */
enum status tensor_file_open(struct tensor_file **out, const char *path, struct tensor_spec *specs, int n,
                             struct error *e);
/* The first `size` bytes of tensor i; what is not written is zeros. */
enum status tensor_file_put(struct tensor_file *f, int i, const void *data, size_t size, struct error *e);
/* `size` bytes of tensor i from byte `at` on. */
enum status tensor_file_put_at(struct tensor_file *f, int i, size_t at, struct text_span data, struct error *e);
/* Syncs and closes; f is gone also when it fails. */
enum status tensor_file_close(struct tensor_file *f, struct error *e);

/* convert_tensors.c: writes model.safetensors as planned, filling in what the table shows. */
enum status conversion_write(struct conversion *p, const char *folder, struct error *e);

/* convert_packed.c: writes model.packed (retro/model/packed.h). */
enum status packed_write(const struct conversion *p, const char *folder, struct error *e);

/* convert_gguf_write.c: writes model.gguf of the folder `from`. */
enum status gguf_write(const struct conversion *p, const char *from, const char *folder, struct error *e);

/* convert_folder.c: the output folder while it is written. From output_open on SIGINT and SIGTERM are asked for by
 * output_check, so that what is there can be removed; a second one ends the process at once. Whatever an earlier run
 * for the same folder left is removed, unless that still runs: it holds a lock. */
struct output {
    const char *to;
    char *partial; /* beside it */
    int lock;      /* of a file in it; -1: none */
    bool keep;     /* stays for a later run when it is discarded */
};
enum { EXIT_INTERRUPTED = 130 };
enum status output_check(struct error *e); /* STATUS_CANCELLED once a signal has come */
/* Files called model*.safetensors in `partial` are there already, complete, where it goes on with an earlier run. */
enum status output_open(struct output *out, const struct convert_options *o, struct error *e);
/* Copies config.json, the tokenizer and the card, which gets a section that says what was done. */
enum status output_copy(const struct output *out, const char *from, const char *note, struct error *e);
/* A new file of that name. */
enum status output_write(const struct output *out, const char *name, const struct buffer *text, struct error *e);
/* convert_gguf.c: the same as output_copy from the metadata of a GGUF file. */
enum status output_copy_gguf(const struct output *out, const char *from, const char *note, struct error *e);
/* The folder takes its name; or is removed. */
enum status output_finish(struct output *out, struct error *e);
void output_discard(struct output *out);
