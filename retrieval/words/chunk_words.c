/* retrieval/words/chunk_words.c: see chunk_words.h. */
#include "retrieval/words/chunk_words.h"

static void append_line(struct buffer *out, struct text_span text) {
    if (text.size == 0) return;
    buffer_append_string(out, "\n");
    buffer_append(out, text.text, text.size);
}

/* Takes the headings that stand before byte `at`. A chunk has those that it begins with itself. */
static void pass_marks(struct chunk_words_reader *reader, size_t at) {
    struct mark_span marks = reader->document->marks;
    for (; reader->next < marks.n; reader->next++) {
        struct mark mark = mark_read(marks, reader->next);
        if (mark.at >= at) return;
        if (mark.kind == MARK_HEADING)
            heading_path_pass(&reader->headings, &mark, reader->document->text);
    }
}

struct text_span chunk_words_read(struct chunk_words_reader *reader, int chunk) {
    const struct chunk_range *range = &reader->document->chunks[chunk];
    pass_marks(reader, range->start);
    buffer_clear(&reader->text);
    buffer_append(&reader->text, reader->document->text.text + range->start,
                  range->end - range->start);
    append_line(&reader->text, document_title(reader->document));
    for (int level = 1; level <= MARK_LEVELS; level++)
        append_line(&reader->text, reader->headings.of_level[level]);
    return (struct text_span){reader->text.data, reader->text.size};
}
