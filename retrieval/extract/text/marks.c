/* retrieval/extract/text/marks.c: lines and headings of texts that are kept as they are. Markdown's
 * headings are CommonMark's but for those in quotes and lists; reStructuredText's are lines that a
 * row of punctuation underlines, one level for each kind of row in the order in which they come. */
#include <string.h>

#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/front_matter.h"
#include "retrieval/extract/text/blocks.h"

/* A line mark so often keeps the search for a line short in a long text. */
enum { LINE_MARK_BYTES = 1 << 16 };

struct line_reader {
    struct text_span text;
    size_t at;             /* where the next line begins */
    size_t number;         /* of the line that was read last, from 1 */
    struct text_span line; /* without its end and the blanks before it */
    size_t start;
};

static bool read_line(struct line_reader *reader) {
    if (reader->at >= reader->text.size) return false;
    const char *line = reader->text.text + reader->at,
               *end = memchr(line, '\n', reader->text.size - reader->at);
    size_t size = end ? (size_t)(end - line) : reader->text.size - reader->at;
    reader->start = reader->at;
    reader->at += size + (end != NULL);
    while (size > 0 && (line[size - 1] == ' ' || line[size - 1] == '\t' || line[size - 1] == '\r'))
        size--;
    reader->line = (struct text_span){line, size};
    reader->number++;
    return true;
}

/* How many of `c` the line begins with, from byte `from` on. */
static size_t count_run(struct text_span line, size_t from, char c) {
    size_t n = from;
    while (n < line.size && line.text[n] == c) n++;
    return n - from;
}

static size_t count_indent(struct text_span line) { return count_run(line, 0, ' '); }

/* Markdown. */

struct markdown_reader {
    struct line_reader lines;
    struct buffer *marks;
    char fence; /* '`' or '~' of the code block that is open, else 0 */
    size_t fence_size;
    size_t paragraph_start; /* of the line before, where it may be a heading that the next one
                               underlines */
    size_t paragraph_size;  /* 0: it may not */
};

/* Opens or closes a block of code; false where the line does neither. */
static bool read_fence(struct markdown_reader *reader) {
    struct text_span line = reader->lines.line;
    size_t indent = count_indent(line);
    char c = indent < line.size ? line.text[indent] : 0;
    size_t run = c == '`' || c == '~' ? count_run(line, indent, c) : 0;
    if (indent > 3 || run < 3) return false;
    if (reader->fence == 0) {
        if (c == '`' && memchr(line.text + indent + run, '`', line.size - indent - run))
            return false;
        reader->fence = c;
        reader->fence_size = run;
        return true;
    }
    if (c == reader->fence && run >= reader->fence_size && indent + run == line.size)
        reader->fence = 0;
    return true;
}

/* "## Heading ##" */
static bool read_atx(struct markdown_reader *reader) {
    struct text_span line = reader->lines.line;
    size_t indent = count_indent(line), level = count_run(line, indent, '#'),
           first = indent + level;
    if (indent > 3 || level < 1 || level > MARK_LEVELS) return false;
    if (first < line.size && line.text[first] != ' ' && line.text[first] != '\t') return false;
    size_t end = line.size, trimmed = end;
    while (first < end && (line.text[first] == ' ' || line.text[first] == '\t')) first++;
    while (trimmed > first && line.text[trimmed - 1] == '#') trimmed--;
    bool closes =
        trimmed == first || line.text[trimmed - 1] == ' ' || line.text[trimmed - 1] == '\t';
    if (closes) end = trimmed;
    while (end > first && (line.text[end - 1] == ' ' || line.text[end - 1] == '\t')) end--;
    if (end > first)
        marks_add(reader->marks, MARK_HEADING, (int)level, reader->lines.start + first,
                  end - first);
    return true;
}

/* A row of = or - under a paragraph's line. */
static bool read_setext(struct markdown_reader *reader) {
    struct text_span line = reader->lines.line;
    size_t indent = count_indent(line);
    char c = indent < line.size ? line.text[indent] : 0;
    if (reader->paragraph_size == 0 || indent > 3 || (c != '=' && c != '-')) return false;
    if (indent + count_run(line, indent, c) != line.size) return false;
    marks_add(reader->marks, MARK_HEADING, c == '=' ? 1 : 2, reader->paragraph_start,
              reader->paragraph_size);
    return true;
}

/* A list, a quote or a table is no heading, whatever row comes under it. */
static bool may_be_heading(struct text_span line) {
    size_t indent = count_indent(line);
    return indent < 4 && indent < line.size && line.text[indent] != '\0' &&
           !strchr("-*+>|\t", line.text[indent]);
}

/* Settings at the very beginning are no paragraph. */
static void skip_front_matter(struct line_reader *lines) {
    size_t size = front_matter_size(lines->text);
    while (lines->at < size && read_line(lines)) continue;
}

static void mark_markdown(struct text_span text, struct buffer *marks) {
    struct markdown_reader reader = {.lines = {.text = text}, .marks = marks};
    skip_front_matter(&reader.lines);
    while (read_line(&reader.lines)) {
        bool fenced = read_fence(&reader) || reader.fence != 0;
        bool is_heading = !fenced && (read_setext(&reader) || read_atx(&reader));
        size_t indent = count_indent(reader.lines.line);
        reader.paragraph_size = 0;
        if (fenced || is_heading || !may_be_heading(reader.lines.line)) continue;
        reader.paragraph_start = reader.lines.start + indent;
        reader.paragraph_size = reader.lines.line.size - indent;
    }
}

/* reStructuredText. */

/* The character that a whole line consists of, at least `least` of them; 0: it is no row. */
static char row_of(struct text_span line, size_t least) {
    static const char marks[] = "=-~^\"'`#*+.:_<>$%&!,/;?@\\|(){}[]";
    char c = line.size > 0 ? line.text[0] : 0;
    if (c == 0 || line.size < least || !strchr(marks, c)) return 0;
    return count_run(line, 0, c) == line.size ? c : 0;
}

/* The level of a row, in the order in which rows come; 0: there are too many kinds. */
static int level_of_row(char rows[MARK_LEVELS + 1], char row) {
    for (int i = 0; i < MARK_LEVELS; i++) {
        if (rows[i] == 0) rows[i] = row;
        if (rows[i] == row) return i + 1;
    }
    return 0;
}

static void mark_rst(struct text_span text, struct buffer *marks) {
    struct line_reader lines = {.text = text};
    struct text_span before = {0}; /* the line before, which a row may underline */
    size_t before_start = 0;
    char rows[MARK_LEVELS + 1] = {0};
    while (read_line(&lines)) {
        char row = row_of(lines.line, 3);
        bool underlines = row && before.size > 0 && lines.line.size >= before.size / 2;
        int level = underlines ? level_of_row(rows, row) : 0;
        if (level > 0) marks_add(marks, MARK_HEADING, level, before_start, before.size);
        size_t indent = count_indent(lines.line);
        before = (struct text_span){lines.line.text + indent, row ? 0 : lines.line.size - indent};
        before_start = lines.start + indent;
    }
}

/* Lines. */

/* Marks the first line, and one of many behind it, among the marks that are there already. */
static void mark_lines(struct text_span text, const struct buffer *others, struct buffer *marks) {
    const struct mark *other = (const struct mark *)(const void *)others->data;
    size_t n = others->size / sizeof *other, next = 0, marked = 0;
    struct line_reader lines = {.text = text};
    while (read_line(&lines)) {
        if (lines.number > 1 && lines.start - marked < LINE_MARK_BYTES) continue;
        for (; next < n && other[next].at < lines.start; next++)
            buffer_append(marks, &other[next], sizeof *other);
        marks_add(marks, MARK_LINE, 0, lines.start, lines.number);
        marked = lines.start;
    }
    for (; next < n; next++) buffer_append(marks, &other[next], sizeof *other);
}

void document_mark(enum document_kind kind, struct text_span text, struct buffer *marks) {
    struct buffer headings = {0}, blocks = {0}, all = {0};
    if (kind == DOCUMENT_MARKDOWN) mark_markdown(text, &headings);
    if (kind == DOCUMENT_RST) mark_rst(text, &headings);
    blocks_mark(kind, text, &headings, &blocks);
    marks_join(&blocks, &headings, &all);
    mark_lines(text, &all, marks);
    buffer_free(&headings);
    buffer_free(&blocks);
    buffer_free(&all);
}
