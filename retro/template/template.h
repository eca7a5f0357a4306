/* retro/template/template.h: a text from a Jinja template, as the chat templates of models are
 * written: the subset of Jinja2 3.1 that they use, with the settings of Hugging Face transformers
 * (trim_blocks, lstrip_blocks, loop controls, `generation` blocks, an immutable sandbox).
 * docs/chat-templates.md lists it. Other constructs are errors that name the construct and its
 * line; nothing is guessed.
 *
 * Each byte of a text knows whether it came from the template or from the request, so that
 * "<|im_end|>" in a message can be told from the template's own (tokenizer_encode_marked). */
#pragma once

#include <time.h>

#include "config/json/json_value.h"

struct template;

/* A request's text never makes the reader do more than this. */
enum {
    TEMPLATE_MAX_SOURCE = 1 << 20, /* bytes of a template */
    TEMPLATE_MAX_MEMORY = 64 << 20,
    TEMPLATE_MAX_STEPS = 20000000,
    TEMPLATE_MAX_NESTING = 200, /* of expressions and blocks in a template */
    TEMPLATE_MAX_DEPTH = 600    /* of expressions, blocks, values and calls in a run */
};

/* Parses source[0, size); the source is not kept. STATUS_INVALID: not a template;
 * STATUS_UNSUPPORTED: beyond the subset. Messages name the line. The caller closes *out, which is
 * NULL after an error. */
enum status template_open(struct template **out, struct text_span source, struct error *e);
void template_close(struct template *template);

/* A variable that a template reads. */
struct template_variable {
    const char *name;
    const struct json *value; /* NULL: None */
    bool trusted; /* its texts count as the template's own; else as the request's, but for roles */
};

/* Some text of the request: 1 where a byte came from there, 0 where it is the template's. */
struct template_output {
    struct buffer text;
    struct buffer marks; /* [text.size] */
};
void template_output_free(struct template_output *out);

struct template_input {
    const struct template_variable *variables; /* [n] */
    int n;
    struct tm now; /* what strftime_now tells */
};

/* Appends what the template writes to *out. A template is constant and may be rendered by several
 * threads at once. STATUS_INVALID: the template raised an exception, and its words are the error's
 * text; or an operation failed, and the text says which in which line. STATUS_TOO_LARGE: beyond the
 * limits above. */
enum status template_render(const struct template *template, const struct template_input *input,
                            struct template_output *out, struct error *e);
/* The template's own texts and strings, parted by NUL: where its control tokens are found. */
struct text_span template_literals(const struct template *template);
/* Whether the template reads a variable or an attribute of this name anywhere. */
bool template_reads(const struct template *template, const char *name);
