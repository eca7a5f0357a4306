/* tools/convert/containers/checkpoint.h: a checkpoint of any container as names, shapes and places
 * of tensors, and settings. Weights stay in their files, which are mapped. */
#pragma once

#include "tools/convert/formats/settings.h"
#include "tools/convert/formats/torch_file.h"

/* A part of a tensor: rows without gaps. */
struct checkpoint_piece {
    const uint8_t *data;
    int64_t origin[STORED_MAX_DIMS], extent[STORED_MAX_DIMS]; /* within the whole tensor */
};

struct checkpoint_tensor {
    char *name;
    enum stored_dtype dtype;
    int n_dims;
    int64_t shape[STORED_MAX_DIMS]; /* of the whole tensor; of a rank's part where the checkpoint is
                                       split by ranks */
    struct checkpoint_piece *pieces; /* split by ranks: piece r is that of rank r, at no origin */
    int n_pieces;
    char *problem;    /* why it cannot be read, or NULL */
    const char *file; /* the first that it is in; borrowed */
    int stage;        /* that it is in: a second tensor of a name has to be a copy of the first */
    bool used;
};

/* A file of the checkpoint, by its name within. */
struct checkpoint_entry {
    char *name;
    struct text_span bytes; /* of an archive's; {NULL, 0}: a file of the folder, which is mapped
                               when it is read */
};

/* A file of the tokenizer that came along, by the name that it has in a model folder. */
struct checkpoint_companion {
    const char *name;
    struct text_span bytes;
};
enum { CHECKPOINT_COMPANIONS = 8 };

struct checkpoint {
    const char *container; /* in words */
    const char *scratch;   /* folder for what has to be unpacked; borrowed */
    char *folder;          /* that holds it, after the tracker was followed; or the archive */
    const char *inner;     /* "model_weights/": files are below it, or "" */
    struct checkpoint_entry *entries;
    int n_entries, entry_capacity;
    bool ranked; /* split by ranks, so that names decide how parts are joined */
    int ranks, stages, chunks;
    double version; /* of the layout of query_key_value; 3 where no order is known but the newest */
    struct settings settings;
    struct checkpoint_companion companions[CHECKPOINT_COMPANIONS];
    int n_companions;
    struct checkpoint_tensor *tensors; /* in order of name */
    int n, capacity;
    int dropped; /* entries that belong to training: states of optimisers, random numbers, ... */
    struct checkpoint_source {
        char *path;
        struct file_map map;
    } * sources;
    int n_sources, source_capacity;
    struct torch_file **files;
    int n_files, file_capacity;
};

/* Whether a path is a checkpoint that checkpoint_open reads, by the names in it. */
bool checkpoint_detect(const char *path);
/* Reads everything but the weights. A compressed archive is unpacked into a nameless file in the
 * folder `scratch`, which must outlive the checkpoint. */
enum status checkpoint_open(struct checkpoint **out, const char *path, const char *scratch,
                            struct error *e);
void checkpoint_close(struct checkpoint *checkpoint);
/* NULL when there is none. */
struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name);

/* For the containers. */

enum status checkpoint_open_ranks(struct checkpoint *checkpoint,
                                  struct error *e); /* checkpoint_ranks.The checkpoint */
enum status checkpoint_open_distributed(struct checkpoint *checkpoint,
                                        struct error *e); /* checkpoint_distributed.c */

enum status checkpoint_open_zarr(struct checkpoint *checkpoint,
                                 struct error *e); /* checkpoint_zarr.c */
/* checkpoint_entries.The checkpoint: the files of a folder, three folders deep, or of an archive.
 */
enum status checkpoint_list_folder(struct checkpoint *checkpoint, struct error *e);
enum status checkpoint_list_archive(struct checkpoint *checkpoint, struct error *e);
bool checkpoint_has(const struct checkpoint *checkpoint, const char *name);
/* Goes below one of its folders, whose other files are no longer its. */
void checkpoint_enter(struct checkpoint *checkpoint, const char *inner);
/* The bytes of a file, which is mapped once. */
enum status checkpoint_read(struct checkpoint *checkpoint, const char *name,
                            struct text_span *bytes, struct error *e);
/* checkpoint_companions.The checkpoint: finds the tokenizer that the container holds: the file that
 * NeMo's configuration names
 * (`wanted`, or NULL), else NeMo 2's folder of it, else the only file that is one by its name. */
enum status checkpoint_take_tokenizer(struct checkpoint *checkpoint, const char *wanted,
                                      struct error *e);
/* checkpoint_pieces.The checkpoint: whether pieces neither overlap nor leave gaps. */
enum status checkpoint_check_pieces(const struct checkpoint *checkpoint,
                                    const struct checkpoint_tensor *tensor, struct error *e);
/* Whether no two tensors share some of their bytes, but not all. */
enum status checkpoint_check_shared(const struct checkpoint *checkpoint, struct error *e);
/* Tensors of all layers ("decoder.layers.mlp", of which the first axis are the layers) become those
 * of each
 * ("decoder.layers.0.mlp"). */
enum status checkpoint_unstack(struct checkpoint *checkpoint, struct error *e);
/* checkpoint_nemo.The checkpoint: NeMo's configuration, as arguments of Megatron's names: of a YAML
 * file of the checkpoint. */
enum status checkpoint_read_nemo(struct checkpoint *checkpoint, const char *name, struct error *e);
/* Of the folder of training that a checkpoint lies in: its hparams.yaml, one or two folders above;
 * or nothing. */
enum status checkpoint_read_above(struct checkpoint *checkpoint, struct error *e);
/* The arguments of a pickled file: Megatron's "args", else NeMo's "hyper_parameters"; or nothing.
 */
enum status checkpoint_take_arguments(struct checkpoint *checkpoint,
                                      const struct pickle_value *root, struct error *e);
/* The same of common.pt, where it is there. */
enum status checkpoint_read_common(struct checkpoint *checkpoint, struct error *e);
/* A file of torch.save that closes with the checkpoint. */
enum status checkpoint_torch_file(struct checkpoint *checkpoint, struct text_span bytes,
                                  const char *name, struct torch_file **out, struct error *e);
/* A new tensor at the end; the name is copied. */
struct checkpoint_tensor *checkpoint_add(struct checkpoint *checkpoint, const char *name);
/* Whether an entry of this name is no weight. */
bool checkpoint_drops(const char *name);
void checkpoint_sort(struct checkpoint *checkpoint);
