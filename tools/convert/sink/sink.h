/* tools/convert/sink/sink.h: plans become files. A folder is written beside the target, and takes
 * the target's name when it is complete. */
#pragma once

#include "tools/convert/plan/import.h"

/* convert_file.c: a safetensors file written tensor by tensor in any order. Data begins at a
 * multiple of 64 bytes. */
struct tensor_spec {
    const char *name;
    enum stored_dtype dtype;
    int n_dims;
    int64_t shape[STORED_MAX_DIMS];
    size_t bytes, offset; /* offset: set by tensor_file_open, within the data */
};
struct tensor_file;
/* Tensors lie in the order of specs, which are borrowed until the file is closed. */
enum status tensor_file_open(struct tensor_file **out, const char *path, struct tensor_spec *specs,
                             int n, struct error *e);
/* The first `size` bytes of tensor i; what is not written is zeros. */
enum status tensor_file_put(struct tensor_file *file, int i, const void *data, size_t size,
                            struct error *e);
/* `size` bytes of tensor i from byte `at` on. */
enum status tensor_file_put_at(struct tensor_file *file, int i, size_t at, struct text_span data,
                               struct error *e);
/* Syncs and closes; f is gone also when it fails. */
enum status tensor_file_close(struct tensor_file *file, struct error *e);

/* convert_tensors.c: writes model.safetensors as planned, filling in what the table shows. */
enum status conversion_write(struct conversion *conversion, const char *folder, struct error *e);

/* convert_packed.c: model.packed (retro/model/packed.h), as the CPU backend lays weights out.
 * convert_gguf_write.c: model.gguf. */
extern const struct written_format format_packed, format_gguf;

/* convert_folder.c: the output folder while it is written. From output_open on SIGINT and SIGTERM
 * are asked for by output_check, so that what is there can be removed; a second one ends the
 * process at once. Whatever an earlier run for the same folder left is removed, unless that still
 * runs: it holds a lock. */
struct output {
    const char *to;
    char *partial; /* beside it */
    int lock;      /* of a file in it; -1: none */
    bool keep;     /* stays for a later run when it is discarded */
};
enum { EXIT_INTERRUPTED = 130 };
enum status output_check(struct error *e); /* STATUS_CANCELLED once a signal has come */
/* Files called model*.safetensors in `partial` are there already, complete, where it goes on with
 * an earlier run. */
enum status output_open(struct output *out, const struct convert_options *options, struct error *e);
/* Copies config.json, the tokenizer and the card, which gets a section that says what was done. */
enum status output_copy(const struct output *out, const char *from, const char *note,
                        struct error *e);
/* A new folder of that name, for files of output_write. */
enum status output_make_folder(const struct output *out, const char *name, struct error *e);
/* A new file of that name. */
enum status output_write(const struct output *out, const char *name, const struct buffer *text,
                         struct error *e);
/* convert_gguf.c: the same as output_copy from the metadata of a GGUF file. */
enum status output_copy_gguf(const struct output *out, const char *from, const char *note,
                             struct error *e);
/* The folder takes its name; or is removed. */
enum status output_finish(struct output *out, struct error *e);
void output_discard(struct output *out);

/* import_write.c: the weights of an imported folder. */
enum status import_write(const struct import_plan *plan, const struct output *out, struct error *e);
/* import_folder.c: all files of an imported folder, which the caller finishes or discards. */
enum status import_run(const struct import_plan *plan, const struct import_options *options,
                       const struct output *out, struct error *e);
