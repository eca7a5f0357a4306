/* config/text/sentences.c: see sentences.h. */
#include "config/text/sentences.h"

#include "config/base/memory.h"

/* Marks. */

/* A sentence ends with these whatever comes behind them. */
static const char *const wide_marks[] = {"\u3002", "\uff01", "\uff1f"};
/* It ends with these before a blank: ellipsis, Arabic, Devanagari, Armenian, Ethiopic. */
static const char *const marks[] = {".",      "!",      "?",      "\u2026", "\u203d",
                                    "\u061f", "\u06d4", "\u0964", "\u0589", "\u1362"};
static const char *const closers[] = {"\"",     "'",      ")",      "]",      "*",
                                      "_",      "\u201d", "\u2019", "\u00bb", "\u203a",
                                      "\uff09", "\u300d", "\u300f"};

/* The bytes of the text among `all` that text[0, end) ends with; 0: none. */
static size_t ending(struct text_span text, size_t end, const char *const *all, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (span_ends_with((struct text_span){text.text, end}, all[i])) return strlen(all[i]);
    return 0;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0;
}
static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

/* Full stops that end nothing. */

/* The longest word that is looked at for an abbreviation. */
enum { ABBREVIATION_BYTES = 16 };

/* In lower case, without the last full stop. */
static const char *const abbreviations[] = {
    "e.g",  "i.e", "cf",  "vs",  "mr",  "mrs", "ms",  "dr",     "prof",       "st",   "fig",
    "figs", "no",  "nos", "pp",  "vol", "sec", "eq",  "approx", "resp",       "incl", "viz",
    "z.b",  "d.h", "u.a", "bzw", "vgl", "nr",  "abb", "p.ex",   "c.-\u00e0-d"};
/* These may end a sentence; one goes on behind them with a small letter. */
static const char *const last_words[] = {"etc", "al",  "inc", "ltd", "co",
                                         "jr",  "usw", "a.m", "p.m"};

static bool is_among(struct text_span word, const char *const *all, size_t n) {
    char low[ABBREVIATION_BYTES];
    if (word.size > sizeof low) return false;
    for (size_t i = 0; i < word.size; i++)
        low[i] = is_upper(word.text[i]) ? (char)(word.text[i] + ('a' - 'A')) : word.text[i];
    for (size_t i = 0; i < n; i++)
        if (span_is((struct text_span){low, word.size}, all[i])) return true;
    return false;
}

/* The word that ends before byte `end`: letters, digits and full stops, at most one byte more than
 * an abbreviation has. */
static struct text_span word_before(struct text_span text, size_t end) {
    size_t at = end;
    while (
        at > 0 && end - at <= ABBREVIATION_BYTES &&
        (is_letter(text.text[at - 1]) || is_digit(text.text[at - 1]) || text.text[at - 1] == '.'))
        at--;
    return (struct text_span){text.text + at, end - at};
}

/* Whether a line begins at byte `at`, but for a few blanks. */
static bool begins_line(struct text_span text, size_t at) {
    size_t most = at > ABBREVIATION_BYTES ? at - ABBREVIATION_BYTES : 0;
    while (at > most && (text.text[at - 1] == ' ' || text.text[at - 1] == '\t')) at--;
    return at == 0 || text.text[at - 1] == '\n';
}

/* "12." at the beginning of a line. */
static bool numbers_item(struct text_span text, struct text_span word) {
    if (word.size == 0 || word.size > 3) return false;
    for (size_t i = 0; i < word.size; i++)
        if (!is_digit(word.text[i])) return false;
    return begins_line(text, (size_t)(word.text - text.text));
}

/* The initial of a name: a capital at the beginning of a line or of a sentence, behind another
 * initial, or behind a word with a capital. */
static bool is_initial(struct text_span text, struct text_span word) {
    size_t at = (size_t)(word.text - text.text);
    if (word.size != 1 || !is_upper(word.text[0])) return false;
    if (begins_line(text, at)) return true;
    struct text_span before = word_before(text, at - 1);
    if (before.size == 0) return false;
    return before.text[before.size - 1] == '.' ||
           (before.size > 1 && is_upper(before.text[0]) && is_lower(before.text[1]));
}

/* Whether the full stop before byte `end` ends a sentence whose next word comes behind byte `next`.
 */
static bool stop_ends(struct text_span text, size_t end, size_t next) {
    struct text_span word = word_before(text, end - 1);
    if (numbers_item(text, word) || is_initial(text, word)) return false;
    if (is_among(word, abbreviations, ARRAY_COUNT(abbreviations))) return false;
    bool goes_on = next < text.size && is_lower(text.text[next]);
    return !goes_on || !is_among(word, last_words, ARRAY_COUNT(last_words));
}

/* Sentences of any text. */

/* Blanks from `at` on. */
struct gap {
    size_t end;
    int lines; /* line ends among them */
};

static struct gap gap_at(struct text_span text, size_t at) {
    struct gap gap = {at, 0};
    for (; gap.end < text.size && is_blank(text.text[gap.end]); gap.end++)
        gap.lines += text.text[gap.end] == '\n';
    return gap;
}

/* Whether text[0, end), a blank behind it, ends with a mark. */
static bool ends_with_mark(struct text_span text, size_t end, size_t next) {
    size_t n;
    while ((n = ending(text, end, closers, ARRAY_COUNT(closers))) > 0) end -= n;
    if (ending(text, end, marks, ARRAY_COUNT(marks)) == 0) return false;
    return text.text[end - 1] != '.' || stop_ends(text, end, next);
}

static bool ends_wide(struct text_span text, size_t end) {
    return ending(text, end, wide_marks, ARRAY_COUNT(wide_marks)) > 0;
}

bool sentence_ends(struct text_span text, size_t end) {
    if (end == text.size || ends_wide(text, end)) return true;
    if (!is_blank(text.text[end])) return false;
    struct gap gap = gap_at(text, end);
    return gap.lines > 1 || ends_with_mark(text, end, gap.end);
}

bool sentence_starts(struct text_span text, size_t at) {
    size_t end = at;
    while (end > 0 && is_blank(text.text[end - 1])) end--;
    return end == 0 || (!is_blank(text.text[at]) && sentence_ends(text, end));
}

/* Lines of Markdown. */

static size_t line_end(struct text_span text, size_t at) {
    const char *end = at < text.size ? memchr(text.text + at, '\n', text.size - at) : NULL;
    return end ? (size_t)(end - text.text) : text.size;
}

/* The character of a fence that stands at byte `at`; 0: none does. */
static char fence_at(struct text_span text, size_t at) {
    struct text_span rest = {text.text + at, text.size - at};
    if (span_starts_with(rest, "```")) return '`';
    return span_starts_with(rest, "~~~") ? '~' : '\0';
}

/* The end of the block that the fence at `at` opens. */
static size_t fence_end(struct text_span text, size_t at) {
    char fence = fence_at(text, at);
    for (at = line_end(text, at); at < text.size; at = line_end(text, at)) {
        at = gap_at(text, at).end;
        if (at < text.size && fence_at(text, at) == fence) return line_end(text, at);
    }
    return text.size;
}

/* A line of one sentence: a heading, a row of a table. */
static bool is_row(struct text_span text, size_t at) {
    return at < text.size && (text.text[at] == '#' || text.text[at] == '|');
}

/* Whether "- ", "2. ", "#", "|" or a fence at byte `at`, with which a line begins, begins a
 * sentence. */
static bool opens_line(struct text_span text, size_t at) {
    static const char *const bullets[] = {"- ", "* ", "+ ", "\u2022 ", "\u2013 "};
    struct text_span rest = {text.text + at, text.size - at};
    size_t digits = 0;
    if (is_row(text, at) || fence_at(text, at)) return true;
    for (size_t i = 0; i < ARRAY_COUNT(bullets); i++)
        if (span_starts_with(rest, bullets[i])) return true;
    while (digits < rest.size && digits < 3 && is_digit(rest.text[digits])) digits++;
    return digits > 0 && digits + 1 < rest.size &&
           (rest.text[digits] == '.' || rest.text[digits] == ')') &&
           is_blank(rest.text[digits + 1]);
}

/* Sentences one by one. */

/* Behind the code that the back quote at `at` opens; where its line closes none, behind the line's
 * last back quote, which the caller then need not look at again. */
static size_t code_end(struct text_span text, size_t at, size_t *bare) {
    size_t end = line_end(text, at);
    const char *close = memchr(text.text + at + 1, '`', end - at - 1);
    if (close) return (size_t)(close - text.text) + 1;
    *bare = end;
    return at + 1;
}

/* Whether the blanks of `gap`, which begin at `end`, part two sentences. */
static bool gap_parts(struct text_span text, size_t end, struct gap gap) {
    return gap.end == text.size || gap.lines > 1 || (gap.lines > 0 && opens_line(text, gap.end)) ||
           ends_with_mark(text, end, gap.end);
}

/* Behind closing brackets and quotes from `at` on. */
static size_t closers_end(struct text_span text, size_t at) {
    size_t i = 0;
    while (i < ARRAY_COUNT(closers)) {
        bool closes =
            span_starts_with((struct text_span){text.text + at, text.size - at}, closers[i]);
        at += closes ? strlen(closers[i]) : 0;
        i = closes ? 0 : i + 1;
    }
    return at;
}

/* The end of the sentence of plain text that begins at `at`; blanks may stand before it. */
static size_t plain_end(struct text_span text, size_t at) {
    size_t bare = 0;
    while (at < text.size) {
        struct gap gap = gap_at(text, at);
        if (gap.end > at) {
            if (gap_parts(text, at, gap)) return at;
            at = gap.end;
            continue;
        }
        at = text.text[at] == '`' && at >= bare ? code_end(text, at, &bare) : at + 1;
        if (ends_wide(text, at)) return closers_end(text, at);
    }
    return at;
}

bool sentence_next(struct text_span text, size_t *at, struct sentence *out) {
    size_t begin = gap_at(text, *at).end, end;
    if (begin == text.size) return false;
    if (fence_at(text, begin))
        end = fence_end(text, begin);
    else
        end = is_row(text, begin) ? line_end(text, begin) : plain_end(text, begin);
    *at = end;
    while (is_blank(text.text[end - 1])) end--;
    *out = (struct sentence){begin, end};
    return true;
}
