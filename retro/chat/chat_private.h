/* retro/chat/chat_private.h: what the files of chat share. */
#pragma once

#include "config/json/json_writer.h"
#include "retro/chat/chat.h"
#include "retro/template/template_private.h"

enum { CHAT_MAX_TOKENS = 64 };

/* chat_continue.c: the last message is gone on with. The content of this message with the mark that
 * it is cut at; whether it has a text at all; the rendered text up to the mark. */
void continued_put(struct json_writer *w, const struct json *content);
/* The parts of a content that is a list of such, likewise. */
void continued_put_parts(struct json_writer *w, const struct json *parts);
enum status continued_check(const struct json *messages, struct error *e);
enum status continued_cut(const struct json *messages, struct template_output *out,
                          struct error *e);

/* chat_pictures.c: the processor that this file of the folder describes may put words in the place
 * of a template's mark for a picture, made of tokens that tokenizer_config.json names, which may be
 * NULL. */
void chat_pictures_read(struct chat *chat, const struct json *file, const struct json *config);
/* The template's own marks from byte `from` of the text on become these words. */
void chat_pictures_write(const struct chat *chat, size_t from, struct template_output *text);

struct named_template {
    char *name;
    struct buffer source;
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
    bool plain;                  /* chat_plain.c */
    char *picture_mark;          /* that templates write for a picture, and */
    struct buffer picture_words; /* what the model reads in its place; NULL and empty: templates
                                    write what it reads (chat_pictures.c) */
};
