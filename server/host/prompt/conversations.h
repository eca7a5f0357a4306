/* server/host/prompt/conversations.h: what conversations have read: for a message of a user, the
 * passages that stood before its text when it was answered. By this a later prompt of the same
 * conversation shows them where they stood, and begins with the same tokens.
 *
 * A client sends messages alone. A conversation is known by a key: a chain of hashes over its
 * messages up to one of the user's, begun with who asks. So an edited message, or another answer
 * before it, is another conversation from there on, and no client meets what another has read.
 *
 * Of a passage its document's id, the bytes and a hash of the document are kept, and no text: what
 * is shown again is read from the collection (retriever_recall). The turns that were not used for
 * longest leave first. */
#pragma once

#include "config/base/buffer.h"
#include "server/access/principal.h"

struct turn_key {
    uint64_t first, second;
};

/* A passage by the number that it has in its conversation. */
struct read_passage {
    char *document; /* owned: its stored id */
    uint64_t version, start, end;
    int number;
    float similarity; /* when it was found */
};

/* One message of the user, answered. It is counted, and constant once it is in the table. */
struct read_turn {
    atomic_int references;
    struct turn_key key;
    int oldest; /* the user's message, counted from 0, before which no passages stood any more */
    int last_number;               /* the highest that the conversation has given */
    struct read_passage *passages; /* [n] put in by this turn */
    int n;
    int *again; /* [n_again] numbers of passages of earlier turns that this turn has found again */
    int n_again;
};

/* Empty, with one reference, the caller's. */
struct read_turn *read_turn_open(struct turn_key key);
struct read_turn *read_turn_hold(struct read_turn *turn);
void read_turn_release(struct read_turn *turn); /* NULL: nothing */

/* All functions may be called by any thread. */
struct conversations;
/* `bytes` bounds what is kept; keys of one filter share it where `of_filter`, else each key has its
 * own. */
struct conversations *conversations_open(size_t bytes, bool of_filter);
void conversations_close(struct conversations *conversations); /* NULL: nothing */

/* The key of a conversation without messages, and with one more text. */
struct turn_key conversations_begin(const struct conversations *conversations,
                                    const struct principal *who);
struct turn_key turn_key_add(struct turn_key key, struct text_span text);

/* A reference for the caller; NULL: it is not known. */
struct read_turn *conversations_find(struct conversations *conversations, struct turn_key key);
/* Takes over the caller's reference. A turn of the same key leaves. */
void conversations_put(struct conversations *conversations, struct read_turn *turn);

/* A question of a conversation was rewritten for a search, or could not be. */
void conversations_note_rewrite(struct conversations *conversations, bool rewritten);

struct conversation_counts {
    int64_t turns, bytes, evicted;
    int64_t rewritten, unrewritten;
};
struct conversation_counts conversations_count(struct conversations *conversations);
