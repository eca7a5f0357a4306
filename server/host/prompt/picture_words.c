/* server/host/prompt/picture_words.c: see picture_words.h. */
#include "server/host/prompt/picture_words.h"

#include <string.h>

static const char probe[] = "probeoftext";
static const char with_picture[] =
    "[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, {\"type\": \"text\", "
    "\"text\": \"probeoftext\"}]}]";
static const char without[] =
    "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"probeoftext\"}]}]";

/* The text of such a conversation follows what the template writes of itself, *before bytes. */
static enum status render(const struct chat *chat, struct text_span conversation,
                          struct template_output *out, size_t *before, struct error *e) {
    struct json *messages;
    if (json_parse(&messages, conversation, "messages", e)) return e->status;
    struct chat_input in = {.messages = messages, .now = chat_now()};
    enum status status = chat_render(chat, &in, out, e);
    json_close(messages);
    if (status) return status;
    const char *at =
        out->text.size ? memmem(out->text.data, out->text.size, probe, sizeof probe - 1) : NULL;
    if (at == NULL)
        return error_set(e, STATUS_UNSUPPORTED, "the chat template leaves out a message of parts");
    *before = (size_t)(at - out->text.data);
    return STATUS_OK;
}

static enum status cut_words(struct picture_words *words, const struct template_output *with,
                             size_t with_before, const struct template_output *alone,
                             size_t alone_before, struct error *e) {
    bool differ =
        with_before <= alone_before || memcmp(with->text.data, alone->text.data, alone_before) != 0;
    if (differ)
        return error_set(e, STATUS_UNSUPPORTED,
                         "the chat template writes a picture elsewhere than before its text");
    buffer_append(&words->text, with->text.data + alone_before, with_before - alone_before);
    return STATUS_OK;
}

static enum status encode_words(struct picture_words *words, const struct tokenizer *tokenizer,
                                int32_t picture_id, struct error *e) {
    int n = 0;
    if (tokenizer_encode(tokenizer, words->text.data, words->text.size, TOKENIZER_PARSE_SPECIAL,
                         &words->ids, e))
        return e->status;
    for (int i = 0; i < words->ids.n; i++) n += words->ids.ids[i] == picture_id;
    if (n == 1) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "the words of the chat template for a picture have its token %d times", n);
}

enum status picture_words_open(struct picture_words *out, const struct chat *chat,
                               const struct tokenizer *tokenizer, int32_t picture_id,
                               struct error *e) {
    struct template_output with = {0}, alone = {0};
    size_t with_before, alone_before;
    *out = (struct picture_words){0};
    enum status status = render(chat, (struct text_span){with_picture, sizeof with_picture - 1},
                                &with, &with_before, e);
    if (status == STATUS_OK)
        status =
            render(chat, (struct text_span){without, sizeof without - 1}, &alone, &alone_before, e);
    if (status == STATUS_OK) status = cut_words(out, &with, with_before, &alone, alone_before, e);
    if (status == STATUS_OK) status = encode_words(out, tokenizer, picture_id, e);
    template_output_free(&with);
    template_output_free(&alone);
    if (status) picture_words_free(out);
    return status;
}

void picture_words_free(struct picture_words *words) {
    buffer_free(&words->text);
    tokens_free(&words->ids);
    *words = (struct picture_words){0};
}
