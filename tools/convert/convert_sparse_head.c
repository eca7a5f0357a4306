/* tools/convert/convert_sparse_head.c: see convert_sparse_head.h. The pickle in the file is read as
 * data; nothing that it names is called. */
#include "tools/convert/convert_sparse_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/base/line.h"
#include "tools/convert/formats/torch_file.h"
#include "tools/convert/sink/sink.h"

enum { HEAD_TENSORS = 2 };
static const char *const tensor_names[HEAD_TENSORS] = {"weight", "bias"};

/* weight [1, hidden] and bias [1], as torch.nn.Linear has them. */
static enum status read_tensors(const struct torch_file *file,
                                struct torch_tensor tensors[HEAD_TENSORS], struct error *e) {
    const struct pickle_value *root = torch_file_root(file);
    for (int i = 0; i < HEAD_TENSORS; i++) {
        const struct pickle_value *value = pickle_member(root, tensor_names[i]);
        if (value == NULL)
            return error_set(e, STATUS_INVALID, "%s: tensor %s is missing", file->name,
                             tensor_names[i]);
        if (torch_tensor_read(file, value, tensor_names[i], &tensors[i], e)) return e->status;
    }
    const struct torch_tensor *weight = &tensors[0], *bias = &tensors[1];
    if (weight->n_dims == 2 && weight->shape[0] == 1 && bias->n_dims == 1 && bias->shape[0] == 1)
        return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s: expected weight [1, hidden] and bias [1], as of a linear layer with one "
                     "output",
                     file->name);
}

static enum status write_tensors(const struct torch_tensor tensors[HEAD_TENSORS], const char *path,
                                 struct error *e) {
    struct tensor_spec specs[HEAD_TENSORS];
    struct tensor_file *file;
    for (int i = 0; i < HEAD_TENSORS; i++) {
        specs[i] = (struct tensor_spec){
            .name = tensor_names[i],
            .dtype = tensors[i].dtype,
            .n_dims = tensors[i].n_dims,
            .bytes = tensors[i].elements * torch_dtype_bytes(tensors[i].dtype)};
        for (int j = 0; j < tensors[i].n_dims; j++) specs[i].shape[j] = tensors[i].shape[j];
    }
    if (tensor_file_open(&file, path, specs, HEAD_TENSORS, e)) return e->status;
    struct error why = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < HEAD_TENSORS && status == STATUS_OK; i++)
        status = tensor_file_put(file, i, tensors[i].data, specs[i].bytes, &why);
    enum status closed = tensor_file_close(file, e);
    if (status) *e = why;
    return status ? status : closed;
}

/* Written beside its place, so that a server never reads half of it. */
static enum status convert_file(const struct torch_file *file, const char *path, struct error *e) {
    struct torch_tensor tensors[HEAD_TENSORS];
    struct buffer partial = {0};
    if (read_tensors(file, tensors, e)) return e->status;
    if (access(path, F_OK) == 0) return error_set(e, STATUS_INVALID, "%s is there already", path);
    buffer_printf(&partial, "%s.partial", path);
    unlink(partial.data);
    enum status status = write_tensors(tensors, partial.data, e);
    if (status == STATUS_OK && rename(partial.data, path) != 0) status = error_errno(e, "%s", path);
    if (status) unlink(partial.data);
    buffer_free(&partial);
    return status;
}

enum status sparse_head_convert(const char *folder, struct error *e) {
    struct buffer source = {0}, target = {0};
    struct file_map map = {0};
    struct torch_file file = {0};
    buffer_printf(&source, "%s/sparse_linear.pt", folder);
    buffer_printf(&target, "%s/sparse_linear.safetensors", folder);
    enum status status = file_map_open(&map, source.data, e);
    struct text_span bytes = {(const char *)map.data, map.size};
    if (status == STATUS_OK) status = torch_file_open(&file, bytes, source.data, e);
    if (status == STATUS_OK) {
        status = convert_file(&file, target.data, e);
        torch_file_close(&file);
    }
    if (status == STATUS_OK) line_print(stdout, "%s", target.data);
    file_map_close(&map);
    buffer_free(&source);
    buffer_free(&target);
    return status;
}
