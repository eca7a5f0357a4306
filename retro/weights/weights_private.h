/* retro/weights/weights_private.h: what the files that read weights share. */
#pragma once

#include "retro/weights/weights.h"

enum { NAME_SHOWN = 100 }; /* of a tensor, in messages */

struct entry {
    struct stored_tensor tensor; /* first: sorted and handed out */
    int shard;
    size_t begin, end; /* in the shard's data */
    void *copy;        /* owns tensor.data when it was misaligned, else NULL */
};

struct weights {
    struct entry *entries;
    int count, capacity;
    struct file_map *maps; /* one per shard, empty for weights_open_memory */
    int n_maps;
    struct gguf *gguf; /* NULL: safetensors */
};

/* Appends an entry that owns its name. */
struct entry *weights_add_entry(struct weights *weights, const char *name);
int entry_compare(const void *a, const void *b); /* by name */
/* Puts the tensors in order of name. STATUS_CORRUPT where two have one name, which can only come
 * from two shards. */
enum status weights_sort(struct weights *weights, const char *path, struct error *e);

/* Opens a GGUF file, which the weights own from then on, also where a tensor of it is refused. */
enum status weights_read_gguf(struct weights *weights, const char *path, struct error *e);

/* Adds the experts that lie in one tensor of n_dims dimensions, [experts, ...], as tensors of their
 * own; '#' in the name stands for their numbers. */
enum status weights_add_experts(struct weights *weights, const struct stored_tensor *whole,
                                int n_dims, const char *name, struct error *e);
/* Replaces the stacked experts of a folder, as transformers 5 has them, by tensors of their own; in
 * order of name. */
enum status weights_unstack_experts(struct weights *weights, struct error *e);
