/* retro/text/added_tokens.c: finding added tokens in text, leftmost longest, as AddedVocabulary of
 * the tokenizers library.
 */
#include <stdlib.h>
#include <string.h>

#include "retro/text/tokenizer_private.h"

/* Tags that are text to a model which has tokens for them. */
static bool is_html_tag(struct text_span name) {
    static const char *const names[] = {
        "a",        "abbr",    "article", "aside",   "b",      "blockquote", "body",   "br",
        "button",   "caption", "cite",    "code",    "col",    "dd",         "del",    "details",
        "dfn",      "div",     "dl",      "dt",      "em",     "figure",     "footer", "form",
        "h1",       "h2",      "h3",      "h4",      "h5",     "h6",         "head",   "header",
        "hr",       "html",    "i",       "img",     "input",  "ins",        "kbd",    "label",
        "li",       "link",    "main",    "mark",    "meta",   "nav",        "ol",     "p",
        "pre",      "q",       "samp",    "section", "select", "small",      "span",   "strike",
        "strong",   "style",   "sub",     "summary", "sup",    "table",      "tbody",  "td",
        "textarea", "tfoot",   "th",      "thead",   "title",  "tr",         "tt",     "u",
        "ul",       "var",     "video"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strlen(names[i]) == name.size && memcmp(names[i], name.text, name.size) == 0)
            return true;
    return false;
}

static bool holds_blanks(struct text_span text) {
    int32_t c;
    for (size_t i = 0; i < text.size;) {
        i += (size_t)utf8_read(text.text + i, text.size - i, &c);
        if (unicode_is_space(c)) return true;
    }
    return false;
}

bool added_reads_as_mark(struct text_span content) {
    static const char opening[] = "<[{", closing[] = ">]}";
    const char *text = content.text,
               *bracket = content.size > 2 && text[0] ? strchr(opening, text[0]) : NULL;
    if (bracket == NULL || text[content.size - 1] != closing[bracket - opening]) return false;
    struct text_span name = {text + 1, content.size - 2};
    if (name.text[0] == '/' && name.size > 1)
        name = (struct text_span){name.text + 1, name.size - 1};
    return !holds_blanks(name) && !(text[0] == '<' && is_html_tag(name));
}

void added_set_append(struct added_set *set, struct text_span content, struct added_token flags) {
    set->tokens = xgrow(set->tokens, set->n, &set->capacity, sizeof *set->tokens);
    flags.content = xstrndup(content.text, content.size);
    flags.size = (uint32_t)content.size;
    flags.mark = flags.mark || flags.special || added_reads_as_mark(content);
    set->tokens[set->n] = flags;
    set->n++;
    set->first[(uint8_t)content.text[0]] = true;
}

static int added_compare(const void *a, const void *b) {
    const struct added_token *token = a, *added_token = b;
    int order = memcmp(token->content, added_token->content,
                       token->size < added_token->size ? token->size : added_token->size);
    return order ? order : (token->size > added_token->size) - (token->size < added_token->size);
}

enum status added_set_sort(struct added_set *set, struct error *e) {
    if (set->n > 1) qsort(set->tokens, (size_t)set->n, sizeof *set->tokens, added_compare);
    for (int i = 1; i < set->n; i++)
        if (added_compare(&set->tokens[i - 1], &set->tokens[i]) == 0)
            return error_set(e, STATUS_INVALID, "added_tokens: \"%.60s\" is there twice",
                             set->tokens[i].content);
    return STATUS_OK;
}

struct added_token *added_set_get(const struct added_set *set, struct text_span content) {
    const struct added_token key = {.content = content.text, .size = (uint32_t)content.size};
    return set->n ? bsearch(&key, set->tokens, (size_t)set->n, sizeof *set->tokens, added_compare)
                  : NULL;
}

void added_set_free(struct added_set *set) {
    for (int i = 0; i < set->n; i++) free((char *)set->tokens[i].content);
    free(set->tokens);
    *set = (struct added_set){0};
}

/* First token of [low, high) whose byte at depth is >= byte; all of them are longer than depth, or
 * the first is not. */
static int bound_find(const struct added_set *set, int low, int high, uint32_t depth, int byte) {
    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct added_token *token = &set->tokens[middle];
        int at = token->size > depth ? (uint8_t)token->content[depth] : -1;
        if (at < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The longest token that text[0, n) begins with, of those that count (NULL: all), or NULL. */
static const struct added_token *longest_find(const struct added_set *set, const char *text,
                                              size_t n, const bool *counts) {
    const struct added_token *best = NULL;
    int low = 0, high = set->n;
    for (uint32_t depth = 0; depth < n; depth++) {
        int byte = (uint8_t)text[depth];
        low = bound_find(set, low, high, depth, byte);
        high = bound_find(set, low, high, depth, byte + 1);
        if (low == high) break;
        if (set->tokens[low].size == depth + 1 && (counts == NULL || counts[low]))
            best = &set->tokens[low];
    }
    return best;
}

size_t added_set_at(const struct added_set *set, struct text_span text, const bool *counts) {
    if (text.size == 0 || !set->first[(uint8_t)text.text[0]]) return 0;
    const struct added_token *token = longest_find(set, text.text, text.size, counts);
    return token ? token->size : 0;
}

/* The character that ends at text[end), end > 0; *length is its size. */
static int32_t character_before(const char *text, size_t end, int *length) {
    size_t at = end - 1;
    while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80) at--;
    int32_t c;
    *length = utf8_read(text + at, end - at, &c);
    return c;
}

static bool inside_word(struct text_span text, size_t start, size_t end) {
    int length;
    int32_t c;
    if (start > 0 && unicode_is_word(character_before(text.text, start, &length))) return true;
    if (end == text.size) return false;
    utf8_read(text.text + end, text.size - end, &c);
    return unicode_is_word(c);
}

static void match_strip(const struct added_token *token, struct text_span text, size_t floor,
                        struct added_match *match) {
    int length;
    int32_t c;
    while (token->lstrip && match->start > floor &&
           unicode_is_space(character_before(text.text, match->start, &length)))
        match->start -= (size_t)length;
    while (token->rstrip && match->end < text.size) {
        length = utf8_read(text.text + match->end, text.size - match->end, &c);
        if (!unicode_is_space(c)) break;
        match->end += (size_t)length;
    }
}

bool added_set_find(const struct added_set *set, struct text_span text, size_t *at, bool skip_marks,
                    struct added_match *out) {
    size_t floor = *at;
    if (set->n == 0) return false;
    for (size_t i = *at; i < text.size; i++) {
        if (!set->first[(uint8_t)text.text[i]]) continue;
        const struct added_token *token = longest_find(set, text.text + i, text.size - i, NULL);
        if (token == NULL) continue;
        size_t end = i + token->size;
        /* A match that does not count is passed over whole: shorter tokens inside it are not looked
         * for. */
        if ((token->mark && skip_marks) || (token->single_word && inside_word(text, i, end))) {
            i = end - 1;
            continue;
        }
        *out = (struct added_match){i, end, token->id};
        *at = end;
        match_strip(token, text, floor, out);
        return true;
    }
    return false;
}
