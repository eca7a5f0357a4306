/* retro/chat/chat_pictures.c: the words that a processor puts in the place of a template's mark for
 * a picture. Gemma 3's templates write <start_of_image>, and its processor reads line ends, that
 * token, the picture and <end_of_image> there; Gemma 4's templates write the picture's token, and
 * its processor reads it between two others (processing_gemma3.py and processing_gemma4.py of
 * transformers). */
#include <stdlib.h>
#include <string.h>

#include "retro/chat/chat_private.h"

/* A token of tokenizer_config.json: a text, or an object that says "content"; or one of its
 * extra_special_tokens. Text NULL: there is none. */
static struct text_span read_token(const struct json *config, const char *name) {
    const struct json *value = json_member(config, name);
    if (json_is_absent(value))
        value = json_member(json_member(config, "extra_special_tokens"), name);
    if (json_kind(value) == JSON_KIND_OBJECT) value = json_member(value, "content");
    return json_text(value);
}

/* The words of a processor that its templates do not write. */
static const struct picture_processor {
    const char *class_name;
    const char *mark;   /* the token that templates write for a picture, by its name */
    const char *around; /* text on either side of what stands for the picture */
} processors[] = {{"Gemma3Processor", "boi_token", "\n\n"}, {"Gemma4Processor", "image_token", ""}};

static const struct picture_processor *find_processor(const struct json *file) {
    const struct json *name = json_member(file, "processor_class");
    for (size_t i = 0; i < ARRAY_COUNT(processors); i++)
        if (json_text_is(name, processors[i].class_name)) return &processors[i];
    return NULL;
}

void chat_pictures_read(struct chat *chat, const struct json *file, const struct json *config) {
    const struct picture_processor *processor = find_processor(file);
    struct text_span begin = read_token(config, "boi_token"),
                     picture = read_token(config, "image_token"),
                     end = read_token(config, "eoi_token");
    struct buffer *words = &chat->picture_words;
    if (processor == NULL) return;
    if (begin.size == 0 || picture.size == 0 || end.size == 0) return; /* of texts alone */
    struct text_span mark = read_token(config, processor->mark);
    size_t n = strlen(processor->around);
    chat->picture_mark = xstrndup(mark.text, mark.size);
    buffer_append(words, processor->around, n);
    buffer_append(words, begin.text, begin.size);
    buffer_append(words, picture.text, picture.size);
    buffer_append(words, end.text, end.size);
    buffer_append(words, processor->around, n);
}

static bool is_own(const struct buffer *marks, size_t at, size_t n) {
    for (size_t i = at; i < at + n; i++)
        if (marks->data[i]) return false;
    return true;
}

static void append_piece(struct template_output *to, const struct template_output *from, size_t at,
                         size_t n) {
    buffer_append(&to->text, from->text.data + at, n);
    buffer_append(&to->marks, from->marks.data + at, n);
}

void chat_pictures_write(const struct chat *chat, size_t from, struct template_output *text) {
    const struct buffer *words = &chat->picture_words;
    struct template_output out = {0};
    size_t n = chat->picture_mark ? strlen(chat->picture_mark) : 0, done = 0, at = from;
    char *own = xcalloc(words->size + 1, 1);
    while (n > 0 && at + n <= text->text.size) {
        const char *mark =
            memmem(text->text.data + at, text->text.size - at, chat->picture_mark, n);
        if (mark == NULL) break;
        at = (size_t)(mark - text->text.data) + n;
        if (!is_own(&text->marks, at - n, n)) continue;
        append_piece(&out, text, done, at - n - done);
        buffer_append(&out.text, words->data, words->size);
        buffer_append(&out.marks, own, words->size);
        done = at;
    }
    if (done > 0) {
        append_piece(&out, text, done, text->text.size - done);
        template_output_free(text);
        *text = out;
    }
    free(own);
}
