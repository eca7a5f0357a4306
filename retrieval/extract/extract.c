/* retrieval/extract/extract.c: files to plain text: which kind a file is, and what every kind must satisfy. A text file
 * with a few damaged characters is kept byte for byte, so that byte ranges match the file; the tokenizer sees U+FFFD
 * for each. With more than one damaged character in a hundred it is not UTF-8 at all, and skipped. UTF-16 with a byte
 * order mark becomes UTF-8 first, and byte ranges are those of the UTF-8. */
#include "retrieval/extract/extract.h"

#include <string.h>
#include <strings.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

/* name.1 .. name.9, with a section suffix like .3ssl or .1p, optionally .gz. */
static bool is_man_name(const char *name) {
    char copy[256];
    size_t size = strlen(name);
    if (size >= sizeof copy) return false;
    memcpy(copy, name, size + 1);
    if (size > 3 && strcmp(copy + size - 3, ".gz") == 0) copy[size - 3] = '\0';
    const char *dot = strrchr(copy, '.');
    if (dot == NULL || dot == copy || dot[1] < '1' || dot[1] > '9') return false;
    const char *suffix = dot + 2;
    size_t letters = strspn(suffix, "abcdefghijklmnopqrstuvwxyz0123456789");
    bool letter_first = *suffix == '\0' || (*suffix >= 'a' && *suffix <= 'z');
    return suffix[letters] == '\0' && letters <= 8 && letter_first;
}

/* Ends of names, without the dot. Text is kept as it is, and so is source code. */
static const char *const text_suffixes[] = {
    "txt", "text", "log",     "c",    "h",     "cc",    "cpp",   "cxx",   "hpp", "hh",  "cu",   "cs",
    "go",  "java", "js",      "mjs",  "ts",    "jsx",   "tsx",   "py",    "rb",  "rs",  "sh",   "sql",
    "pl",  "pm",   "php",     "lua",  "kt",    "swift", "scala", "r",     "jl",  "hs",  "ml",   "el",
    "clj", "erl",  "ex",      "dart", "zig",   "yaml",  "yml",   "toml",  "ini", "cfg", "conf", "tex",
    "org", "adoc", "textile", "diff", "patch", "cmake", "mk",    "proto", "vim"};

static const struct {
    const char *suffix;
    enum document_kind kind;
} other_suffixes[] = {{"md", DOCUMENT_MARKDOWN}, {"markdown", DOCUMENT_MARKDOWN}, {"rst", DOCUMENT_RST},
                      {"html", DOCUMENT_HTML},   {"htm", DOCUMENT_HTML},          {"xhtml", DOCUMENT_HTML}};

enum document_kind document_kind(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < ARRAY_COUNT(text_suffixes); i++)
        if (strcasecmp(dot + 1, text_suffixes[i]) == 0) return DOCUMENT_TEXT;
    for (size_t i = 0; dot && i < ARRAY_COUNT(other_suffixes); i++)
        if (strcasecmp(dot + 1, other_suffixes[i].suffix) == 0) return other_suffixes[i].kind;
    return is_man_name(name) ? DOCUMENT_MAN : DOCUMENT_UNKNOWN;
}

void document_text_clear(struct document_text *d) {
    buffer_clear(&d->text);
    buffer_clear(&d->title);
    buffer_clear(&d->marks);
}

void document_text_free(struct document_text *d) {
    buffer_free(&d->text);
    buffer_free(&d->title);
    buffer_free(&d->marks);
}

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

/* In place; each damaged byte becomes U+FFFD. */
static void repair(struct buffer *b) {
    struct buffer repaired = {0};
    for (size_t i = 0; i < b->size;) {
        int n = utf8_length(b->data + i, b->size - i);
        buffer_append(&repaired, n ? b->data + i : "\xef\xbf\xbd", n ? (size_t)n : 3);
        i += n ? (size_t)n : 1;
    }
    buffer_free(b);
    *b = repaired;
}

static void drop_bom(struct buffer *b) {
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

static enum status check_blank(const char *path, const struct buffer *text, struct error *e) {
    for (size_t i = 0; i < text->size; i++)
        if (!strchr(" \t\r\n\f\v", text->data[i])) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s: empty: no text in it", path);
}

static enum status read_checked(const char *path, size_t limit, struct buffer *bytes, size_t *damaged,
                                size_t *characters, struct error *e) {
    enum status status = file_read(path, limit, bytes, e);
    if (status) return status;
    if (bytes->size == 0) return error_set(e, STATUS_INVALID, "%s: empty", path);
    bool decoded = extract_decode(bytes, damaged);
    if (bytes->size == 0) return error_set(e, STATUS_INVALID, "%s: empty", path);
    const char *nul = memchr(bytes->data, '\0', bytes->size);
    if (nul)
        return error_set(e, STATUS_INVALID, "%s: binary: a NUL at byte %zu%s", path, (size_t)(nul - bytes->data),
                         extract_encoding_hint(bytes));
    size_t invalid = count_damaged(bytes->data, bytes->size, characters);
    if (!decoded) *damaged = invalid;
    return STATUS_OK;
}

static enum status extract_text(const char *path, enum document_kind kind, size_t limit, struct document_text *out,
                                struct error *e) {
    size_t damaged, characters;
    struct buffer *text = &out->text;
    enum status status = read_checked(path, limit, text, &damaged, &characters, e);
    if (status) return status;
    if (damaged > characters / 100)
        return error_set(e, STATUS_INVALID, "%s: not UTF-8: %zu of %zu characters are damaged%s", path, damaged,
                         characters, extract_encoding_hint(text));
    drop_bom(text);
    if (check_blank(path, text, e)) return STATUS_INVALID;
    heading_title(text, &out->title);
    document_mark(kind, (struct text_span){text->data, text->size}, &out->marks);
    return STATUS_OK;
}

static enum status extract_html_file(const char *path, size_t limit, struct document_text *out, struct error *e) {
    size_t damaged, characters;
    struct buffer html = {0};
    enum status status = read_checked(path, limit, &html, &damaged, &characters, e);
    if (status == STATUS_OK) {
        /* A page in another encoding says so; one that is UTF-8 apart from a few bytes is UTF-8, whatever it says. */
        bool is_utf8 = damaged <= characters / 100;
        if (is_utf8 && damaged > 0) repair(&html);
        drop_bom(&html);
        status = extract_html(path, (struct text_span){html.data, html.size}, is_utf8, out, e);
    }
    buffer_free(&html);
    return status ? status : check_blank(path, &out->text, e);
}

enum status document_extract(const char *path, enum document_kind kind, size_t limit, struct document_text *out,
                             struct error *e) {
    document_text_clear(out);
    enum status status = STATUS_INTERNAL;
    switch (kind) {
        case DOCUMENT_TEXT:
        case DOCUMENT_MARKDOWN:
        case DOCUMENT_RST: status = extract_text(path, kind, limit, out, e); break;
        case DOCUMENT_HTML: status = extract_html_file(path, limit, out, e); break;
        case DOCUMENT_MAN:
            status = extract_man(path, limit, out, e);
            if (status == STATUS_OK) status = check_blank(path, &out->text, e);
            break;
        case DOCUMENT_UNKNOWN:
        case DOCUMENT_KINDS:
            return error_set(e, STATUS_UNSUPPORTED,
                             "%s: not a known kind of document; text, source code, Markdown, reStructuredText, HTML "
                             "and man pages are",
                             path);
    }
    if (status == STATUS_OK && out->title.data == NULL) buffer_append(&out->title, "", 0);
    return status;
}
