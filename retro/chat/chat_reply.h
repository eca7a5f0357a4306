/* retro/chat/chat_reply.h: what a model writes in a chat, taken apart as it comes: what it thinks,
 * what it says, which tools it calls. */
#pragma once

#include "config/base/buffer.h"
#include "config/json/json_value.h"
#include "retro/chat/thoughts.h"

/* How a model writes that it calls a tool. */
enum call_format {
    CALLS_NONE,    /* not at all, or in a way that stays text */
    CALLS_HERMES,  /* <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen */
    CALLS_MISTRAL, /* [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...] or
                      [TOOL_CALLS]name[ARGS]{...} */
    CALLS_LLAMA,   /* {"name": ..., "parameters": {...}} as the whole answer, also behind
                      <|python_tag|> */
    CALLS_HARMONY, /* messages to functions.NAME (harmony.h) */
    /* Between tags (tagged_calls.h). */
    CALLS_FUNCTION, /* Qwen3-Coder, Qwen3.5 */
    CALLS_GLM,      /* GLM 4.5 and later */
    CALLS_MINIMAX,
    CALLS_DEEPSEEK,
    CALLS_DEEPSEEK_BLOCK, /* of DeepSeek-V3 before V3.1, and R1 */
    CALLS_PYTHON,         /* LFM2 */
    CALLS_GEMMA,          /* Gemma 4 */
    CALLS_GRANITE,        /* Granite 3; Granite 4 writes CALLS_HERMES */
    CALLS_OLMO,           /* OLMo 3 */
    CALLS_APERTUS,
    CALL_FORMATS
};

struct tool_call {
    char *name;
    struct buffer arguments; /* a JSON object on one line, spelt as the model wrote it (json_raw.h);
                                a text that is none where the model told one in its place */
};

enum reply_part { REPLY_BEGINS, REPLY_THINKS, REPLY_SAYS };

/* Bytes of the content, in one piece of the answer's text. */
struct reply_piece {
    size_t written; /* where they begin in the answer's text */
    size_t said;    /* where they begin in the content */
    size_t size;
};

/* Zero-initialised but for format, tools, thoughts, channels and part; free when done. */
struct chat_reply {
    enum call_format format;
    const struct json *tools; /* of the request, which says of what type arguments are; borrowed */
    enum thought_form thoughts; /* that the answer may begin with */
    bool channels;              /* the model writes messages in channels (harmony.h) */
    enum reply_part part;
    size_t read;       /* bytes of the answer's text that have been taken apart */
    size_t blanks_end; /* byte behind the blanks that come next */
    /* The call that comes next: bytes of it in which its end was sought, how often it was read and
     * was not whole, and the bytes with which it is read again. */
    size_t looked, next_try;
    int tries;
    int wrong; /* marks of calls that began none; behind too many of them all is text */
    struct buffer reasoning, content;
    size_t content_start;       /* byte of the answer's text that content begins with */
    struct reply_piece *pieces; /* [n_pieces] of the content, in order */
    int n_pieces, pieces_capacity;
    struct tool_call *calls; /* [n_calls] */
    int n_calls, calls_capacity;
    bool says;  /* the turn has content */
    bool trims; /* white space before the next text goes */
};

/* From the texts that the template writes (template_literals). */
enum call_format call_format_of(struct text_span literals);
/* Whether a call stands between <tool_call> and </tool_call>. */
static inline bool call_format_has_mark(enum call_format format) {
    return format == CALLS_HERMES || format == CALLS_FUNCTION || format == CALLS_GLM;
}
/* Texts of tokens that answers of the format are read by, however special these tokens are:
 * tags[CALL_FORMAT_TAGS], constant. Returns how many there are. */
enum { CALL_FORMAT_TAGS = 7 };
int call_format_tags(enum call_format format, const char **tags);
/* Takes in all that is there of the answer, text[0, size); what could still become a mark waits
 * until `last`. */
void chat_reply_read(struct chat_reply *reply, const char *text, size_t size, bool last);
/* The bytes of the content that come from the first `written` bytes of the answer's text. */
size_t chat_reply_place(const struct chat_reply *reply, size_t written);
/* The answer's text begins anew, in another turn: what was said and called so far stays, and places
 * (pieces, content_start) are those of the new turn. */
void chat_reply_turn(struct chat_reply *reply);
/* Takes call i out of the list; the caller frees its name and arguments. */
struct tool_call chat_reply_take_call(struct chat_reply *reply, int i);
/* Drops the last call. */
void chat_reply_drop_call(struct chat_reply *reply);
void chat_reply_free(struct chat_reply *reply);
