/* server/host/options/retrieval_mode.c: names of modes. See retrieval_mode.h. */
#include "server/host/options/retrieval_mode.h"

const struct json_choice retrieval_modes[] = {{"auto", RETRIEVAL_AUTO},
                                              {"attention", RETRIEVAL_ATTENTION},
                                              {"prompt", RETRIEVAL_PROMPT},
                                              {"both", RETRIEVAL_BOTH},
                                              {NULL, 0}};

const struct json_choice retrieval_queries[] = {
    {"message", RETRIEVAL_BY_MESSAGE}, {"conversation", RETRIEVAL_BY_CONVERSATION}, {NULL, 0}};

const char *retrieval_mode_name(enum retrieval_mode mode) { return retrieval_modes[mode].name; }
