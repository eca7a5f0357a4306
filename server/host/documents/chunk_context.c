/* server/host/documents/chunk_context.c: see chunk_context.h. */
#include "server/host/documents/chunk_context.h"

#include "config/base/utf8.h"

/* Parts. */

/* The first tokens of a text, at most `most`, as a part. Texts that cannot be counted are none. */
static struct context_part make_part(struct context_reader *reader, struct text_span text,
                                     int most) {
    struct tokens *tokens = &reader->tokens;
    struct error e;
    while (text.size > 0 && is_blank(text.text[0])) text.text++, text.size--;
    while (text.size > 0 && is_blank(text.text[text.size - 1])) text.size--;
    tokens->n = 0;
    if (text.size == 0 ||
        tokenizer_encode(reader->tokenizer, text.text, text.size, TOKENIZER_PLAIN, tokens, &e))
        return (struct context_part){0};
    if (tokens->n > most) text.size = utf8_prefix(text.text, text.size, tokens->starts[most]);
    return (struct context_part){text, min_int(tokens->n, most)};
}

static struct text_span text_between(const struct context_reader *reader, uint32_t from,
                                     size_t end) {
    return (struct text_span){reader->document->text.text + from, end - from};
}

static void pass_heading(struct context_reader *reader, const struct mark *mark) {
    struct text_span text = text_between(reader, mark->at, (size_t)mark->at + mark->value);
    reader->headings[mark->level] = make_part(reader, text, reader->most / 2);
    for (int level = mark->level + 1; level <= MARK_LEVELS; level++)
        reader->headings[level] = (struct context_part){0};
    reader->last_heading = mark->at;
}

/* Where the block of the mark of that number ends. */
static size_t block_end(const struct context_reader *reader, uint32_t i) {
    struct mark_span marks = reader->document->marks;
    for (i++; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.kind == MARK_BLOCK) return mark.at;
    }
    return reader->document->text.size;
}

/* A table's head stands over its rows alone. */
static void pass_block(struct context_reader *reader, const struct mark *mark) {
    if (mark->level == BLOCK_TABLE_HEAD) {
        size_t end = block_end(reader, reader->next);
        reader->head = make_part(reader, text_between(reader, mark->at, end), reader->most / 2);
    } else if (mark->level != BLOCK_TABLE_ROW) {
        reader->head = (struct context_part){0};
    }
}

/* Takes what stands before byte `at`. */
static void pass_marks(struct context_reader *reader, size_t at) {
    struct mark_span marks = reader->document->marks;
    for (; reader->next < marks.n; reader->next++) {
        struct mark mark = mark_read(marks, reader->next);
        if (mark.at >= at) return;
        if (mark.kind == MARK_HEADING) pass_heading(reader, &mark);
        if (mark.kind == MARK_BLOCK) pass_block(reader, &mark);
    }
}

/* Writing. */

/* The first line of a chunk, as far as it is known. */
struct chunk_begin {
    int level; /* of the heading that it is; else beyond all */
    bool row;  /* it is of a table */
};

static struct chunk_begin look_ahead(const struct context_reader *reader, size_t start,
                                     size_t end) {
    struct mark_span marks = reader->document->marks;
    struct text_span text = reader->document->text;
    struct chunk_begin begin = {.level = MARK_LEVELS + 1, .row = true};
    const char *newline = memchr(text.text + start, '\n', end - start);
    size_t line = newline ? (size_t)(newline - text.text) : end;
    for (uint32_t i = reader->next; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.at > line) break;
        if (mark.kind == MARK_HEADING) begin.level = min_int(begin.level, mark.level);
        if (mark.kind == MARK_BLOCK && mark.at == start) begin.row = mark.level == BLOCK_TABLE_ROW;
    }
    return begin;
}

static bool parts_equal(const struct context_part *left, const struct context_part *right) {
    return span_equals(left->text, right->text);
}

/* Chooses parts that fit: the title and the innermost heading first, then the others outwards. */
static int choose_parts(const struct context_reader *reader, struct chunk_begin begin,
                        const struct context_part *chosen[MARK_LEVELS + 1]) {
    const struct context_part *inner[MARK_LEVELS];
    int n = 0, n_inner = 0, left = reader->most - reader->title.n_tokens;
    if (begin.row) left -= reader->head.n_tokens;
    for (int level = min_int(begin.level, MARK_LEVELS + 1) - 1; level >= 1; level--) {
        const struct context_part *part = &reader->headings[level];
        if (part->text.size == 0 || part->n_tokens > left || parts_equal(part, &reader->title))
            continue;
        left -= part->n_tokens;
        inner[n_inner] = part;
        n_inner++;
    }
    if (reader->title.text.size > 0) {
        chosen[n] = &reader->title;
        n++;
    }
    while (n_inner > 0) {
        n_inner--;
        chosen[n] = inner[n_inner];
        n++;
    }
    return n;
}

/* A part on one line. */
static void append_part(struct buffer *out, struct text_span text) {
    for (size_t i = 0; i < text.size; i++) {
        bool blank = is_blank(text.text[i]);
        if (!blank) buffer_append(out, text.text + i, 1);
        if (blank && !is_blank(text.text[i + 1])) buffer_append(out, " ", 1);
    }
}

void context_read(struct context_reader *reader, const struct chunk_range *chunk,
                  struct buffer *out) {
    const struct context_part *parts[MARK_LEVELS + 1];
    struct text_span text = reader->document->text;
    size_t start = chunk->start;
    if (reader->most == 0) return;
    if (reader->title.text.text == NULL)
        reader->title = make_part(reader, document_title(reader->document), reader->most / 2);
    while (start < chunk->end && is_blank(text.text[start])) start++;
    pass_marks(reader, start);

    struct chunk_begin begin = look_ahead(reader, start, chunk->end);
    int n = choose_parts(reader, begin, parts);
    for (int i = 0; i < n; i++) {
        append_part(out, parts[i]->text);
        buffer_append_string(out, i + 1 < n ? ": " : "\n");
    }
    if (!begin.row || reader->head.text.size == 0) return;
    append_part(out, reader->head.text);
    buffer_append_string(out, "\n");
}
