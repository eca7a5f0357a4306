/* retro/template/lexer.c: a template's source as tokens, by the rules of Jinja's own lexer: where
 * white space around tags goes (trim_blocks, lstrip_blocks, the signs - and +), what is a name, a
 * number, a string. */
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

const char *token_words(const struct template_token *token, char words[64]) {
    switch (token->kind) {
        case TOKEN_END: return "the end of the template";
        case TOKEN_TEXT: return "text";
        case TOKEN_PRINT_BEGIN: return "{{";
        case TOKEN_PRINT_END: return "}}";
        case TOKEN_BLOCK_BEGIN: return "{%";
        case TOKEN_BLOCK_END: return "%}";
        case TOKEN_OPERATOR: return operator_words(token->operator);
        case TOKEN_STRING: return "a string";
        case TOKEN_INT:
        case TOKEN_FLOAT: return "a number";
        case TOKEN_NAME: break;
    }
    size_t n = token->text->size < 60 ? token->text->size : 60;
    memcpy(words, token->text->text, n);
    words[n] = '\0';
    return words;
}

_Noreturn static void lexer_fail(const struct lexer *lexer, const char *words) {
    memory_fail(lexer->m, STATUS_INVALID, "line %d: %s", lexer->line, words);
}

static struct template_token *token_add(struct lexer *lexer, enum template_token_kind kind) {
    struct template_tokens *out = lexer->out;
    out->tokens = memory_grow(lexer->m, out->tokens, out->n, &out->capacity, sizeof *out->tokens);
    struct template_token *token = &out->tokens[out->n];
    *token = (struct template_token){.kind = kind, .line = lexer->line};
    out->n++;
    return token;
}

/* \s of Python's expressions at a place: the bytes of it, or 0. */
static size_t space_at(const struct lexer *lexer, size_t at) {
    int32_t c;
    if (at >= lexer->size) return 0;
    int n = utf8_read(lexer->source + at, lexer->size - at, &c);
    return python_is_space(c) ? (size_t)n : 0;
}

static bool lexer_starts(const struct lexer *lexer, size_t at, const char *words) {
    size_t n = strlen(words);
    return lexer->size - at >= n && memcmp(lexer->source + at, words, n) == 0;
}

static size_t skip_space(const struct lexer *lexer, size_t at) {
    for (size_t n; (n = space_at(lexer, at)) > 0;) at += n;
    return at;
}

/* Moves on and counts lines. */
static void lexer_advance(struct lexer *lexer, size_t to) {
    for (; lexer->at < to; lexer->at++) lexer->line += lexer->source[lexer->at] == '\n';
    lexer->line_starts = to > 0 && lexer->source[to - 1] == '\n';
}

/* Where a tag's closing "%}" or "#}" ends, with what it cuts behind it; 0: it is not at this place.
 */
static size_t close_of(const struct lexer *lexer, size_t at, const char *mark) {
    char sign = at < lexer->size ? lexer->source[at] : '\0';
    bool signed_mark = (sign == '-' || sign == '+') && lexer_starts(lexer, at + 1, mark);
    if (!signed_mark && !lexer_starts(lexer, at, mark)) return 0;
    size_t end = at + (signed_mark ? 3 : 2);
    if (signed_mark && sign == '-') return skip_space(lexer, end);
    if (!signed_mark && mark[0] != '}' && end < lexer->size && lexer->source[end] == '\n') end++;
    return end;
}

/* The text before a tag at [from, to), cut by the tag's sign or by lstrip_blocks. */
static void add_text(struct lexer *lexer, size_t from, size_t to, char sign, bool block) {
    struct template_string whole = {.text = lexer->source + from, .size = to - from};
    if (sign == '-') {
        whole.size = string_strip(lexer->m, &whole, NULL, false, true)->size;
    } else if (sign != '+' && block) {
        size_t line = whole.size;
        while (line > 0 && whole.text[line - 1] != '\n') line--;
        bool blank = skip_space(&(struct lexer){.source = whole.text, .size = whole.size}, line) ==
                     whole.size;
        if (blank && (line > 0 || lexer->line_starts)) whole.size = line;
    }
    if (whole.size > 0)
        token_add(lexer, TOKEN_TEXT)->text = string_of(lexer->m, whole.text, whole.size, false);
}

/* Whether "{% raw %}" is at `at`: where its text begins, else 0. */
static size_t raw_begin(const struct lexer *lexer, size_t at) {
    size_t here = at + 2;
    if (here < lexer->size && (lexer->source[here] == '-' || lexer->source[here] == '+')) here++;
    here = skip_space(lexer, here);
    if (!lexer_starts(lexer, here, "raw")) return 0;
    here = skip_space(lexer, here + 3);
    if (lexer_starts(lexer, here, "-%}")) return skip_space(lexer, here + 3);
    return lexer_starts(lexer, here, "%}") ? here + 2 : 0;
}

static void read_raw(struct lexer *lexer, size_t text) {
    lexer_advance(lexer, text);
    for (size_t at = text; at + 2 <= lexer->size; at++) {
        if (!lexer_starts(lexer, at, "{%")) continue;
        char sign = at + 2 < lexer->size ? lexer->source[at + 2] : '\0';
        size_t here = skip_space(lexer, at + 2 + (sign == '-' || sign == '+'));
        if (!lexer_starts(lexer, here, "endraw")) continue;
        size_t end = close_of(lexer, skip_space(lexer, here + 6), "%}");
        if (end == 0) continue;
        add_text(lexer, text, at, sign, true);
        lexer_advance(lexer, end);
        return;
    }
    lexer_fail(lexer, "{% raw %} without {% endraw %}");
}

static void read_comment(struct lexer *lexer) {
    for (size_t at = lexer->at + 2; at < lexer->size; at++) {
        size_t end = close_of(lexer, at, "#}");
        if (end == 0) continue;
        lexer_advance(lexer, end);
        return;
    }
    lexer_fail(lexer, "{# without #}");
}

/* Strings. */

static int32_t read_digits(const char *at, size_t n, int base, size_t most, size_t *used) {
    int32_t value = 0;
    for (*used = 0; *used < n && *used < most; ++*used) {
        char c = at[*used], lower = (char)(c | 32);
        int digit = c >= '0' && c <= '9'           ? c - '0'
                    : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                   : 99;
        if (digit >= base) break;
        value = value * base + digit;
    }
    return value;
}

static size_t read_code(struct lexer *lexer, struct text_builder *builder, const char *at, size_t n,
                        size_t digits) {
    size_t used;
    int32_t c = read_digits(at, n, 16, digits, &used);
    if (used < digits || c > 0x10FFFF || c < 0 || (c >= 0xD800 && c < 0xE000))
        lexer_fail(lexer, "a string with an escape that is no character");
    builder_character(builder, c, NULL, 0);
    return used;
}

/* The escape behind a backslash at[0, n); returns its bytes. */
static size_t read_escape(struct lexer *lexer, struct text_builder *builder, const char *at,
                          size_t n) {
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = at[0] ? strchr(letters, at[0]) : NULL;
    size_t used = 0;
    if (at[0] == '\n') return 1;
    if (simple) {
        builder_bytes(builder, &values[simple - letters], NULL, 1);
        return 1;
    }
    if (at[0] >= '0' && at[0] <= '7') {
        builder_character(builder, read_digits(at, n, 8, 3, &used), NULL, 0);
        return used;
    }
    if (at[0] == 'x') return 1 + read_code(lexer, builder, at + 1, n - 1, 2);
    if (at[0] == 'u') return 1 + read_code(lexer, builder, at + 1, n - 1, 4);
    if (at[0] == 'U') return 1 + read_code(lexer, builder, at + 1, n - 1, 8);
    if (at[0] == 'N') lexer_fail(lexer, "\\N{...} in a string is not supported");
    builder_words(builder, "\\");
    return 0;
}

static void read_string(struct lexer *lexer) {
    char quote = lexer->source[lexer->at];
    size_t end = lexer->at + 1;
    while (end < lexer->size && lexer->source[end] != quote)
        end += lexer->source[end] == '\\' ? 2 : 1;
    if (end >= lexer->size) lexer_fail(lexer, "a string without its closing quote");
    struct text_builder builder = {.m = lexer->m};
    for (size_t at = lexer->at + 1; at < end;) {
        if (lexer->source[at] == '\\') {
            at++;
            at += read_escape(lexer, &builder, lexer->source + at, end - at);
        } else {
            builder_bytes(&builder, lexer->source + at++, NULL, 1);
        }
    }
    token_add(lexer, TOKEN_STRING)->text = builder_string(&builder);
    lexer_advance(lexer, end + 1);
}

/* Numbers, names, operators. */

static bool is_digit(const struct lexer *lexer, size_t at) {
    return at < lexer->size && lexer->source[at] >= '0' && lexer->source[at] <= '9';
}

static size_t skip_digits(const struct lexer *lexer, size_t at) {
    while (is_digit(lexer, at) ||
           (at < lexer->size && lexer->source[at] == '_' && is_digit(lexer, at + 1)))
        at++;
    return at;
}

static bool read_based(struct lexer *lexer) {
    static const struct {
        const char *prefix;
        int base;
    } bases[] = {{"0x", 16}, {"0X", 16}, {"0o", 8}, {"0O", 8}, {"0b", 2}, {"0B", 2}};
    for (size_t i = 0; i < ARRAY_COUNT(bases); i++) {
        if (!lexer_starts(lexer, lexer->at, bases[i].prefix)) continue;
        char *end;
        long long number = strtoll(lexer->source + lexer->at + 2, &end, bases[i].base);
        if (end == lexer->source + lexer->at + 2) return false;
        if (*end == '_')
            lexer_fail(lexer, "a number with _ in another base than ten is not supported");
        token_add(lexer, TOKEN_INT)->number = number;
        lexer_advance(lexer, (size_t)(end - lexer->source));
        return true;
    }
    return false;
}

static void read_number(struct lexer *lexer) {
    if (read_based(lexer)) return;
    char digits[64];
    size_t n = 0, end = skip_digits(lexer, lexer->at);
    bool real = false;
    bool after_dot = lexer->at > 0 && lexer->source[lexer->at - 1] == '.';
    if (!after_dot && end < lexer->size && lexer->source[end] == '.' && is_digit(lexer, end + 1)) {
        real = true;
        end = skip_digits(lexer, end + 1);
    }
    if (!after_dot && end < lexer->size && (lexer->source[end] | 32) == 'e') {
        size_t power = end + 1 +
                       (end + 1 < lexer->size &&
                        (lexer->source[end + 1] == '+' || lexer->source[end + 1] == '-'));
        if (is_digit(lexer, power)) {
            real = true;
            end = skip_digits(lexer, power);
        }
    }
    if (!real && lexer->source[lexer->at] == '0' && end > lexer->at + 1 &&
        strspn(lexer->source + lexer->at, "0_") < end - lexer->at)
        end = lexer->at + 1; /* Jinja reads 012 as 0 and 12, which no expression allows */
    for (size_t at = lexer->at; at < end; at++) {
        if (n + 1 >= sizeof digits) lexer_fail(lexer, "a number of more than 60 digits");
        if (lexer->source[at] == '_') continue;
        digits[n] = lexer->source[at];
        n++;
    }
    digits[n] = '\0';
    errno = 0;
    struct template_token *token = token_add(lexer, real ? TOKEN_FLOAT : TOKEN_INT);
    if (real)
        token->real = strtod(digits, NULL);
    else
        token->number = strtoll(digits, NULL, 10);
    if (!real && errno) lexer_fail(lexer, "a number beyond 64 bits is not supported");
    lexer_advance(lexer, end);
}

static bool read_name(struct lexer *lexer) {
    size_t end = lexer->at;
    while (end < lexer->size) {
        int32_t c;
        int n = utf8_read(lexer->source + end, lexer->size - end, &c);
        if (c < 0x80 ? !((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9') && c != '_'
                     : !unicode_is_word(c))
            break;
        end += (size_t)n;
    }
    if (end == lexer->at) return false;
    token_add(lexer, TOKEN_NAME)->text =
        string_of(lexer->m, lexer->source + lexer->at, end - lexer->at, false);
    lexer_advance(lexer, end);
    return true;
}

static void read_operator(struct lexer *lexer) {
    static const char closing[] = ")]}", opening[] = "([{";
    for (size_t i = 0; i < ARRAY_COUNT(operators); i++) {
        if (!lexer_starts(lexer, lexer->at, operators[i].words)) continue;
        const char *opens = strchr(opening, operators[i].words[0]),
                   *closes = strchr(closing, operators[i].words[0]);
        if (opens) {
            if (lexer->n_brackets == MAX_BRACKETS) lexer_fail(lexer, "brackets nested too deep");
            lexer->brackets[lexer->n_brackets] = closing[opens - opening];
            lexer->n_brackets++;
        }
        if (closes) {
            if (lexer->n_brackets == 0 || lexer->brackets[lexer->n_brackets - 1] != *closes)
                lexer_fail(lexer, "a closing bracket that does not fit");
            lexer->n_brackets--;
        }
        token_add(lexer, TOKEN_OPERATOR)->operator= operators[i].operator;
        lexer_advance(lexer, lexer->at + strlen(operators[i].words));
        return;
    }
    lexer_fail(lexer, "a character that no expression has");
}

/* The inside of {{ }} or {% %}, to its end. */
static void read_inside(struct lexer *lexer, const char *mark, enum template_token_kind last) {
    lexer->n_brackets = 0;
    while (lexer->at < lexer->size) {
        size_t end = lexer->n_brackets == 0 ? close_of(lexer, lexer->at, mark) : 0;
        if (end > 0 && !(mark[0] == '}' && lexer->source[lexer->at] == '+')) {
            token_add(lexer, last);
            lexer_advance(lexer, end);
            return;
        }
        size_t blank = skip_space(lexer, lexer->at);
        if (blank > lexer->at)
            lexer_advance(lexer, blank);
        else if (lexer->source[lexer->at] == '"' || lexer->source[lexer->at] == '\'')
            read_string(lexer);
        else if (is_digit(lexer, lexer->at))
            read_number(lexer);
        else if (!read_name(lexer))
            read_operator(lexer);
    }
    lexer_fail(lexer, "a tag without its end");
}

static void read_tag(struct lexer *lexer, size_t text, size_t at) {
    char kind = lexer->source[at + 1], sign = at + 2 < lexer->size ? lexer->source[at + 2] : '\0';
    bool is_signed = sign == '-' || (sign == '+' && kind != '{');
    size_t raw = kind == '%' ? raw_begin(lexer, at) : 0;
    add_text(lexer, text, at, is_signed ? sign : '\0', kind != '{');
    lexer_advance(lexer, at);
    if (raw > 0) {
        read_raw(lexer, raw);
    } else if (kind == '#') {
        read_comment(lexer);
    } else {
        token_add(lexer, kind == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN);
        lexer_advance(lexer, at + 2 + is_signed);
        read_inside(lexer, kind == '%' ? "%}" : "}}",
                    kind == '%' ? TOKEN_BLOCK_END : TOKEN_PRINT_END);
    }
}

/* Line ends become \n, and one at the very end is dropped. */
static void normalise_lines(struct lexer *lexer, struct text_span source) {
    char *copy = memory_take(lexer->m, source.size + 1);
    size_t n = 0;
    for (size_t i = 0; i < source.size; i++) {
        bool crlf = source.text[i] == '\r' && i + 1 < source.size && source.text[i + 1] == '\n';
        if (crlf) continue;
        copy[n] = source.text[i] == '\r' ? '\n' : source.text[i];
        n++;
    }
    lexer->source = copy;
    lexer->size = n > 0 && copy[n - 1] == '\n' ? n - 1 : n;
    copy[lexer->size] = '\0';
}

void lexer_read(struct template_memory *memory, struct text_span source,
                struct template_tokens *out) {
    struct lexer lexer = {.m = memory, .out = out, .line = 1, .line_starts = true};
    normalise_lines(&lexer, source);
    while (lexer.at < lexer.size) {
        size_t at = lexer.at;
        while (at < lexer.size && !lexer_starts(&lexer, at, "{{") &&
               !lexer_starts(&lexer, at, "{%") && !lexer_starts(&lexer, at, "{#"))
            at++;
        if (at == lexer.size) {
            add_text(&lexer, lexer.at, at, '+', false);
            break;
        }
        read_tag(&lexer, lexer.at, at);
    }
    token_add(&lexer, TOKEN_END);
}
