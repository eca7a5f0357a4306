/* retro/chat/chat_private.h: what the files of chat share. */
#pragma once

#include "retro/chat/chat.h"

enum { CHAT_MAX_TOKENS = 64 };

struct named_template {
    char *name;
    struct template *template; /* NULL: not readable, `error` says why */
    struct error error;
};
struct chat_token {
    char *name; /* "bos_token" */
    struct json *value;
};
struct chat {
    struct named_template *templates; /* [n_templates] by name */
    int n_templates;
    struct chat_token tokens[CHAT_MAX_TOKENS];
    int n_tokens;
};
