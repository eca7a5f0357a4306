/* retrieval/extract/model/model_answer.c: see model_answer.h. */
#include "retrieval/extract/model/model_answer.h"

#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"
#include "config/json/json_value.h"

bool markdown_is_sound(const struct buffer *markdown) {
    size_t blanks = 0;
    while (blanks < markdown->size && strchr(" \t\r\n", markdown->data[blanks])) blanks++;
    return blanks < markdown->size && memchr(markdown->data, '\0', markdown->size) == NULL &&
           utf8_is_valid(markdown->data, markdown->size);
}

static struct text_span skip_bytes(struct text_span text, size_t n) {
    return (struct text_span){text.text + n, text.size - n};
}

/* Models like to put all of their Markdown between fences, and may begin with a line that would
 * begin front matter. */
static struct text_span strip(struct text_span text) {
    while (text.size > 0 && is_blank(text.text[text.size - 1])) text.size--;
    while (text.size > 0 && is_blank(text.text[0])) text = skip_bytes(text, 1);
    const char *line = memchr(text.text, '\n', text.size);
    bool fenced = line && text.size > 6 && memcmp(text.text, "```", 3) == 0 &&
                  memcmp(text.text + text.size - 4, "\n```", 4) == 0 &&
                  line < text.text + text.size - 4;
    if (fenced) {
        size_t head = (size_t)(line + 1 - text.text);
        text = (struct text_span){line + 1, text.size - head - 4};
    }
    while (text.size >= 4 && memcmp(text.text, "---\n", 4) == 0) text = skip_bytes(text, 4);
    return text;
}

enum status model_answer_read(struct text_span answer, int tokens, struct buffer *markdown,
                              struct error *e) {
    struct json *said = NULL;
    if (json_parse(&said, answer.text ? answer : (struct text_span){"", 0}, "answer", e))
        return error_set(e, STATUS_INVALID, "its server's answer is no JSON");
    const struct json *choice = json_item(json_member(said, "choices"), 0);
    const struct json *content = json_member(json_member(choice, "message"), "content");
    bool cut = json_text_is(json_member(choice, "finish_reason"), "length");
    if (json_is_text(content)) {
        struct text_span stripped = strip(json_text(content));
        buffer_append(markdown, stripped.text, stripped.size);
    }
    json_close(said);
    if (cut)
        return error_set(e, STATUS_INVALID, "its answer ended at %d tokens (extract.model_tokens)",
                         tokens);
    if (markdown->size > MOST_MARKDOWN)
        return error_set(e, STATUS_INVALID, "its answer has more than %d bytes", MOST_MARKDOWN);
    return markdown_is_sound(markdown) ? STATUS_OK
                                       : error_set(e, STATUS_INVALID, "its answer holds no text");
}
