/* retro/run/embed/sparse_head.h: sparse weights of an embedder's rows, as bge-m3 has them (Chen et
 * al. 2024, "M3-Embedding", section 3.2): a token of a text weighs relu(w . h + b), with h its row
 * behind the last layer; a token id weighs as much as the heaviest of its tokens. The ids that
 * FlagEmbedding leaves out are left out: cls_token, eos_token, pad_token and unk_token.
 *
 * w [1, hidden] and b [1] are `weight` and `bias` of sparse_linear.safetensors in the folder of the
 * model, which retro-convert makes of the published sparse_linear.pt. */
#pragma once

#include "config/base/sparse.h"
#include "kernels/backend.h"
#include "retro/run/embed/pooling.h"
#include "retro/text/tokenizer.h"

#define SPARSE_HEAD_FILE "sparse_linear.safetensors"

struct sparse_head;

/* Whether the folder of a model has a head. */
bool sparse_head_is_there(const char *folder);
/* Says in the log how to make a head of the published file, where the folder has that alone. */
void sparse_head_advise(const char *folder);
/* For forwards of at most max_rows rows of d numbers. STATUS_INVALID: a tensor is missing, has
 * another shape or type, or a number that is not finite. */
enum status sparse_head_open(struct sparse_head **out, const char *folder, struct backend *backend,
                             int max_rows, int d, struct error *e);
void sparse_head_close(struct sparse_head *head); /* NULL: nothing */
size_t sparse_head_bytes(int max_rows, int d);    /* that it takes of the device */
/* Hashes the head of the folder into *hash. */
enum status sparse_head_hash(const char *folder, uint64_t *hash, struct error *e);

/* Appends a row of weights for each text; ids [rows] are those of the rows. Waits for the device.
 */
enum status sparse_head_run(struct sparse_head *head, const struct pooling_rows *rows,
                            const int32_t *ids, const struct tokenizer *tokenizer,
                            struct sparse_rows *out, struct error *e);
