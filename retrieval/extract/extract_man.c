/* retrieval/extract/extract_man.c: man pages, formatted by the mandoc program: a page is a program in roff, and no
 * parser of ours would do. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

/* mandoc opens the file itself, since a packed page is known by its name. */
static enum status run_mandoc(const struct extract_file *f, struct buffer *out, struct error *e) {
    struct buffer path = {0};
    /* A name that begins with a dash must not become an option. */
    if (f->path) buffer_printf(&path, "%s%s", f->path[0] == '-' ? "./" : "", f->path);
    char *argv[] = {(char[]){"mandoc"},
                    (char[]){"-T"},
                    (char[]){"utf8"},
                    (char[]){"-O"},
                    (char[]){"width=500,indent=0"},
                    path.data,
                    NULL};
    struct child_program program = {
        .argv = argv, .package = "mandoc", .name = f->name, .limits = f->limits, .worst = 4};
    if (f->path == NULL) program.input = f->bytes;
    enum status status = child_run_program(&program, out, e);
    buffer_free(&path);
    return status;
}

/* "N\bN" and "_\bN" become "N", as a terminal without bold shows them: a backspace takes the character before it. */
static void remove_overstrike(struct buffer *b) {
    size_t to = 0;
    for (size_t from = 0; from < b->size; from++) {
        if (b->data[from] != '\b') {
            b->data[to] = b->data[from];
            to++;
            continue;
        }
        while (to > 0 && ((uint8_t)b->data[to - 1] & 0xc0) == 0x80) to--;
        if (to > 0) to--;
    }
    b->size = to;
    if (b->data) b->data[to] = '\0';
}

/* Lines of text[*at, size): the next one that is not blank, without its newline; false at the end. */
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

/* The line under the first heading, "name - what it does", without its indent and with a plain dash. */
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

/* Sections begin in the first column, their parts in the fourth behind an empty line or a section; nothing else does.
 */
static void mark_sections(const struct document_text *page, struct buffer *marks) {
    const struct buffer *text = &page->text;
    bool may_be_part = false;
    for (size_t at = 0; at < text->size;) {
        const char *line = text->data + at, *end = memchr(line, '\n', text->size - at);
        size_t size = end ? (size_t)(end - line) : text->size - at, indent = 0;
        while (indent < size && line[indent] == ' ') indent++;
        bool is_section = indent == 0 && size > 0, is_part = indent == 3 && may_be_part && size > indent;
        if (is_section || is_part) marks_add(marks, MARK_HEADING, is_section ? 1 : 2, at + indent, size - indent);
        may_be_part = is_section || indent == size;
        at += size + (end != NULL);
    }
}

/* The page between mandoc's header and footer lines. */
static enum status take_page(const char *path, const struct buffer *page, struct document_text *out, struct error *e) {
    size_t at = 0, body;
    struct text_span line, last = {0};
    if (!next_line(page, &at, &line) || *line.text == '(')
        return error_set(e, STATUS_INVALID, "%s: not a man page: it names no title (.TH or .Dd)", path);
    body = at;
    while (next_line(page, &at, &line)) last = line;
    if (last.text == NULL) return error_set(e, STATUS_INVALID, "%s: empty", path);
    size_t end = (size_t)(last.text - page->data);
    while (body < end && page->data[body] == '\n') body++;
    while (end > body && page->data[end - 1] == '\n') end--;
    buffer_append(&out->text, page->data + body, end - body);
    buffer_append(&out->text, "\n", 1);
    mark_sections(out, &out->marks);
    write_title(page, body, &out->title);
    return STATUS_OK;
}

/* mandoc prints "See the file NAME." under an empty title for a page that is a .so line and whose target is elsewhere.
 */
static bool is_redirect(const struct buffer *page) {
    size_t at = 0;
    struct text_span line;
    return next_line(page, &at, &line) && *line.text == '(' && next_line(page, &at, &line) && line.size > 13 &&
           memcmp(line.text, "See the file ", 13) == 0;
}

enum status extract_man(const struct extract_file *f, struct document_text *out, struct error *e) {
    struct buffer page = {0};
    size_t size = strlen(f->name);
    bool packed = size > 3 && strcmp(f->name + size - 3, ".gz") == 0;
    if (!packed && memchr(f->bytes.text, '\0', f->bytes.size))
        return error_set(e, STATUS_INVALID, "%s: binary: it holds a NUL", f->name);
    if (packed && f->path == NULL)
        return error_set(e, STATUS_UNSUPPORTED, "%s: a packed man page is read from a file alone", f->name);
    enum status status = run_mandoc(f, &page, e);
    if (status == STATUS_OK) {
        remove_overstrike(&page);
        if (!utf8_is_valid(page.data ? page.data : "", page.size)) extract_repair(&page);
        status = is_redirect(&page) ? error_set(e, STATUS_INVALID,
                                                "%s: only refers to another page (.so), which is indexed itself "
                                                "where it lies",
                                                f->name)
                                    : take_page(f->name, &page, out, e);
    }
    buffer_free(&page);
    return status;
}
