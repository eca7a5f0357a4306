/* tools/convert/formats/torch_file.h: what torch.save writes: a zip of one pickle and one file for
 * each storage. */
#pragma once

#include "retro/weights/weights.h"
#include "tools/convert/formats/pickle.h"
#include "tools/convert/formats/zip.h"

struct torch_file {
    struct zip *zip;
    struct pickle *pickle;
    struct text_span prefix; /* of the names in it: "archive/" */
    char *name;              /* for messages */
};

/* A tensor's bytes, in the file's memory: rows without gaps. */
struct torch_tensor {
    enum stored_dtype dtype;
    int n_dims;
    int64_t shape[STORED_MAX_DIMS];
    size_t elements;
    const void *data;
};

/* The bytes are borrowed until torch_file_close. */
enum status torch_file_open(struct torch_file *file, struct text_span bytes, const char *name,
                            struct error *e);
void torch_file_close(struct torch_file *file); /* of a zeroed one, too */
const struct pickle_value *torch_file_root(const struct torch_file *file);

/* Whether a value is a tensor. */
bool torch_is_tensor(const struct pickle_value *value);
/* Finds a tensor's bytes; `what` is its name, for messages. STATUS_UNSUPPORTED: a type that no
 * model of ours has. */
enum status torch_tensor_read(const struct torch_file *file, const struct pickle_value *value,
                              const char *what, struct torch_tensor *out, struct error *e);
/* Bytes of an element of a checkpoint's tensors; 0: a type that is not read. */
size_t torch_dtype_bytes(enum stored_dtype dtype);
/* "torch.bfloat16" or "torch.BFloat16Storage"; false: not read. */
bool torch_dtype_parse(const struct pickle_value *value, enum stored_dtype *out);
