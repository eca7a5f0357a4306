/* retrieval/extract/extract_text.c: files that are text. One with a few damaged characters is kept byte for byte, so
 * that byte ranges match the file; the tokenizer sees U+FFFD for each. With more than one damaged character in a
 * hundred it is not UTF-8 at all: it is skipped, or read as Windows-1252 where it looks so, with a note. UTF-16 with a
 * byte order mark becomes UTF-8 first, and byte ranges are those of the UTF-8. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

/* How many bytes do not belong to a character, and how many characters there are. */
static size_t count_damaged(const char *text, size_t size, size_t *characters) {
    size_t damaged = 0;
    *characters = 0;
    for (size_t i = 0; i < size; *characters += 1) {
        int n = utf8_length(text + i, size - i);
        damaged += n == 0;
        i += n ? (size_t)n : 1;
    }
    return damaged;
}

void extract_repair(struct buffer *b) {
    struct buffer repaired = {0};
    for (size_t i = 0; i < b->size;) {
        int n = utf8_length(b->data + i, b->size - i);
        buffer_append(&repaired, n ? b->data + i : "\xef\xbf\xbd", n ? (size_t)n : 3);
        i += n ? (size_t)n : 1;
    }
    buffer_free(b);
    *b = repaired;
}

void extract_drop_bom(struct buffer *b) {
    if (b->size < 3 || memcmp(b->data, "\xef\xbb\xbf", 3) != 0) return;
    memmove(b->data, b->data + 3, b->size - 3);
    b->size -= 3;
    b->data[b->size] = '\0';
}

/* The first "# heading" line, or the line above a row of = (reStructuredText, Setext). */
static void heading_title(const struct buffer *text, struct buffer *title) {
    const char *line = text->data, *text_end = text->data + text->size, *previous = NULL;
    size_t previous_size = 0;
    for (int n = 0; line < text_end && n < 50; n++) {
        const char *end = memchr(line, '\n', (size_t)(text_end - line));
        const char *next = end ? end + 1 : text_end;
        size_t size = (size_t)((end ? end : text_end) - line);
        while (size > 0 && strchr(" \t\r", line[size - 1])) size--;
        size_t hashes = strspn(line, "#"), row = strspn(line, "=");
        if (hashes == 1 && size > 2 && line[1] == ' ') {
            buffer_append(title, line + 2, size - 2);
            return;
        }
        if (size > 2 && row == size && previous_size > 0 && previous_size <= 200) {
            buffer_append(title, previous, previous_size);
            return;
        }
        previous = line;
        previous_size = row == size ? 0 : size;
        line = next;
    }
}

enum status extract_check_blank(const char *name, const struct buffer *text, struct error *e) {
    for (size_t i = 0; i < text->size; i++)
        if (!strchr(" \t\r\n\f\v", text->data[i])) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s: empty: no text in it", name);
}

enum status extract_read_text(const struct extract_file *f, struct buffer *text, size_t *damaged, size_t *characters,
                              struct error *e) {
    buffer_clear(text);
    buffer_append(text, f->bytes.text, f->bytes.size);
    bool decoded = extract_decode(text, damaged);
    if (text->size == 0) return error_set(e, STATUS_INVALID, "%s: empty", f->name);
    const char *nul = memchr(text->data, '\0', text->size);
    if (nul)
        return error_set(e, STATUS_INVALID, "%s: binary: a NUL at byte %zu%s", f->name, (size_t)(nul - text->data),
                         extract_encoding_hint(text));
    size_t invalid = count_damaged(text->data, text->size, characters);
    if (!decoded) *damaged = invalid;
    return STATUS_OK;
}

enum status extract_text(const struct extract_file *f, struct document_text *out, struct error *e) {
    size_t damaged, characters;
    struct buffer *text = &out->text;
    enum status status = extract_read_text(f, text, &damaged, &characters, e);
    if (status) return status;
    if (damaged > characters / 100 && extract_decode_western(text)) {
        damaged = 0;
        out->note = extract_western_note;
    }
    if (damaged > characters / 100)
        return error_set(e, STATUS_INVALID, "%s: not UTF-8: %zu of %zu characters are damaged%s", f->name, damaged,
                         characters, extract_encoding_hint(text));
    extract_drop_bom(text);
    if (extract_check_blank(f->name, text, e)) return STATUS_INVALID;
    heading_title(text, &out->title);
    document_mark(f->kind, (struct text_span){text->data, text->size}, &out->marks);
    return STATUS_OK;
}
