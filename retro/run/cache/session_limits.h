/* retro/run/cache/session_limits.h: what sessions of one pool may take, which sizes its caches and
 * scratch. */
#pragma once

#include "kernels/tensor.h"

enum { LIMIT_KEPT_STATES = 1 << 20 };

struct session_limits {
    int max_sessions;
    int max_tokens;       /* rows per session */
    int max_step_rows;    /* rows of all sessions in one step */
    int max_draft_rows;   /* of these, rows that there is room for because of drafts alone */
    int max_logit_rows;   /* rows of logits in one step */
    int max_neighbors;    /* k of any chunk */
    enum dtype kv_dtype;  /* F32, F16, BF16 or INT8 */
    int micro_batch_rows; /* over stages: rows of a step above which its sequences are done in turn;
                             0: never */
    int max_source; /* ids of the text that one session's encoder reads; 0 for models without */
    int max_given;  /* rows of one step that come as rows, not as ids; 0: none may */
    int max_picture_rows; /* rows of a vision tower in one pass; 0: session_encode_pictures is not
                             called */
    int kept_blocks; /* blocks of keys and values that are kept beyond those of open sessions; 0:
                        none are */
    int kept_states; /* of models with states: how many are kept beside those blocks; without any,
                        no rows are taken over */
    int max_shares;  /* groups of keys whose shares of a row's attention are told; 0: none are */
};

/* The type of what cross attention reads, which does not grow with a text: int8 would save
 * little. */
static inline enum dtype limits_cross_dtype(const struct session_limits *limits) {
    return limits->kv_dtype == DTYPE_INT8 ? DTYPE_F16 : limits->kv_dtype;
}
