/* retro/chat/chat_plain.c: a template for models that bring none. See chat.h. */
#include <string.h>

#include "retro/chat/chat_private.h"

/* Question and answer by turns, as text that models without conversations go on with; the system's
 * words stand in front. Nothing but bos_token is a control token. */
static const char plain_source[] =
    "{{ bos_token }}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'system' or message.role == 'developer' %}\n"
    "{{- message.content | trim + '\\n\\n' }}\n"
    "{%- elif message.role == 'user' %}\n"
    "{{- 'Question: ' + message.content | trim + '\\n' }}\n"
    "{%- elif message.role == 'assistant' and message.content is string %}\n"
    "{{- 'Answer: ' + message.content | trim + '\\n' }}\n"
    "{%- elif message.role == 'assistant' %}\n"
    "{{- raise_exception('the plain chat template knows no calls of functions') }}\n"
    "{%- else %}\n"
    "{{- raise_exception('the plain chat template knows no role ' + message.role) }}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ 'Answer:' }}{% endif %}";

/* The text of the token that a tokenizer puts before every text; empty: it puts none there. */
static enum status find_beginning(const struct tokenizer *tokenizer, struct buffer *beginning,
                                  struct error *e) {
    struct tokens ids = {0};
    enum status status = tokenizer_encode(tokenizer, "", 0, TOKENIZER_ADD_SPECIAL, &ids, e);
    if (status == STATUS_OK && ids.n > tokenizer_suffix(tokenizer) &&
        ids.ids[0] == tokenizer_bos(tokenizer))
        tokenizer_decode(tokenizer, ids.ids, 1, false, beginning);
    tokens_free(&ids);
    return status;
}

enum status chat_open_plain(struct chat **out, const struct tokenizer *tokenizer, struct error *e) {
    const struct text_span source = {plain_source, strlen(plain_source)};
    struct buffer beginning = {0};
    *out = NULL;
    enum status status = find_beginning(tokenizer, &beginning, e);
    if (status == STATUS_OK)
        status = chat_open_text(out, source, beginning.size > 0 ? beginning.data : "", NULL, e);
    if (status == STATUS_OK) (*out)->plain = true;
    buffer_free(&beginning);
    return status;
}

bool chat_is_plain(const struct chat *chat) { return chat->plain; }

const char *chat_stop(const struct chat *chat) { return chat->plain ? "\nQuestion:" : NULL; }
