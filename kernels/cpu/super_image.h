/* kernels/cpu/super_image.h: one column of a packed super-block as words: word i is the column's
 * part of line 1 + i (layout.h). Line 0 has the column's two f16, which stand beside it here. */
#pragma once

#include "kernels/cpu/layout.h"

enum { SUPER_IMAGE_WORDS = 52 /* of Q6_K, the most */ };

struct super_image {
    uint16_t d, dmin;
    uint32_t words[SUPER_IMAGE_WORDS];
};

static inline int super_image_words(enum dtype dtype) {
    return super_head_lines(dtype) - 1 + SUPER_BLOCKS * super_block_lines(dtype);
}
/* From a super-block as GGUF holds it, without a step by single weights. */
void super_image_make(struct super_image *to, enum dtype dtype, const char *from);
