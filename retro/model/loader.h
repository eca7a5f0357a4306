/* retro/model/loader.h: checkpoint tensors to packed device weights, for the files loader*.c.
 * tensors.c lists the places to fill, the family's rows name the tensors that fill them.
 *
 *     loader.c         one place after another; whether all tensors were used; progress
 *     loader_find.c    the stored tensors of a place, checked
 *     loader_stage.c   this rank's share of them, in host memory
 *     loader_random.c  the same without a checkpoint
 *     loader_upload.c  staged places onto the device
 *
 * A place is staged with its rows in the place's order and given to the backend. Most stored
 * tensors have that form already; the backend then reads the mapped file itself. */
#pragma once

#include "kernels/kquants.h"
#include "kernels/mxfp4.h"
#include "kernels/quantise.h"
#include "retro/model/tensors.h"
#include "retro/weights/gguf_blocks.h"

enum { MAX_PARTS = 4 };

/* A matrix on its way to the device is rows of values and, when quantised, rows of scales and
 * minimums beside them. */
enum plane { PLANE_VALUES, PLANE_SCALES, PLANE_MINIMUMS, PLANES };

/* Host memory that one matrix after another is worked on in; new pages for each would cost more
 * than the work. */
struct load_room {
    void *data;
    size_t bytes;
};
/* Behind those of the planes that are staged; from ROOM_PARTS on one for each part of a place. */
enum { ROOM_WIDE = PLANES, ROOM_RANDOM, ROOM_PARTS, ROOMS = ROOM_PARTS + MAX_PARTS };

/* One loading of one model. */
struct loader {
    struct model *model;
    const struct weights *weights; /* NULL: random numbers */
    const struct model_options *options;
    bool *used;         /* [weights_count] */
    size_t done, total; /* bytes of stored tensors */
    double shown;       /* when progress was last told */
    struct load_room rooms[ROOMS];
    struct deviation lost; /* by tensors whose blocks do not fit our types */
    int n_lost;
    uint64_t random;
    enum dtype random_dtype; /* of what is in ROOM_RANDOM */
};

/* n * size bytes, NULL when there are none; valid until the next call for that room. Contents are
 * kept if it fits. */
void *loader_room(struct loader *loader, int which, size_t n, size_t size);

/* Bytes of n columns (whole blocks of them) in one row of a plane, 0 where the type has no such
 * plane. */
size_t plane_bytes(enum dtype dtype, int plane, int n);

/* Rows of host memory: a stored tensor, or what is staged. */
struct matrix_planes {
    const char *at[PLANES];
    enum dtype dtype;
    int cols;
};

/* The planes of row i from column `first` on (a multiple of the block where quantised). */
const char *plane_at(const struct matrix_planes *planes, int plane, int64_t i, int first);
/* n columns of row i, from `first` on, as f32. */
void planes_widen(float *to, const struct matrix_planes *planes, int64_t i, int first, int n);

/* One stored tensor with its scales: the rows of a place that `part` says. The planes are as
 * stored: of a transposed one they have `rows` columns. Of STORED_BLOCKS they have no memory: its
 * rows are converted while they are staged. Of STORED_F8_E4M3 they are in one of the loader's
 * rooms. */
struct stored_part {
    struct matrix_planes planes;
    const struct stored_tensor *stored;
    const struct stored_tensor *scales; /* of STORED_F8_E4M3, else NULL */
    bool widened;                       /* blocks that are floats in one of the loader's rooms */
    int first;                          /* of its stored rows, in the tensor */
    enum part part;
    int rows, cols;
    bool transposed;
    struct head_order joined; /* of columns_in_turn, else size 0 */
};

/* How the columns of a part lie; NULL: as in the place. */
static inline const struct head_order *part_columns(const struct stored_part *part) {
    return part->joined.size > 0 ? &part->joined : stored_columns(part->stored, part->cols);
}

/* A rank's share of a place; the planes point into the loader's rooms, there to be written, or into
 * the file. */
struct staged_place {
    struct matrix_planes planes;
    int rows, cols;
    char *room[PLANES];
};

/* All stored tensors of a place; *n of them. An error names the tensor and both shapes. */
enum status loader_find_parts(struct loader *loader, const struct place *place,
                              struct stored_part parts[MAX_PARTS], int *n, struct error *e);
/* Tells the log and model_options.loaded that a tensor of a row was found; `transposed` as family
 * and shape say. */
void loader_report(struct loader *loader, const char *name, const struct place *place,
                   const struct tensor_row *row, bool transposed);

/* Room for staged->rows rows of staged->cols. */
enum status stage_take(struct loader *loader, struct staged_place *staged, enum dtype dtype,
                       struct error *e);
/* All of a place as f32; NULL when there is no memory. */
float *stage_widen(struct loader *loader, const struct staged_place *staged);
/* From the checkpoint, or random numbers. */
enum status loader_stage(struct loader *loader, struct staged_place *staged,
                         const struct place *place, struct error *e);
enum status loader_stage_random(struct loader *loader, struct staged_place *staged,
                                const struct place *place, struct error *e);
/* Onto the device, to place->at. */
enum status loader_upload(struct loader *loader, const struct staged_place *staged,
                          const struct place *place, struct error *e);
