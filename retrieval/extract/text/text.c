/* retrieval/extract/text/text.c: files that are text. UTF-8 stays as it is, byte for byte; byte
 * order marks, UTF-16 and Windows-1252 become UTF-8 first, and byte ranges are those of the UTF-8.
 * A damaged character becomes U+FFFD. With more than one of them in a hundred a text is not UTF-8
 * at all: it is read as Windows-1252 where it looks so, or skipped. Whatever was guessed is told by
 * a note. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/front_matter.h"

static void count_characters(const char *text, size_t size, struct text_reading *reading) {
    for (size_t i = 0; i < size; reading->characters++) {
        int n = utf8_length(text + i, size - i);
        reading->damaged += n == 0;
        reading->beyond += n > 1;
        i += n ? (size_t)n : 1;
    }
}

void extract_repair(struct buffer *buffer) {
    struct buffer repaired = {0};
    for (size_t i = 0; i < buffer->size;) {
        int n = utf8_length(buffer->data + i, buffer->size - i);
        buffer_append(&repaired, n ? buffer->data + i : "\xef\xbf\xbd", n ? (size_t)n : 3);
        i += n ? (size_t)n : 1;
    }
    buffer_free(buffer);
    *buffer = repaired;
}

void extract_drop_bom(struct buffer *buffer) {
    if (buffer->size < 3 || memcmp(buffer->data, "\xef\xbb\xbf", 3) != 0) return;
    memmove(buffer->data, buffer->data + 3, buffer->size - 3);
    buffer->size -= 3;
    buffer->data[buffer->size] = '\0';
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

enum status extract_read_text(const struct extract_file *file, struct buffer *text,
                              struct text_reading *reading, struct error *e) {
    size_t replaced;
    *reading = (struct text_reading){0};
    buffer_clear(text);
    buffer_append(text, file->bytes.text, file->bytes.size);
    reading->decoded = extract_decode(text, &replaced, &reading->note);
    if (text->size == 0) return error_set(e, STATUS_INVALID, "%s: empty", file->name);
    const char *nul = memchr(text->data, '\0', text->size);
    if (nul)
        return error_set(e, STATUS_INVALID, "%s: binary: a NUL at byte %zu", file->name,
                         (size_t)(nul - text->data));
    count_characters(text->data, text->size, reading);
    if (reading->decoded) reading->damaged = replaced;
    return STATUS_OK;
}

/* A damaged character of a text that has whole ones beyond ASCII is damage. Without them such bytes
 * are letters of another encoding, however few they are. */
static void decode_damaged(struct buffer *text, struct text_reading *reading) {
    bool may_be_western = !reading->decoded && (!text_is_utf8(reading) || reading->beyond == 0);
    if (reading->damaged == 0) return;
    if (may_be_western && extract_decode_western(text)) {
        *reading = (struct text_reading){.characters = reading->characters, .note = NOTE_WESTERN};
    } else if (text_is_utf8(reading)) {
        extract_repair(text);
        reading->note = NOTE_REPAIRED;
    }
}

enum status extract_text(const struct extract_file *file, struct document_text *out,
                         struct error *e) {
    struct text_reading reading;
    struct buffer *text = &out->text;
    if (extract_read_text(file, text, &reading, e)) return e->status;
    decode_damaged(text, &reading);
    if (!text_is_utf8(&reading))
        return error_set(e, STATUS_INVALID,
                         "%s: not UTF-8: %zu of %zu characters are damaged; if it is Latin-1: "
                         "iconv -f ISO-8859-1 -t "
                         "UTF-8 (or another encoding)",
                         file->name, reading.damaged, reading.characters);
    out->note = extract_notes[reading.note];
    extract_drop_bom(text);
    if (extract_check_blank(file->name, text, e)) return STATUS_INVALID;
    struct text_span whole = {text->data, text->size};
    if (file->kind == DOCUMENT_MARKDOWN) front_matter_title(whole, &out->title);
    if (out->title.size == 0) heading_title(text, &out->title);
    document_mark(file->kind, whole, &out->marks);
    return STATUS_OK;
}
