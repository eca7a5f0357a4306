/* server/host/prompt/prefixes.h: the texts that the operator names in server.prefixes, as ids that
 * prompts begin with.
 *
 * A file FILE.json is the beginning of a chat, {"messages": [...]} and perhaps "tools", as in a
 * request: the ids are those that all chats share which begin with these messages and go on with
 * one of the user. Any other file is text; one line end at its end is not part of it. */
#pragma once

#include "retro/chat/chat.h"
#include "retro/model/model.h"
#include "retro/text/tokenizer.h"

struct prefix_list {
    struct named_prefix {
        char *name;        /* the file's */
        struct tokens ids; /* at least one */
        char *stored;      /* the file in the folder that keeps its rows; NULL without a folder */
    } * list;
    int n;
};

/* The options server.prefixes and server.prefix_folder. */
struct prefix_files {
    char **paths; /* [n] */
    int n;
    const char *folder; /* "": rows are not stored */
    const struct model_info *model;
    int context; /* tokens that a sequence may have */
};
/* Reads the files. `chat` may be NULL. Refused are two files of one name where rows are stored,
 * texts that fill the context, and models whose rows depend on more than the text before them. */
enum status prefixes_open(struct prefix_list *out, const struct prefix_files *files,
                          const struct tokenizer *tokenizer, const struct chat *chat,
                          struct error *e);
void prefixes_close(struct prefix_list *list); /* also after a failure */

/* Of all that decides the bits of rows beside their ids: the model's files, the types of its
 * weights and of the rows, the kernels of the device, and this program itself. */
uint64_t prefixes_identity(const char *folder, struct comm *world, const struct model_info *info,
                           const struct backend *backend);
