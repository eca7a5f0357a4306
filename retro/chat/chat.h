/* retro/chat/chat.h: chat templates of models: found in a folder, filled with a conversation,
 * turned into token ids. The texts are those of apply_chat_template in Hugging Face transformers 5,
 * the ids those of its sanitize_control_tokens. */
#pragma once

#include "retro/chat/thoughts.h"
#include "retro/template/template.h"
#include "retro/text/tokenizer.h"

/* The templates of one model and the special tokens that they name. Constant after opening. */
struct chat;

/* Reads a model folder, or the metadata of a GGUF file, as transformers does: chat_template.jinja
 * and additional_chat_templates/NAME.jinja, else chat_template of chat_template.json, else
 * chat_template of tokenizer_config.json, which is one template or a list with names; special
 * tokens from tokenizer_config.json and special_tokens_map.json. STATUS_NOT_FOUND: the folder has
 * no template. A template that cannot be parsed is reported when it is used. */
enum status chat_open(struct chat **out, const char *path, struct error *e);
/* One template by itself, as a GGUF file carries it; the tokens may be NULL. STATUS_INVALID and
 * STATUS_UNSUPPORTED as template_open. */
enum status chat_open_text(struct chat **out, struct text_span source, const char *bos,
                           const char *eos, struct error *e);
/* For a model that brings none and writes texts with this tokenizer: "Question: ...", a new line,
 * "Answer: ...", by turns, the system's words in front of them. It knows no tools and no pictures.
 */
enum status chat_open_plain(struct chat **out, const struct tokenizer *tokenizer, struct error *e);
bool chat_is_plain(const struct chat *chat); /* opened so */
void chat_close(struct chat *chat);

/* A conversation as a request gives it; borrowed. Absent values are NULL. */
struct chat_input {
    const struct json *messages;  /* a list of objects, at least one */
    const struct json *tools;     /* a list of objects */
    const struct json *documents; /* a list of objects */
    const struct json *variables; /* an object: chat_template_kwargs */
    const char *template_name; /* of a model that has several; NULL: tool_use where there are tools,
                                  or default */
    bool add_generation_prompt;
    bool continue_final_message; /* the text ends within the last message; then there is no
                                    generation prompt */
    struct tm now;
};

/* Reads the conversation from a chat request's JSON; other members are passed over. STATUS_INVALID
 * names the member. add_generation_prompt is true where nothing is said, unless the last message is
 * continued: the text that the model would read. */
enum status chat_input_read(struct chat_input *in, const struct json *request, struct error *e);
/* The local time, or SOURCE_DATE_EPOCH in UTC where it is set. */
struct tm chat_now(void);

/* Appends the text that the model reads to *out. Errors as template_render. */
enum status chat_render(const struct chat *chat, const struct chat_input *in,
                        struct template_output *out, struct error *e);
/* The template that a conversation would use. */
enum status chat_pick(const struct chat *chat, const struct chat_input *in,
                      const struct template **out, struct error *e);

/* The text of the template that conversations without tools use; its text NULL: there is no such
 * template. */
struct text_span chat_source(const struct chat *chat);

/* The id of eos_token, which ends a turn beside the ids that end a text; -1: there is none. */
int32_t chat_end(const struct chat *chat, const struct tokenizer *tokenizer);
/* The text of another's turn, which ends an answer that no token has ended; NULL: there is none. */
const char *chat_stop(const struct chat *chat);
/* How the model's answers may begin with thoughts, as one of its templates writes these. */
enum thought_form chat_thoughts(const struct chat *chat);
/* Whether a template of the model writes messages in channels, as its answers are (harmony.h). */
bool chat_has_channels(const struct chat *chat);

/* Appends the ids of a rendered text. Control tokens are the tokenizer's special tokens, and the
 * added tokens that the template itself writes. Those of the template become their ids; one within
 * the request's text is encoded as plain text. STATUS_INVALID: the tokenizer gives the control
 * token for plain text too. */
enum status chat_encode(const struct template *template, const struct tokenizer *tokenizer,
                        const struct template_output *text, struct tokens *ids, struct error *e);
