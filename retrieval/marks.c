/* retrieval/marks.c: see marks.h. */
#include "retrieval/marks.h"

#include <string.h>

struct mark mark_read(struct mark_span marks, uint32_t i) {
    struct mark mark;
    memcpy(&mark, (const char *)marks.bytes + (size_t)i * sizeof mark, sizeof mark);
    return mark;
}

static bool is_count(uint32_t value) { return value > 0 && value <= INT32_MAX; }

static bool mark_is_sound(const struct mark *mark, uint64_t text_size) {
    bool is_reader = mark->kind == MARK_READER,
         has_level = mark->kind == MARK_HEADING || mark->kind == MARK_BLOCK || is_reader,
         has_column = mark->kind == MARK_CELL || is_reader;
    if (mark->at > text_size || (!has_level && mark->level != 0) ||
        (!has_column && mark->column != 0))
        return false;
    switch (mark->kind) {
        case MARK_PAGE:
        case MARK_LINE: return is_count(mark->value);
        case MARK_NO_LINE: return mark->value == 0;
        case MARK_HEADING:
            return mark->level >= 1 && mark->level <= MARK_LEVELS &&
                   mark->value <= text_size - mark->at;
        case MARK_BLOCK:
            return mark->level >= 1 && mark->level < BLOCK_KIND_COUNT && mark->value == 0;
        case MARK_CONFIDENCE: return mark->value >= 1 && mark->value <= 100;
        case MARK_CELL: return is_count(mark->value) && mark->column > 0;
        case MARK_READER: return mark->at == 0 && mark->level > 0;
        case MARK_PAGE_SIZE:
        case MARK_BOX:
        case MARK_BOX_WORD:
        case MARK_BOX_END: return true;
        default: return false;
    }
}

const char *marks_fault(struct mark_span marks, uint64_t text_size) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.at < last) return "its marks are not in the order of the text";
        if (!mark_is_sound(&mark, text_size))
            return "a mark leads out of its text, or is of no known kind";
        last = mark.at;
    }
    return NULL;
}

static void append_mark(struct buffer *marks, const struct mark *mark) {
    buffer_append(marks, mark, sizeof *mark);
}

void marks_add(struct buffer *marks, enum mark_kind kind, int level, size_t at, size_t value) {
    if (at > UINT32_MAX || value > UINT32_MAX) return;
    append_mark(marks, &(struct mark){.at = (uint32_t)at,
                                      .kind = (uint8_t)kind,
                                      .level = (uint8_t)level,
                                      .value = (uint32_t)value});
}

void marks_add_cell(struct buffer *marks, size_t at, size_t row, size_t column) {
    if (at > UINT32_MAX || row > INT32_MAX || column > UINT16_MAX) return;
    append_mark(marks, &(struct mark){.at = (uint32_t)at,
                                      .kind = MARK_CELL,
                                      .column = (uint16_t)column,
                                      .value = (uint32_t)row});
}

void marks_print_column(struct buffer *out, size_t column) {
    char letters[8];
    size_t at = sizeof letters;
    for (; column > 0 && at > 0; column = (column - 1) / 26) {
        at--;
        letters[at] = (char)('A' + (column - 1) % 26);
    }
    buffer_append(out, letters + at, sizeof letters - at);
}

static uint32_t quarters(float points) {
    if (!(points > 0)) return 0;
    return points < 16383 ? (uint32_t)(points * 4 + 0.5F) : 0xffff;
}

uint32_t mark_point(float first, float second) { return quarters(first) | quarters(second) << 16; }

uint32_t marks_seek(struct mark_span marks, uint64_t at) {
    uint32_t low = 0, high = marks.n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (mark_read(marks, middle).at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool marks_equal(struct mark_span left, struct mark_span right) {
    return left.n == right.n && (left.n == 0 || memcmp(left.bytes, right.bytes,
                                                       (size_t)left.n * sizeof(struct mark)) == 0);
}

static struct mark_span without_reader(struct mark_span marks) {
    bool there = marks.n > 0 && mark_read(marks, 0).kind == MARK_READER;
    return there ? (struct mark_span){(const char *)marks.bytes + sizeof(struct mark), marks.n - 1}
                 : marks;
}

bool marks_alike(struct mark_span left, struct mark_span right) {
    return marks_equal(without_reader(left), without_reader(right));
}

/* Eight bytes at a time: a file may be of line ends alone. */
static uint32_t count_newlines(struct text_span text, size_t from, size_t end) {
    const uint64_t low = 0x7f7f7f7f7f7f7f7f, newlines = 0x0a0a0a0a0a0a0a0a;
    uint32_t n = 0;
    for (; end - from >= sizeof low; from += sizeof low) {
        uint64_t bytes;
        memcpy(&bytes, text.text + from, sizeof bytes);
        bytes ^= newlines;
        /* The high bit of each byte that is not zero now. */
        uint64_t others = ((bytes & low) + low) | bytes;
        n += (uint32_t)__builtin_popcountll(~(others | low));
    }
    for (; from < end; from++) n += text.text[from] == '\n';
    return n;
}

void heading_path_pass(struct heading_path *path, const struct mark *mark, struct text_span text) {
    path->of_level[mark->level] = (struct text_span){text.text + mark->at, mark->value};
    for (int level = mark->level + 1; level <= MARK_LEVELS; level++) path->of_level[level].size = 0;
}

/* The first byte from `at` on that is none of these. */
static size_t skip_all(struct text_span text, size_t at, const char *these) {
    while (at < text.size && text.text[at] && strchr(these, text.text[at])) at++;
    return at;
}

/* The place of byte `at`, and its line where that is asked for. */
static struct document_place find_place(struct mark_span marks, struct text_span text, uint64_t at,
                                        bool wants_line) {
    struct document_place place = {0};
    struct heading_path path = {0};
    struct mark line = {0};
    size_t here = at < text.size ? (size_t)at : text.size;
    here = skip_all(text, here, " \t\r\n\f\v");
    size_t inside = skip_all(text, here, " \t\r\n\f\v#=-~*^+");
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.at > inside) break;
        if (mark.kind == MARK_HEADING) heading_path_pass(&path, &mark, text);
        if (mark.at > here) continue;
        if (mark.kind == MARK_PAGE) place.page = mark.value;
        if (mark.kind == MARK_LINE || mark.kind == MARK_NO_LINE) line = mark;
    }
    if (line.value > 0 && wants_line) place.line = line.value + count_newlines(text, line.at, here);
    for (int level = 1; level <= MARK_LEVELS; level++)
        if (path.of_level[level].size > 0) {
            place.headings[place.n_headings] = path.of_level[level];
            place.n_headings++;
        }
    return place;
}

struct document_place place_find(struct mark_span marks, struct text_span text, uint64_t at) {
    return find_place(marks, text, at, true);
}

struct document_place place_find_passage(struct mark_span marks, struct text_span text,
                                         uint64_t start, uint64_t end) {
    struct document_place place = find_place(marks, text, start + (end - start) / 3 * 2, false);
    struct document_place beginning = place_find(marks, text, start);
    place.page = beginning.page;
    place.line = beginning.line;
    return place;
}

/* A line of a page, as its marks are passed one by one. */
struct line_box {
    struct mark start;
    float left, right; /* of the words that are asked for */
    bool open, has_words;
};

/* The part that is asked for of a word, or of a line, that begins at `at` and ends before the next
 * mark of the line: all of it where they share a byte. */
static void pass_word(struct line_box *line, const struct mark *word, uint64_t next,
                      const uint64_t asked[2]) {
    float left = mark_point_first(word->value), right = mark_point_second(word->value);
    if (word->at >= asked[1] || next <= asked[0]) return;
    line->left = line->has_words && line->left < left ? line->left : left;
    line->right = line->has_words && line->right > right ? line->right : right;
    line->has_words = true;
}

static void end_line(struct line_box *line, const struct mark *end, struct page_box box,
                     struct buffer *boxes) {
    line->open = false;
    if (!line->has_words || box.page == 0) return;
    box.rect = (struct page_rect){line->left, mark_point_second(line->start.value), line->right,
                                  mark_point_second(end->value)};
    buffer_append(boxes, &box, sizeof box);
}

/* The mark at which the page of byte `at` begins, or the first of all. */
static uint32_t find_page(struct mark_span marks, uint64_t at) {
    uint32_t i = marks_seek(marks, at + 1);
    while (i > 0) {
        i--;
        if (mark_read(marks, i).kind == MARK_PAGE) break;
    }
    return i;
}

void place_find_boxes(struct mark_span marks, uint64_t start, uint64_t end, struct buffer *boxes) {
    const uint64_t asked[2] = {start, end};
    struct page_box box = {0};
    struct line_box line = {0};
    struct mark word = {0};
    for (uint32_t i = find_page(marks, start); i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        bool in_line = mark.kind == MARK_BOX_WORD || mark.kind == MARK_BOX_END;
        if (line.open && in_line && word.kind) pass_word(&line, &word, mark.at, asked);
        word = mark.kind == MARK_BOX_WORD ? mark : in_line ? (struct mark){0} : word;
        if (mark.kind == MARK_BOX_END && line.open) end_line(&line, &mark, box, boxes);
        if (mark.at >= end && !line.open) break;
        if (mark.kind == MARK_PAGE) box = (struct page_box){.page = mark.value};
        if (mark.kind == MARK_PAGE_SIZE) {
            box.page_width = mark_point_first(mark.value);
            box.page_height = mark_point_second(mark.value);
        }
        if (mark.kind == MARK_BOX) line = (struct line_box){.start = mark, .open = true};
    }
}

bool marks_find_page(struct mark_span marks, uint64_t text_size, uint32_t page,
                     struct text_range *out) {
    bool found = false;
    *out = (struct text_range){0, text_size};
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.kind != MARK_PAGE) continue;
        if (found) {
            out->end = mark.at;
            return true;
        }
        found = mark.value == page;
        if (found) out->start = mark.at;
    }
    return found;
}

static uint64_t line_start(struct text_span text, uint64_t at) {
    while (at > 0 && text.text[at - 1] != '\n') at--;
    return at;
}

struct text_range marks_find_section(struct mark_span marks, struct text_span text,
                                     struct text_range part) {
    struct text_range section = {0, text.size};
    for (uint32_t i = marks_seek(marks, part.start + 1); i > 0; i--) {
        struct mark mark = mark_read(marks, i - 1);
        if (mark.kind != MARK_HEADING) continue;
        section.start = line_start(text, mark.at);
        break;
    }
    for (uint32_t i = marks_seek(marks, part.end); i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.kind != MARK_HEADING) continue;
        section.end = line_start(text, mark.at);
        break;
    }
    if (section.end < part.end) section.end = part.end; /* a chunk may end within a line */
    return section;
}

struct text_range marks_keep_sure(struct mark_span marks, struct text_range section,
                                  struct text_range part, int least) {
    bool poor = false;
    for (uint32_t i = find_page(marks, section.start); i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.at >= section.end) break;
        if (mark.kind == MARK_PAGE && poor && mark.at <= part.start) {
            section.start = mark.at;
            poor = false;
        }
        if (mark.kind != MARK_CONFIDENCE || (int)mark.value >= least) continue;
        if (mark.at >= part.end) {
            section.end = mark.at;
            break;
        }
        section.start = part.start;
        poor = true;
    }
    return section;
}

uint32_t marks_last_page(struct mark_span marks) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.kind == MARK_PAGE && mark.value > last) last = mark.value;
    }
    return last;
}

int marks_confidence(struct mark_span marks, uint64_t start, uint64_t end) {
    int least = 0;
    for (uint32_t i = find_page(marks, start); i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.at >= end && mark.at > start) break;
        if (mark.kind != MARK_CONFIDENCE) continue;
        if (least == 0 || (int)mark.value < least) least = (int)mark.value;
    }
    return least;
}
