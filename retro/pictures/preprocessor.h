/* retro/pictures/preprocessor.h: pictures to the numbers that a vision tower reads, as
 * transformers' image processors make them: resize, cut, scale, normalise. preprocessor_config.json
 * says how.
 *
 * A processor follows one of transformers' two back ends to the last bit: torchvision's where its
 * name ends with "Fast", Pillow's where it ends with "Pil". Of names without an ending, those of
 * CLIP, ViT, LLaVA and LLaVA-NeXT follow Pillow's, with which their models were trained; those of
 * SigLIP, GOT-OCR2, Gemma 3, Gemma 4, Qwen2-VL and Pixtral follow torchvision's.
 */
#pragma once

#include "config/json/json_value.h"
#include "retro/pictures/resize.h"

enum { PREPROCESSOR_MOST_SIDE = 8192, PREPROCESSOR_MOST_GRIDS = 64, PREPROCESSOR_MOST_TILES = 100 };

struct picture_size {
    int height, width;
};

enum preprocessor_kind {
    PREPROCESSOR_PLAIN,      /* one picture */
    PREPROCESSOR_LLAVA,      /* one picture, made square first where `pad` says so */
    PREPROCESSOR_LLAVA_NEXT, /* the whole picture, then its tiles ("anyres") */
    PREPROCESSOR_TILES,   /* where `tile` says so, tiles that the picture is stretched to, then the
                           * whole picture where they are several: GOT-OCR2's, InternVL's and
                           * Megatron's way */
    PREPROCESSOR_QWEN,    /* one picture of any size within limits, its sides multiples of merged
                             patches */
    PREPROCESSOR_PIXTRAL, /* one picture of any size that fits `size`, its sides likewise */
    PREPROCESSOR_GEMMA4 /* one picture as large as the limit lets it be, its sides such multiples */
};

struct preprocessor {
    enum preprocessor_kind kind;
    struct resize_way way;
    bool resize, crop, rescale, normalize, pad, tile;
    int shortest_edge;        /* 0: `size` is the size */
    struct picture_size size; /* of the resized picture where shortest_edge is 0 */
    struct picture_size cut;  /* of the middle that is kept, where `crop` */
    double factor;            /* of `rescale` */
    double mean[3], deviation[3];
    struct picture_size
        grids[PREPROCESSOR_MOST_GRIDS]; /* PREPROCESSOR_LLAVA_NEXT: sizes that tiles may fill */
    int grid_count;
    int least_tiles, most_tiles; /* PREPROCESSOR_TILES */
    int64_t least_pixels;        /* PREPROCESSOR_QWEN */
    int64_t most_pixels; /* of pictures of any size; PREPROCESSOR_PIXTRAL: 0 is no further limit */
    int most_tokens;     /* PREPROCESSOR_GEMMA4: merged patches of a picture */
    int patch, merge,
        frames; /* of pictures of any size: pixels of a patch's side, patches of a merged one's,
                 * and frames that a picture is repeated for, which is left to the tower */
};

/* Whether sides of a picture become multiples of merged patches. */
static inline bool preprocessor_fits_patches(const struct preprocessor *preprocessor) {
    enum preprocessor_kind kind = preprocessor->kind;
    return kind == PREPROCESSOR_QWEN || kind == PREPROCESSOR_PIXTRAL || kind == PREPROCESSOR_GEMMA4;
}
/* Pixels that such a picture has at most. */
int64_t preprocessor_most_pixels(const struct preprocessor *preprocessor);

/* Reads preprocessor_config.json of a model's folder or, where there is none,
 * processor_config.json, which also tells the merged patches of Pixtral's pictures; or one of these
 * files itself; or what the file of a GGUF model's tower
 * says in their place. STATUS_NOT_FOUND where neither is there;
 * STATUS_UNSUPPORTED for a processor that is not built in, STATUS_INVALID for keys that are wrong
 * or unknown, by their names. */
enum status preprocessor_open(struct preprocessor *out, const char *path, struct error *e);
/* The same from a document; messages begin with `name`. */
enum status preprocessor_read(struct preprocessor *out, const struct json *root, const char *name,
                              struct error *e);

/* The input of a tower: pixels is float32 [tiles, 3, height, width]. Zero-initialise. */
struct picture_tiles {
    int tiles, height, width;
    int rows,
        columns; /* of the grid, which the tiles fill from the top left; 0 where there is none */
    int whole;   /* the tile that shows the whole picture, before or behind those of the grid */
    struct picture_size original; /* of the picture that was given */
    float *pixels;                /* owned */
};
/* PREPROCESSOR_GEMMA4: pictures become so many tokens at most. */
void preprocessor_limit_tokens(struct preprocessor *preprocessor, int most);

void picture_tiles_free(struct picture_tiles *tiles);

/* Safe to call from several threads. *out is empty after an error: STATUS_TOO_LARGE where a step
 * would make a picture over picture_take's limits, STATUS_NO_MEMORY. */
enum status preprocessor_run(struct picture_tiles *out, const struct preprocessor *preprocessor,
                             const struct picture *picture, struct error *e);
