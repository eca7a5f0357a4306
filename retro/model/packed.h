/* retro/model/packed.h: model.packed: the weights of a model as the CPU backend lays them out. The
 * file is mapped and used where it lies, so opening it takes the time of reading its header.
 *
 * It is a safetensors file whose data begins at a multiple of 64 bytes. An empty tensor
 * "packed_layout:NAME" names the layout (struct backend_ops). Every other tensor is one place of
 * the model under the place's name, of one dimension: matrices first, each padded with zeros to a
 * multiple of 64 bytes, of the type that packed_stored says; then vectors and tables, F32, as they
 * are computed with. */
#pragma once

#include "retro/model/tensors.h"

#define PACKED_FILE "model.packed"
#define PACKED_TAG "packed_layout:"
enum { PACKED_ALIGNMENT = 64 };

static inline size_t packed_padded(size_t bytes) {
    return (bytes + PACKED_ALIGNMENT - 1) / PACKED_ALIGNMENT * PACKED_ALIGNMENT;
}

/* The type under which a matrix's bytes are in such a file: F32, F16, BF16, I8 for int8, U8 for
 * int4. safetensors has none for the others: MXFP4 is BOOL, Q4_K I16, Q5_K I32, Q6_K I64. */
enum stored_dtype packed_stored(enum dtype dtype);

/* The tensors of a model's folder: model.packed where there is one, else its safetensors files. */
enum status model_files_open(struct weights **out, bool *packed, const char *folder,
                             struct error *e);
/* Points the model's matrices into the weights, which must outlive them, and uploads the rest.
 * Refuses what this backend cannot use as it lies: another layout, another device, several ranks, a
 * conversion. */
enum status model_load_packed(struct model *model, const struct weights *weights,
                              const struct model_options *options, struct error *e);
