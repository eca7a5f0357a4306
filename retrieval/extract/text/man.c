/* retrieval/extract/text/man.c: man pages, formatted by the mandoc program: a page is a program in
 * roff, and no parser of ours would do. A page may ask for other files (.so); it gets none: mandoc
 * has its input alone, in an empty directory, and requests that are spelled plainly are shown as
 * text. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/text/blocks.h"

/* Requests for files, and those that another request may follow on the same line. */

static const char *const includes[] = {"so", "mso", "soquiet", "msoquiet", "pso"};
static const char *const conditions[] = {"if", "ie", "el", "nop", "do", "while"};

static bool is_blank(char c) { return c == ' ' || c == '\t'; }
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
/* A page may choose the character that requests begin with (.cc): text begins with such a one
 * rarely. */
static bool may_control(char c) { return c > ' ' && c < 0x7f && c != '\\' && !is_letter(c); }

/* Whether text[at] may begin one of these requests. */
static bool begins_request(struct text_span text, size_t at, const char *const *names, size_t n) {
    if (at >= text.size || !may_control(text.text[at])) return false;
    for (at++; at < text.size && is_blank(text.text[at]); at++) continue;
    for (size_t i = 0; i < n; i++) {
        size_t size = strlen(names[i]), end = at + size;
        if (end <= text.size && memcmp(text.text + at, names[i], size) == 0 &&
            (end == text.size || !is_letter(text.text[end])))
            return true;
    }
    return false;
}

static bool begins_include(struct text_span line, size_t at) {
    return begins_request(line, at, includes, ARRAY_COUNT(includes));
}

/* A line with what shows a request instead of obeying it. */
static void write_shown(struct text_span line, struct buffer *out) {
    bool may_follow = begins_request(line, 0, conditions, ARRAY_COUNT(conditions));
    for (size_t i = 0; i < line.size; i++) {
        bool first =
            i == 0 || (may_follow && (is_blank(line.text[i - 1]) || line.text[i - 1] == '{'));
        if (first && begins_include(line, i)) buffer_append(out, "\\&", 2);
        buffer_append(out, line.text + i, 1);
    }
    buffer_append(out, "\n", 1);
}

/* The next line, without its end; false after the last. */
static bool take_line(struct text_span text, size_t *at, struct text_span *line) {
    if (*at >= text.size) return false;
    const char *start = text.text + *at, *end = memchr(start, '\n', text.size - *at);
    *line = (struct text_span){start, end ? (size_t)(end - start) : text.size - *at};
    *at += line->size + 1;
    return true;
}

static void show_includes(struct text_span page, struct buffer *out) {
    struct text_span line;
    for (size_t at = 0; take_line(page, &at, &line);) write_shown(line, out);
}

/* A page that is another one's name: comments, then .so. */
static bool is_redirect(struct text_span page) {
    struct text_span line;
    for (size_t at = 0; take_line(page, &at, &line);) {
        bool is_comment =
            line.size >= 3 && (line.text[0] == '.' || line.text[0] == '\'') && line.text[1] == '\\';
        if (line.size > 0 && !is_comment) return begins_include(line, 0);
    }
    return false;
}

static enum status run_mandoc(const struct extract_file *file, struct buffer *out,
                              struct error *e) {
    char *argv[] = {(char[]){"mandoc"},
                    (char[]){"-T"},
                    (char[]){"utf8"},
                    (char[]){"-O"},
                    (char[]){"width=500,indent=0"},
                    NULL};
    struct buffer page = {0};
    show_includes(file->bytes, &page);
    struct child_program program = {
        .argv = argv, .package = "mandoc", .input = {page.data, page.size}, .worst = 4};
    enum status status = child_run_program(file, &program, out, e);
    buffer_free(&page);
    return status;
}

/* "N\bN" and "_\bN" become "N", as a terminal without bold shows them: a backspace takes the
 * character before it. */
static void remove_overstrike(struct buffer *buffer) {
    size_t to = 0;
    for (size_t from = 0; from < buffer->size; from++) {
        if (buffer->data[from] != '\b') {
            buffer->data[to] = buffer->data[from];
            to++;
            continue;
        }
        while (to > 0 && ((uint8_t)buffer->data[to - 1] & 0xc0) == 0x80) to--;
        if (to > 0) to--;
    }
    buffer->size = to;
    if (buffer->data) buffer->data[to] = '\0';
}

/* Lines of text[*at, size): the next one that is not blank, without its newline; false at the end.
 */
static bool next_line(const struct buffer *text, size_t *at, struct text_span *line) {
    while (*at < text->size) {
        const char *start = text->data + *at;
        const char *end = memchr(start, '\n', text->size - *at);
        size_t size = end ? (size_t)(end - start) : text->size - *at;
        *at += size + (end != NULL);
        *line = (struct text_span){start, size};
        for (size_t i = 0; i < size; i++)
            if (start[i] != ' ') return true;
    }
    return false;
}

/* The line under the first heading, "name - what it does", without its indent and with a plain
 * dash. */
static void write_title(const struct buffer *page, size_t at, struct buffer *title) {
    struct text_span line;
    if (!next_line(page, &at, &line) || !next_line(page, &at, &line)) return;
    while (line.size > 0 && *line.text == ' ') line.text++, line.size--;
    static const char dash[] = " \xe2\x80\x93 ";
    const char *found = memmem(line.text, line.size, dash, sizeof dash - 1);
    size_t before = found ? (size_t)(found - line.text) : line.size;
    buffer_append(title, line.text, before);
    if (found) {
        buffer_append_string(title, " - ");
        buffer_append(title, found + sizeof dash - 1, line.size - before - (sizeof dash - 1));
    }
}

/* Sections begin in the first column, their parts in the fourth behind an empty line or a section;
 * nothing else does.
 */
static void mark_sections(const struct document_text *page, struct buffer *marks) {
    const struct buffer *text = &page->text;
    bool may_be_part = false;
    for (size_t at = 0; at < text->size;) {
        const char *line = text->data + at, *end = memchr(line, '\n', text->size - at);
        size_t size = end ? (size_t)(end - line) : text->size - at, indent = 0;
        while (indent < size && line[indent] == ' ') indent++;
        bool is_section = indent == 0 && size > 0,
             is_part = indent == 3 && may_be_part && size > indent;
        if (is_section || is_part)
            marks_add(marks, MARK_HEADING, is_section ? 1 : 2, at + indent, size - indent);
        may_be_part = is_section || indent == size;
        at += size + (end != NULL);
    }
}

/* The page between mandoc's header and footer lines. */
static enum status take_page(const char *path, const struct buffer *page, struct document_text *out,
                             struct error *e) {
    size_t at = 0, body;
    struct text_span line, last = {0};
    if (!next_line(page, &at, &line) || *line.text == '(')
        return error_set(e, STATUS_INVALID, "%s: not a man page: it names no title (.TH or .Dd)",
                         path);
    body = at;
    while (next_line(page, &at, &line)) last = line;
    if (last.text == NULL) return error_set(e, STATUS_INVALID, "%s: empty", path);
    size_t end = (size_t)(last.text - page->data);
    while (body < end && page->data[body] == '\n') body++;
    while (end > body && page->data[end - 1] == '\n') end--;
    buffer_append(&out->text, page->data + body, end - body);
    buffer_append(&out->text, "\n", 1);
    struct buffer headings = {0}, blocks = {0};
    mark_sections(out, &headings);
    blocks_mark_man((struct text_span){out->text.data, out->text.size}, &headings, &blocks);
    marks_join(&blocks, &headings, &out->marks);
    buffer_free(&headings);
    buffer_free(&blocks);
    write_title(page, body, &out->title);
    return STATUS_OK;
}

enum status extract_man(const struct extract_file *file, struct document_text *out,
                        struct error *e) {
    struct buffer page = {0};
    if (memchr(file->bytes.text, '\0', file->bytes.size))
        return error_set(e, STATUS_INVALID, "%s: binary: it holds a NUL", file->name);
    if (is_redirect(file->bytes))
        return error_set(
            e, STATUS_INVALID,
            "%s: only refers to another page (.so), which is indexed itself where it lies",
            file->name);
    enum status status = run_mandoc(file, &page, e);
    if (status == STATUS_OK) {
        remove_overstrike(&page);
        if (!utf8_is_valid(page.data ? page.data : "", page.size)) extract_repair(&page);
        status = take_page(file->name, &page, out, e);
    }
    buffer_free(&page);
    return status;
}
