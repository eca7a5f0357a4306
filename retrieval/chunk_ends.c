/* retrieval/chunk_ends.c: see chunk_ends.h. Each token gets a level, which says how well a chunk
 * begins with it. Then each chunk ends at the token that is worth most among those that it may end
 * at. */
#include "retrieval/chunk_ends.h"

#include <stdlib.h>

#include "config/text/sentences.h"

/* The place where a token would begin a chunk; the better the higher. */
enum break_level {
    BREAK_NEVER, /* within a heading */
    BREAK_TORN,  /* within a word, a row, an item, a line of code */
    BREAK_AFTER, /* with what stands under a heading */
    BREAK_WORD,
    BREAK_LINE,
    BREAK_SENTENCE,
    BREAK_BLOCK,
    BREAK_HEADING,
    BREAK_LEVELS
};

/* The worth of an end before such a token. The share of the chunk length that the chunk has then,
 * 0 .. 1, is added to it, so that chunks are long where nothing is torn for it. Behind a heading a
 * chunk ends only where else it would tear what comes next, as all other ends come later. */
static const double worths[BREAK_LEVELS] = {-2, -1, -0.9, -0.45, 0, 0.3, 0.5, 0.5};
/* A heading ends a chunk of at least this share; the first such is taken. */
static const double heading_share = 0.35, heading_worth = 3;

struct cutting {
    const struct chunk_source *source;
    uint8_t *levels; /* [n + 1] enum break_level */
    int length;
};

/* Levels. */

/* The token that a chunk begins with where a part of the text begins at byte `at`: blanks that are
 * one token with its first word go along. */
static int token_of(const struct chunk_source *source, size_t at) {
    int low = 0, high = source->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (source->starts[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || (low < source->n && source->starts[low] == at)) return low;
    size_t before = source->starts[low - 1];
    while (before < at && is_blank(source->text.text[before])) before++;
    return before == at ? low - 1 : low;
}

/* A level that a heading has set stays. */
static void set_level(struct cutting *cutting, int token, enum break_level level) {
    uint8_t *own = &cutting->levels[token];
    if (*own != BREAK_NEVER && *own != BREAK_AFTER) *own = (uint8_t)level;
}

static void set_levels(struct cutting *cutting, int first, int end, enum break_level level) {
    for (int i = first; i < end; i++) set_level(cutting, i, level);
}

/* A heading, or the head of a table. */
static void set_heading(struct cutting *cutting, int first, int end, enum break_level level) {
    int most = min_int(end, first + cutting->length);
    set_level(cutting, first, level);
    set_levels(cutting, first + 1, most, BREAK_NEVER);
    if (most > first && most < cutting->source->n) set_level(cutting, most, BREAK_AFTER);
}

/* Whether a line begins at byte `at`, or with the newlines there. */
static bool begins_line(struct text_span text, size_t at) {
    return at == 0 || text.text[at - 1] == '\n' || text.text[at] == '\n';
}

/* An empty line before byte `at`. */
static bool follows_empty_line(struct text_span text, size_t at) {
    int newlines = 0;
    while (at > 0 && is_blank(text.text[at - 1])) {
        newlines += text.text[at - 1] == '\n';
        at--;
    }
    return newlines > 1;
}

static void level_words(struct cutting *cutting) {
    const struct chunk_source *source = cutting->source;
    for (int i = 0; i < source->n; i++) {
        size_t at = source->starts[i];
        bool word = at == 0 || at >= source->text.size || is_blank(source->text.text[at]) ||
                    is_blank(source->text.text[at - 1]);
        bool line = at < source->text.size && begins_line(source->text, at);
        set_level(cutting, i, line ? BREAK_LINE : word ? BREAK_WORD : BREAK_TORN);
    }
}

/* Sentences, and where the text has no blocks that are known, paragraphs. */
static void level_sentences(struct cutting *cutting, bool has_blocks) {
    struct text_span text = cutting->source->text;
    struct sentence sentence;
    for (size_t at = 0; sentence_next(text, &at, &sentence);) {
        bool paragraph = !has_blocks && follows_empty_line(text, sentence.begin);
        set_level(cutting, token_of(cutting->source, sentence.begin),
                  paragraph ? BREAK_BLOCK : BREAK_SENTENCE);
    }
}

/* A block between two tokens. */
struct token_block {
    enum block_kind kind;
    int first, end;
};

static void level_block(struct cutting *cutting, struct token_block block) {
    int inside = block.first + 1;
    bool fits = block.end - block.first <= cutting->length;
    switch (block.kind) {
        case BLOCK_HEADING: set_heading(cutting, block.first, block.end, BREAK_HEADING); return;
        case BLOCK_TABLE_HEAD: set_heading(cutting, block.first, block.end, BREAK_BLOCK); return;
        case BLOCK_LIST_ITEM:
        case BLOCK_TABLE_ROW:
            if (fits) set_levels(cutting, inside, block.end, BREAK_TORN);
            break;
        case BLOCK_CODE:
            for (int i = inside; i < block.end; i++)
                if (cutting->levels[i] != BREAK_LINE) set_level(cutting, i, BREAK_TORN);
            break;
        default: break;
    }
    set_level(cutting, block.first, BREAK_BLOCK);
}

/* The next mark of that kind from mark *i on, and *i behind it; false: there is none. */
static bool next_mark(struct mark_span marks, uint32_t *i, enum mark_kind kind, struct mark *out) {
    while (*i < marks.n) {
        *out = mark_read(marks, *i);
        (*i)++;
        if (out->kind == kind) return true;
    }
    return false;
}

/* The next block, which mark *i begins or one behind it. */
static bool next_block(const struct chunk_source *source, uint32_t *i, struct token_block *out) {
    struct mark mark, next;
    if (!next_mark(source->marks, i, MARK_BLOCK, &mark)) return false;
    uint32_t ahead = *i;
    bool more = next_mark(source->marks, &ahead, MARK_BLOCK, &next);
    *i = more ? ahead - 1 : source->marks.n;
    *out = (struct token_block){(enum block_kind)mark.level, token_of(source, mark.at),
                                more ? token_of(source, next.at) : source->n};
    return true;
}

static void level_blocks(struct cutting *cutting) {
    struct token_block block;
    for (uint32_t i = 0; next_block(cutting->source, &i, &block);)
        if (block.first < block.end) level_block(cutting, block);
}

/* A line of a heading is looked for so far, at most. */
enum { HEADING_BYTES = 1024 };

static bool is_rule(char c) { return c != '\0' && strchr("=-~*^+#", c) != NULL; }

/* The beginning of the line of byte `at`, within HEADING_BYTES of it. */
static size_t line_start(struct text_span text, size_t at) {
    size_t least = at > HEADING_BYTES ? at - HEADING_BYTES : 0;
    while (at > least && text.text[at - 1] != '\n') at--;
    return at;
}

/* Behind the line of byte `at` and its newline, within HEADING_BYTES of it. */
static size_t line_end(struct text_span text, size_t at) {
    size_t most = text.size - at > HEADING_BYTES ? at + HEADING_BYTES : text.size;
    while (at < most && text.text[at] != '\n') at++;
    return at < text.size ? at + 1 : at;
}

/* Whether bytes [from, end) are a row of punctuation, as it stands over and under headings. */
static bool is_rule_line(struct text_span text, size_t from, size_t end) {
    while (end > from && is_blank(text.text[end - 1])) end--;
    for (size_t i = from; i < end; i++)
        if (!is_rule(text.text[i]) || text.text[i] != text.text[from]) return false;
    return end >= from + 2;
}

/* Where the heading of a mark begins: with its line, and a row over it. */
static size_t heading_start(struct text_span text, size_t at) {
    size_t line = line_start(text, at);
    size_t over = line > 0 ? line_start(text, line - 1) : line;
    return is_rule_line(text, over, line) ? over : line;
}

/* Where what follows the heading begins: behind its line, a row under it, and blanks. */
static size_t heading_end(struct text_span text, size_t at) {
    size_t line = line_end(text, at);
    size_t under = line_end(text, line);
    size_t end = is_rule_line(text, line, under) ? under : line;
    while (end < text.size && is_blank(text.text[end])) end++;
    return end;
}

static void level_headings(struct cutting *cutting) {
    const struct chunk_source *source = cutting->source;
    struct mark mark;
    for (uint32_t i = 0; next_mark(source->marks, &i, MARK_HEADING, &mark);) {
        int first = token_of(source, heading_start(source->text, mark.at)),
            end = token_of(source, heading_end(source->text, mark.at + mark.value));
        if (first < source->n) set_heading(cutting, first, end, BREAK_HEADING);
    }
}

static void find_levels(struct cutting *cutting) {
    struct mark mark;
    uint32_t i = 0;
    bool has_blocks = next_mark(cutting->source->marks, &i, MARK_BLOCK, &mark);
    memset(cutting->levels, BREAK_WORD, (size_t)cutting->source->n + 1);
    level_words(cutting);
    level_sentences(cutting, has_blocks);
    level_blocks(cutting);
    level_headings(cutting);
}

/* Chunks. */

static double worth_of(const struct cutting *cutting, int first, int end) {
    enum break_level level = (enum break_level)cutting->levels[end];
    double share = (double)(end - first) / cutting->length;
    if (level == BREAK_HEADING && share >= heading_share) return heading_worth - share;
    return worths[level] + share;
}

/* The end of the chunk that begins with token `first` of a part that ends before `end`. */
static int find_end(const struct cutting *cutting, int first, int end) {
    int most = end - first > cutting->length ? first + cutting->length : end, best = most;
    double worth = most == end ? worths[BREAK_BLOCK] + (double)(most - first) / cutting->length
                               : worth_of(cutting, first, most);
    for (int i = first + 1; i < most; i++) {
        double own = worth_of(cutting, first, i);
        if (own < worth) continue;
        best = i;
        worth = own;
    }
    return best;
}

static uint32_t byte_of(const struct chunk_source *source, int token) {
    return token < source->n ? source->starts[token] : (uint32_t)source->text.size;
}

static int append_range(const struct chunk_source *source, int first, int end,
                        struct buffer *ranges) {
    struct chunk_range range = {byte_of(source, first), byte_of(source, end), (uint32_t)first,
                                (uint32_t)(end - first)};
    buffer_append(ranges, &range, sizeof range);
    return 1;
}

/* Tokens [first, end). */
static int cut_part(const struct cutting *cutting, int first, int end, struct buffer *ranges) {
    int n = 0;
    while (first < end) {
        int next = find_end(cutting, first, end);
        n += append_range(cutting->source, first, next, ranges);
        first = next;
    }
    return n;
}

/* The parts between tables of contents. */
static int cut_parts(const struct cutting *cutting, struct buffer *ranges) {
    struct token_block block;
    int n = 0, first = 0;
    for (uint32_t i = 0; next_block(cutting->source, &i, &block);) {
        if (block.kind != BLOCK_CONTENTS || block.first < first) continue;
        n += cut_part(cutting, first, block.first, ranges);
        first = block.end;
    }
    n += cut_part(cutting, first, cutting->source->n, ranges);
    return n > 0 ? n : cut_part(cutting, 0, cutting->source->n, ranges);
}

static int cut_grid(const struct chunk_source *source, int length, struct buffer *ranges) {
    int n = 0;
    for (int first = 0; n < document_count_chunks(source->n, length); first += length)
        n += append_range(source, first, first + min_int(length, source->n - first), ranges);
    return n;
}

int chunks_cut(const struct chunk_source *source, enum chunk_cut cut, int length,
               struct buffer *ranges) {
    struct cutting cutting = {.source = source, .length = length};
    CHECK(source->n > 0 && length > 0);
    if (cut == CHUNKS_GRID) return cut_grid(source, length, ranges);
    cutting.levels = xmalloc((size_t)source->n + 1);
    find_levels(&cutting);
    int n = cut_parts(&cutting, ranges);
    free(cutting.levels);
    return n;
}
