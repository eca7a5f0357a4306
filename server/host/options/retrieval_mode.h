/* server/host/options/retrieval_mode.h: how a model reads what is found for it: by chunked cross attention, as Retro
 * does, as text in its prompt, or both. */
#pragma once

#include "config/json/json_table.h"
#include "retro/model/model.h"

enum retrieval_mode { RETRIEVAL_AUTO, RETRIEVAL_ATTENTION, RETRIEVAL_PROMPT, RETRIEVAL_BOTH };
extern const struct json_choice retrieval_modes[];

/* The texts that passages of a chat are sought by: the user's last message, or with the turns before it. */
enum retrieval_query { RETRIEVAL_BY_MESSAGE, RETRIEVAL_BY_CONVERSATION };
extern const struct json_choice retrieval_queries[];

/* Whether a request whose collection does not answer fails. */
enum collection_away { AWAY_FAIL, AWAY_WRITE_WITHOUT };

/* The mode of a model for auto: it attends where it has chunked cross attention. */
static inline enum retrieval_mode retrieval_mode_of(enum retrieval_mode mode, bool attends) {
    if (mode != RETRIEVAL_AUTO) return mode;
    return attends ? RETRIEVAL_ATTENTION : RETRIEVAL_PROMPT;
}
/* Of modes that are not auto. */
static inline bool retrieval_attends(enum retrieval_mode mode) { return mode != RETRIEVAL_PROMPT; }
static inline bool retrieval_prompts(enum retrieval_mode mode) { return mode != RETRIEVAL_ATTENTION; }
const char *retrieval_mode_name(enum retrieval_mode mode);
