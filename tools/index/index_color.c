/* tools/index/index_color.c: see index_color.h. */
#include "tools/index/index_color.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/line.h"
#include "retrieval/extract/extract.h"

static bool has_colors(FILE *out) {
    const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool is_plain = (refused && refused[0]) || terminal == NULL || strcmp(terminal, "dumb") == 0;
    return !is_plain && isatty(fileno(out)) == 1;
}

void color_line(FILE *out, enum line_color color, const char *word, const char *format, ...) {
    struct buffer line = {0};
    char *text;
    va_list args;
    va_start(args, format);
    int size = vasprintf(&text, format, args);
    va_end(args);
    CHECK(size >= 0);
    bool colored = color != COLOR_NONE && has_colors(out);
    if (colored) buffer_printf(&line, "\033[%dm", (int)color);
    line_escape(&line, word, strlen(word));
    if (colored) buffer_append_string(&line, "\033[0m");
    line_escape(&line, text, (size_t)size);
    buffer_append(&line, "\n", 1);
    fwrite(line.data, 1, line.size, out);
    buffer_free(&line);
    free(text);
}

static void color_one_note(const char *word, const char *path, const char *part,
                           struct text_span told) {
    const char *colon = path[0] || part[0] ? ": " : "";
    color_line(stderr, COLOR_CYAN, word, " %s%s%s%.*s", path, part, colon, (int)told.size,
               told.text);
}

void color_notes(const char *path, const char *part, const struct document_text *text) {
    const struct buffer *losses = &text->losses;
    if (text->note)
        color_one_note("note:", path, part, (struct text_span){text->note, strlen(text->note)});
    for (size_t at = 0; at < losses->size;) {
        const char *line = losses->data + at, *end = memchr(line, '\n', losses->size - at);
        size_t size = end ? (size_t)(end - line) : losses->size - at;
        color_one_note("lost:", path, part, (struct text_span){line, size});
        at += size + 1;
    }
}

void color_skipped(const struct error *why) {
    color_line(stderr, COLOR_YELLOW, "skipped:", " %s%s", why->text,
               why->status == STATUS_TOO_LARGE ? " (--max-file-bytes)" : "");
}
