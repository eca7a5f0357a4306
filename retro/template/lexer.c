/* retro/template/lexer.c: a template's source as tokens, by the rules of Jinja's own lexer: where white space
 * around tags goes (trim_blocks, lstrip_blocks, the signs - and +), what is a name, a number, a string. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "config/text/unicode.h"
#include "retro/template/template_private.h"

enum { MAX_BRACKETS = 200 };

struct lexer {
    struct template_memory *m;
    struct template_tokens *out;
    const char *source; /* line ends are \n */
    size_t size, at;
    int line;
    bool line_starts; /* the last tag ended with a line end, or nothing was read yet */
    char brackets[MAX_BRACKETS];
    int n_brackets;
};

static const struct operator_row {
    const char *words;
    enum operator_kind operator;
} operators[] = {
    {"==", OPERATOR_EQ},         {"!=", OPERATOR_NE},          {">=", OPERATOR_GE},
    {"<=", OPERATOR_LE},         {"**", OPERATOR_POW},         {"//", OPERATOR_FLOORDIV},
    {"+", OPERATOR_ADD},         {"-", OPERATOR_SUB},          {"*", OPERATOR_MUL},
    {"/", OPERATOR_DIV},         {"%", OPERATOR_MOD},          {"~", OPERATOR_TILDE},
    {"<", OPERATOR_LT},          {">", OPERATOR_GT},           {"=", OPERATOR_ASSIGN},
    {"|", OPERATOR_PIPE},        {".", OPERATOR_DOT},          {",", OPERATOR_COMMA},
    {":", OPERATOR_COLON},       {";", OPERATOR_SEMICOLON},    {"(", OPERATOR_PAREN_OPEN},
    {")", OPERATOR_PAREN_CLOSE}, {"[", OPERATOR_BRACKET_OPEN}, {"]", OPERATOR_BRACKET_CLOSE},
    {"{", OPERATOR_BRACE_OPEN},  {"}", OPERATOR_BRACE_CLOSE},
};

const char *operator_words(enum operator_kind operator) {
    if (operator== OPERATOR_IN) return "in";
    if (operator== OPERATOR_NOT_IN) return "not in";
    for (size_t i = 0; i < ARRAY_COUNT(operators); i++)
        if (operators[i].operator== operator) return operators[i].words;
    return "?";
}

const char *token_words(const struct template_token *t, char words[64]) {
    switch (t->kind) {
        case TOKEN_END: return "the end of the template";
        case TOKEN_TEXT: return "text";
        case TOKEN_PRINT_BEGIN: return "{{";
        case TOKEN_PRINT_END: return "}}";
        case TOKEN_BLOCK_BEGIN: return "{%";
        case TOKEN_BLOCK_END: return "%}";
        case TOKEN_OPERATOR: return operator_words(t->operator);
        case TOKEN_STRING: return "a string";
        case TOKEN_INT:
        case TOKEN_FLOAT: return "a number";
        case TOKEN_NAME: break;
    }
    size_t n = t->text->size < 60 ? t->text->size : 60;
    memcpy(words, t->text->text, n);
    words[n] = '\0';
    return words;
}

_Noreturn static void lexer_fail(const struct lexer *l, const char *words) {
    memory_fail(l->m, STATUS_INVALID, "line %d: %s", l->line, words);
}

static struct template_token *token_add(struct lexer *l, enum template_token_kind kind) {
    struct template_tokens *out = l->out;
    out->tokens = memory_grow(l->m, out->tokens, out->n, &out->capacity, sizeof *out->tokens);
    struct template_token *t = &out->tokens[out->n];
    *t = (struct template_token){.kind = kind, .line = l->line};
    out->n++;
    return t;
}

/* \s of Python's expressions at a place: the bytes of it, or 0. */
static size_t space_at(const struct lexer *l, size_t at) {
    int32_t c;
    if (at >= l->size) return 0;
    int n = utf8_read(l->source + at, l->size - at, &c);
    return python_is_space(c) ? (size_t)n : 0;
}

static bool lexer_starts(const struct lexer *l, size_t at, const char *words) {
    size_t n = strlen(words);
    return l->size - at >= n && memcmp(l->source + at, words, n) == 0;
}

static size_t skip_space(const struct lexer *l, size_t at) {
    for (size_t n; (n = space_at(l, at)) > 0;) at += n;
    return at;
}

/* Moves on and counts lines. */
static void lexer_advance(struct lexer *l, size_t to) {
    for (; l->at < to; l->at++) l->line += l->source[l->at] == '\n';
    l->line_starts = to > 0 && l->source[to - 1] == '\n';
}

/* Where a tag's closing "%}" or "#}" ends, with what it cuts behind it; 0: it is not at this place. */
static size_t close_of(const struct lexer *l, size_t at, const char *mark) {
    char sign = at < l->size ? l->source[at] : '\0';
    bool signed_mark = (sign == '-' || sign == '+') && lexer_starts(l, at + 1, mark);
    if (!signed_mark && !lexer_starts(l, at, mark)) return 0;
    size_t end = at + (signed_mark ? 3 : 2);
    if (signed_mark && sign == '-') return skip_space(l, end);
    if (!signed_mark && mark[0] != '}' && end < l->size && l->source[end] == '\n') end++;
    return end;
}

/* The text before a tag at [from, to), cut by the tag's sign or by lstrip_blocks. */
static void add_text(struct lexer *l, size_t from, size_t to, char sign, bool block) {
    struct template_string whole = {.text = l->source + from, .size = to - from};
    if (sign == '-') {
        whole.size = string_strip(l->m, &whole, NULL, false, true)->size;
    } else if (sign != '+' && block) {
        size_t line = whole.size;
        while (line > 0 && whole.text[line - 1] != '\n') line--;
        bool blank = skip_space(&(struct lexer){.source = whole.text, .size = whole.size}, line) == whole.size;
        if (blank && (line > 0 || l->line_starts)) whole.size = line;
    }
    if (whole.size > 0) token_add(l, TOKEN_TEXT)->text = string_of(l->m, whole.text, whole.size, false);
}

/* Whether "{% raw %}" is at `at`: where its text begins, else 0. */
static size_t raw_begin(const struct lexer *l, size_t at) {
    size_t here = at + 2;
    if (here < l->size && (l->source[here] == '-' || l->source[here] == '+')) here++;
    here = skip_space(l, here);
    if (!lexer_starts(l, here, "raw")) return 0;
    here = skip_space(l, here + 3);
    if (lexer_starts(l, here, "-%}")) return skip_space(l, here + 3);
    return lexer_starts(l, here, "%}") ? here + 2 : 0;
}

static void read_raw(struct lexer *l, size_t text) {
    lexer_advance(l, text);
    for (size_t at = text; at + 2 <= l->size; at++) {
        if (!lexer_starts(l, at, "{%")) continue;
        char sign = at + 2 < l->size ? l->source[at + 2] : '\0';
        size_t here = skip_space(l, at + 2 + (sign == '-' || sign == '+'));
        if (!lexer_starts(l, here, "endraw")) continue;
        size_t end = close_of(l, skip_space(l, here + 6), "%}");
        if (end == 0) continue;
        add_text(l, text, at, sign, true);
        lexer_advance(l, end);
        return;
    }
    lexer_fail(l, "{% raw %} without {% endraw %}");
}

static void read_comment(struct lexer *l) {
    for (size_t at = l->at + 2; at < l->size; at++) {
        size_t end = close_of(l, at, "#}");
        if (end == 0) continue;
        lexer_advance(l, end);
        return;
    }
    lexer_fail(l, "{# without #}");
}

/* Strings. */

static int32_t read_digits(const char *at, size_t n, int base, size_t most, size_t *used) {
    int32_t value = 0;
    for (*used = 0; *used < n && *used < most; ++*used) {
        char c = at[*used], lower = (char)(c | 32);
        int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
        if (digit >= base) break;
        value = value * base + digit;
    }
    return value;
}

static size_t read_code(struct lexer *l, struct text_builder *b, const char *at, size_t n, size_t digits) {
    size_t used;
    int32_t c = read_digits(at, n, 16, digits, &used);
    if (used < digits || c > 0x10FFFF || c < 0 || (c >= 0xD800 && c < 0xE000))
        lexer_fail(l, "a string with an escape that is no character");
    builder_character(b, c, NULL, 0);
    return used;
}

/* The escape behind a backslash at[0, n); returns its bytes. */
static size_t read_escape(struct lexer *l, struct text_builder *b, const char *at, size_t n) {
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = at[0] ? strchr(letters, at[0]) : NULL;
    size_t used = 0;
    if (at[0] == '\n') return 1;
    if (simple) {
        builder_bytes(b, &values[simple - letters], NULL, 1);
        return 1;
    }
    if (at[0] >= '0' && at[0] <= '7') {
        builder_character(b, read_digits(at, n, 8, 3, &used), NULL, 0);
        return used;
    }
    if (at[0] == 'x') return 1 + read_code(l, b, at + 1, n - 1, 2);
    if (at[0] == 'u') return 1 + read_code(l, b, at + 1, n - 1, 4);
    if (at[0] == 'U') return 1 + read_code(l, b, at + 1, n - 1, 8);
    if (at[0] == 'N') lexer_fail(l, "\\N{...} in a string is not supported");
    builder_words(b, "\\");
    return 0;
}

static void read_string(struct lexer *l) {
    char quote = l->source[l->at];
    size_t end = l->at + 1;
    while (end < l->size && l->source[end] != quote) end += l->source[end] == '\\' ? 2 : 1;
    if (end >= l->size) lexer_fail(l, "a string without its closing quote");
    struct text_builder b = {.m = l->m};
    for (size_t at = l->at + 1; at < end;) {
        if (l->source[at] == '\\') {
            at++;
            at += read_escape(l, &b, l->source + at, end - at);
        } else {
            builder_bytes(&b, l->source + at++, NULL, 1);
        }
    }
    token_add(l, TOKEN_STRING)->text = builder_string(&b);
    lexer_advance(l, end + 1);
}

/* Numbers, names, operators. */

static bool is_digit(const struct lexer *l, size_t at) {
    return at < l->size && l->source[at] >= '0' && l->source[at] <= '9';
}

static size_t skip_digits(const struct lexer *l, size_t at) {
    while (is_digit(l, at) || (at < l->size && l->source[at] == '_' && is_digit(l, at + 1))) at++;
    return at;
}

static bool read_based(struct lexer *l) {
    static const struct {
        const char *prefix;
        int base;
    } bases[] = {{"0x", 16}, {"0X", 16}, {"0o", 8}, {"0O", 8}, {"0b", 2}, {"0B", 2}};
    for (size_t i = 0; i < ARRAY_COUNT(bases); i++) {
        if (!lexer_starts(l, l->at, bases[i].prefix)) continue;
        char *end;
        long long number = strtoll(l->source + l->at + 2, &end, bases[i].base);
        if (end == l->source + l->at + 2) return false;
        if (*end == '_') lexer_fail(l, "a number with _ in another base than ten is not supported");
        token_add(l, TOKEN_INT)->number = number;
        lexer_advance(l, (size_t)(end - l->source));
        return true;
    }
    return false;
}

static void read_number(struct lexer *l) {
    if (read_based(l)) return;
    char digits[64];
    size_t n = 0, end = skip_digits(l, l->at);
    bool real = false;
    bool after_dot = l->at > 0 && l->source[l->at - 1] == '.';
    if (!after_dot && end < l->size && l->source[end] == '.' && is_digit(l, end + 1)) {
        real = true;
        end = skip_digits(l, end + 1);
    }
    if (!after_dot && end < l->size && (l->source[end] | 32) == 'e') {
        size_t power = end + 1 + (end + 1 < l->size && (l->source[end + 1] == '+' || l->source[end + 1] == '-'));
        if (is_digit(l, power)) {
            real = true;
            end = skip_digits(l, power);
        }
    }
    if (!real && l->source[l->at] == '0' && end > l->at + 1 && strspn(l->source + l->at, "0_") < end - l->at)
        end = l->at + 1; /* Jinja reads 012 as 0 and 12, which no expression allows */
    for (size_t at = l->at; at < end; at++) {
        if (n + 1 >= sizeof digits) lexer_fail(l, "a number of more than 60 digits");
        if (l->source[at] == '_') continue;
        digits[n] = l->source[at];
        n++;
    }
    digits[n] = '\0';
    errno = 0;
    struct template_token *t = token_add(l, real ? TOKEN_FLOAT : TOKEN_INT);
    if (real)
        t->real = strtod(digits, NULL);
    else
        t->number = strtoll(digits, NULL, 10);
    if (!real && errno) lexer_fail(l, "a number beyond 64 bits is not supported");
    lexer_advance(l, end);
}

static bool read_name(struct lexer *l) {
    size_t end = l->at;
    while (end < l->size) {
        int32_t c;
        int n = utf8_read(l->source + end, l->size - end, &c);
        if (c < 0x80 ? !((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9') && c != '_'
                     : !unicode_is_word(c))
            break;
        end += (size_t)n;
    }
    if (end == l->at) return false;
    token_add(l, TOKEN_NAME)->text = string_of(l->m, l->source + l->at, end - l->at, false);
    lexer_advance(l, end);
    return true;
}

static void read_operator(struct lexer *l) {
    static const char closing[] = ")]}", opening[] = "([{";
    for (size_t i = 0; i < ARRAY_COUNT(operators); i++) {
        if (!lexer_starts(l, l->at, operators[i].words)) continue;
        const char *opens = strchr(opening, operators[i].words[0]), *closes = strchr(closing, operators[i].words[0]);
        if (opens) {
            if (l->n_brackets == MAX_BRACKETS) lexer_fail(l, "brackets nested too deep");
            l->brackets[l->n_brackets] = closing[opens - opening];
            l->n_brackets++;
        }
        if (closes) {
            if (l->n_brackets == 0 || l->brackets[l->n_brackets - 1] != *closes)
                lexer_fail(l, "a closing bracket that does not fit");
            l->n_brackets--;
        }
        token_add(l, TOKEN_OPERATOR)->operator= operators[i].operator;
        lexer_advance(l, l->at + strlen(operators[i].words));
        return;
    }
    lexer_fail(l, "a character that no expression has");
}

/* The inside of {{ }} or {% %}, to its end. */
static void read_inside(struct lexer *l, const char *mark, enum template_token_kind last) {
    l->n_brackets = 0;
    while (l->at < l->size) {
        size_t end = l->n_brackets == 0 ? close_of(l, l->at, mark) : 0;
        if (end > 0 && !(mark[0] == '}' && l->source[l->at] == '+')) {
            token_add(l, last);
            lexer_advance(l, end);
            return;
        }
        size_t blank = skip_space(l, l->at);
        if (blank > l->at)
            lexer_advance(l, blank);
        else if (l->source[l->at] == '"' || l->source[l->at] == '\'')
            read_string(l);
        else if (is_digit(l, l->at))
            read_number(l);
        else if (!read_name(l))
            read_operator(l);
    }
    lexer_fail(l, "a tag without its end");
}

static void read_tag(struct lexer *l, size_t text, size_t at) {
    char kind = l->source[at + 1], sign = at + 2 < l->size ? l->source[at + 2] : '\0';
    bool is_signed = sign == '-' || (sign == '+' && kind != '{');
    size_t raw = kind == '%' ? raw_begin(l, at) : 0;
    add_text(l, text, at, is_signed ? sign : '\0', kind != '{');
    lexer_advance(l, at);
    if (raw > 0) {
        read_raw(l, raw);
    } else if (kind == '#') {
        read_comment(l);
    } else {
        token_add(l, kind == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN);
        lexer_advance(l, at + 2 + is_signed);
        read_inside(l, kind == '%' ? "%}" : "}}", kind == '%' ? TOKEN_BLOCK_END : TOKEN_PRINT_END);
    }
}

/* Line ends become \n, and one at the very end is dropped. */
static void normalise_lines(struct lexer *l, struct text_span source) {
    char *copy = memory_take(l->m, source.size + 1);
    size_t n = 0;
    for (size_t i = 0; i < source.size; i++) {
        bool crlf = source.text[i] == '\r' && i + 1 < source.size && source.text[i + 1] == '\n';
        if (crlf) continue;
        copy[n] = source.text[i] == '\r' ? '\n' : source.text[i];
        n++;
    }
    l->source = copy;
    l->size = n > 0 && copy[n - 1] == '\n' ? n - 1 : n;
    copy[l->size] = '\0';
}

void lexer_read(struct template_memory *m, struct text_span source, struct template_tokens *out) {
    struct lexer l = {.m = m, .out = out, .line = 1, .line_starts = true};
    normalise_lines(&l, source);
    while (l.at < l.size) {
        size_t at = l.at;
        while (at < l.size && !lexer_starts(&l, at, "{{") && !lexer_starts(&l, at, "{%") && !lexer_starts(&l, at, "{#"))
            at++;
        if (at == l.size) {
            add_text(&l, l.at, at, '+', false);
            break;
        }
        read_tag(&l, l.at, at);
    }
    token_add(&l, TOKEN_END);
}
