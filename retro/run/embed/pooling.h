/* retro/run/embed/pooling.h: the rows of texts become one vector each, and the modules after that.
 */
#pragma once

#include "kernels/backend.h"
#include "retro/run/embed/encoder_folder.h"

struct pooling;

/* The rows of one forward: rows [starts[i], starts[i + 1]) of x are text i's, and its first `skip`
 * are not pooled. */
struct pooling_rows {
    struct tensor x;       /* [rows, d], on the device */
    const int32_t *starts; /* [n + 1] */
    int n, skip;
};

/* For forwards of at most max_rows rows of d numbers, and as many texts. Loads the Dense modules of
 * *folder, which is borrowed. */
enum status pooling_open(struct pooling **out, const struct encoder_folder *folder,
                         struct backend *backend, int max_rows, int d, struct error *e);
void pooling_close(struct pooling *pooling);
/* Bytes that it takes of the device, its Dense modules included. */
size_t pooling_bytes(const struct encoder_folder *folder, int max_rows, int d);
/* Whether the modules fit each other and rows of d numbers; *dim is the size of a vector. */
enum status pooling_check(const struct encoder_folder *folder, int d, int *dim, struct error *e);

/* vectors [n, dimensions], host: the first `dimensions` numbers (Matryoshka, Kusupati et al. 2022),
 * brought to unit length but where `raw` is asked for and the folder's are; zeros for a text
 * without rows. Waits for the device. */
enum status pooling_run(struct pooling *pooling, const struct pooling_rows *rows, int dimensions,
                        bool raw, float *vectors, struct error *e);
