/* retro/text/pretokenize.c: the only file that includes PCRE2. See pretokenize.h. */
#include "retro/text/pretokenize.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "config/text/unicode_ages.h"

struct regex {
    pcre2_code *code;
    pcre2_match_context *context;
};

/* PCRE2's \s has U+180E and its \w lacks marks; the reference's are White_Space and Unicode's word
 * characters. */
#define SPACE_RANGES \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define WORD_RANGES "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

/* Writes an escape of the pattern at p[0] == '\\' in PCRE2's words; returns bytes read, 0 when it
 * cannot. */
static size_t translate_escape(const char *p, size_t n, bool in_class, struct buffer *out) {
    if (n < 2) return 0;
    bool letters = n >= 5 && strncmp(p + 2, "{L}", 3) == 0,
         numbers = n >= 5 && strncmp(p + 2, "{N}", 3) == 0;
    if ((p[1] | 32) == 'p' && (letters || numbers)) {
        bool negated = p[1] == 'P';
        if (in_class && negated) return 0;
        buffer_printf(out, "%s%s%s%s%s",
                      in_class  ? ""
                      : negated ? "[^"
                                : "[",
                      "\\p", letters ? "{L}" : "{N}", letters ? age_letters : age_numbers,
                      in_class ? "" : "]");
        return 5;
    }
    const char *ranges = (p[1] | 32) == 's'   ? SPACE_RANGES
                         : (p[1] | 32) == 'w' ? WORD_RANGES
                                              : NULL;
    if (ranges != NULL) {
        bool negated = p[1] < 'a';
        if (in_class && negated) return 0;
        if (in_class) {
            buffer_append_string(out, ranges);
        } else {
            buffer_printf(out, "[%s%s]", negated ? "^" : "", ranges);
        }
        return 2;
    }
    /* \h is a hexadecimal digit to Oniguruma; the rest either means something else to it or needs
     * state. */
    if ((p[1] >= 'a' && p[1] <= 'z') || (p[1] >= 'A' && p[1] <= 'Z') ||
        (p[1] >= '0' && p[1] <= '9'))
        if (strchr("pPdDnrtxfa", p[1]) == NULL) return 0;
    /* The braces of a property or a code point belong to the escape. */
    const char *brace = n > 2 && p[2] == '{' && (p[1] | 32) != 'd' ? memchr(p, '}', n) : NULL;
    size_t used = brace ? (size_t)(brace - p) + 1 : 2;
    buffer_append(out, p, used);
    return used;
}

/* Rewrites what the two dialects read differently, and refuses what PCRE2 has no words for. */
static enum status pattern_translate(struct text_span in, struct buffer *out, struct error *e) {
    bool in_class = false, first = false;
    for (size_t i = 0; i < in.size;) {
        char c = in.text[i], next = i + 1 < in.size ? in.text[i + 1] : '\0';
        bool opens = !in_class && c == '[';
        bool refused = (in_class && c == '[') || (in_class && c == '&' && next == '&') ||
                       (!in_class && c == '}' && next == '+') ||
                       (!in_class && (c == '$' || c == '^'));
        size_t used = 1;
        if (c == '\\') {
            used = translate_escape(in.text + i, in.size - i, in_class, out);
            refused = used == 0;
        } else {
            buffer_append(out, &c, 1);
        }
        if (refused)
            return error_set(e, STATUS_UNSUPPORTED,
                             "regular expression: the construct at byte %zu is not supported "
                             "(nested or intersected "
                             "class, {n,m}+, an anchor, or an escape)",
                             i);
        if (opens) {
            if (next == '^') buffer_append(out, &next, 1);
            used += next == '^';
            in_class = first = true;
        } else if (in_class && c == ']' && !first) {
            in_class = false;
        } else {
            first = false;
        }
        i += used;
    }
    return STATUS_OK;
}

static enum status regex_compile(struct regex *regex, struct text_span pattern, bool literal,
                                 struct error *e) {
    int code;
    PCRE2_SIZE at;
    /* Oniguruma counts time, PCRE2 code size: a bound on compiled size keeps (((a{999}){999}){999})
     * out. */
    pcre2_compile_context *compile = pcre2_compile_context_create(NULL);
    if (compile == NULL) return error_set(e, STATUS_NO_MEMORY, "regular expression: out of memory");
    pcre2_set_max_pattern_length(compile, 1 << 16);
    pcre2_set_parens_nest_limit(compile, 50);
    uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
    regex->code =
        pcre2_compile((PCRE2_SPTR)pattern.text, pattern.size, options, &code, &at, compile);
    pcre2_compile_context_free(compile);
    if (regex->code == NULL) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(code, message, sizeof message);
        return error_set(e, STATUS_UNSUPPORTED, "regular expression: byte %zu: %s", at,
                         (const char *)message);
    }
    size_t bytes = 0;
    pcre2_pattern_info(regex->code, PCRE2_INFO_SIZE, &bytes);
    if (bytes > (1 << 20))
        return error_set(e, STATUS_UNSUPPORTED, "regular expression: compiles to over 1 MiB");
    /* Without JIT (hardened kernels) the interpreter gives the same matches, more slowly. */
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    regex->context = pcre2_match_context_create(NULL);
    if (regex->context == NULL)
        return error_set(e, STATUS_NO_MEMORY, "regular expression: out of memory");
    pcre2_set_match_limit(regex->context, 100000000);
    return STATUS_OK;
}

enum status regex_open(struct regex **out, struct text_span pattern, bool literal,
                       struct error *e) {
    struct regex *regex = xcalloc(1, sizeof *regex);
    struct buffer translated = {0};
    *out = NULL;
    enum status status = STATUS_OK;
    if (!literal) status = pattern_translate(pattern, &translated, e);
    struct text_span source =
        literal ? pattern : (struct text_span){translated.data, translated.size};
    if (status == STATUS_OK && source.size == 0)
        status = error_set(e, STATUS_UNSUPPORTED, "regular expression: empty pattern");
    if (status == STATUS_OK) status = regex_compile(regex, source, literal, e);
    buffer_free(&translated);
    if (status == STATUS_OK) {
        *out = regex;
    } else {
        regex_close(regex);
    }
    return status;
}

void regex_close(struct regex *regex) {
    if (regex == NULL) return;
    pcre2_code_free(regex->code);
    pcre2_match_context_free(regex->context);
    free(regex);
}

static void span_append(struct span_list *list, size_t start, size_t end) {
    if (list->n == list->capacity) {
        list->capacity = list->capacity * 2 + 64;
        list->spans = xrealloc(list->spans, list->capacity * sizeof *list->spans);
    }
    list->spans[list->n] = (struct span){start, end};
    list->n++;
}

static enum status match_error(int code, struct error *e) {
    PCRE2_UCHAR message[120];
    pcre2_get_error_message(code, message, sizeof message);
    return error_set(e, STATUS_TOO_LARGE,
                     "pre-tokenizer: the regular expression gave up on this text: %s",
                     (const char *)message);
}

enum status regex_find(const struct regex *regex, struct text_span text, struct span_list *out,
                       struct error *e) {
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(regex->code, NULL);
    if (data == NULL) return error_set(e, STATUS_NO_MEMORY, "regular expression: out of memory");
    const size_t *at = pcre2_get_ovector_pointer(data);
    enum status status = STATUS_OK;
    for (size_t from = 0; from <= text.size;) {
        /* The text is known to be valid; checking it at every match would be quadratic. */
        int rc = pcre2_match(regex->code, (PCRE2_SPTR)text.text, text.size, from,
                             PCRE2_NO_UTF_CHECK, data, regex->context);
        /* Compiled code has a fixed stack; the interpreter keeps its own on the heap. */
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(regex->code, (PCRE2_SPTR)text.text, text.size, from,
                             PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, regex->context);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            status = match_error(rc, e);
            break;
        }
        if (at[1] > at[0]) span_append(out, at[0], at[1]);
        from = at[1];
        if (at[1] <= at[0]) {
            /* An empty match splits between characters. */
            if (at[0] > 0 && at[0] < text.size) span_append(out, at[0], at[0]);
            from = at[0] + 1;
            while (from < text.size && ((uint8_t)text.text[from] & 0xC0) == 0x80) from++;
        }
    }
    pcre2_match_data_free(data);
    return status;
}

void pretokenizer_close(struct pretokenizer *pretokenizer) {
    for (int i = 0; i < pretokenizer->n; i++) regex_close(pretokenizer->steps[i].regex);
    pretokenizer->n = 0;
}

/* Adds one stretch, matched or not, to the pieces, as the behaviour asks. */
static void piece_add(struct span_list *pieces, const struct pretokenizer_step *step,
                      struct span span, bool matched, int *previous) {
    struct span *last = pieces->n ? &pieces->spans[pieces->n - 1] : NULL;
    bool join = false;
    switch (step->behaviour) {
        case SPLIT_ISOLATED: break;
        case SPLIT_REMOVED:
            if (matched) return;
            break;
        case SPLIT_MERGED_PREVIOUS: join = matched && *previous == 0; break;
        case SPLIT_MERGED_NEXT: join = !matched && *previous == 1; break;
        case SPLIT_CONTIGUOUS: join = *previous == (int)matched; break;
    }
    *previous = matched;
    if (join && last != NULL) {
        last->end = span.end;
    } else {
        span_append(pieces, span.start, span.end);
    }
}

static void find_characters(const struct pretokenizer_step *step, const struct mapped_text *text,
                            struct span_list *out) {
    for (size_t i = 0; i < text->size;) {
        int32_t c;
        size_t end = i + (size_t)utf8_read(text->text + i, text->size - i, &c);
        if (step->is_match(c)) span_append(out, i, end);
        i = end;
    }
}

static enum status step_split(const struct pretokenizer_step *step, const struct mapped_text *text,
                              struct span_list *pieces, struct error *e) {
    struct span_list matches = {0};
    enum status status = STATUS_OK;
    if (step->regex == NULL)
        find_characters(step, text, &matches);
    else
        status = regex_find(step->regex, (struct text_span){text->text, text->size}, &matches, e);
    size_t end = 0;
    int previous = -1;
    for (size_t i = 0; i < matches.n; i++) {
        struct span span = matches.spans[i];
        if (span.start > end)
            piece_add(pieces, step, (struct span){end, span.start}, step->invert, &previous);
        piece_add(pieces, step, span, !step->invert, &previous);
        end = span.end;
    }
    if (text->size > end)
        piece_add(pieces, step, (struct span){end, text->size}, step->invert, &previous);
    free(matches.spans);
    return status;
}

static enum status run_from(const struct pretokenizer *pretokenizer, int step,
                            const struct mapped_text *text, const struct piece_sink *sink,
                            struct error *e);

/* Runs the steps after `step` on `prefix` followed by text. */
static enum status run_prefixed(const struct pretokenizer *pretokenizer, int step,
                                struct text_span prefix, const struct mapped_text *text,
                                const struct piece_sink *sink, struct error *e) {
    struct mapped_buffer whole = {0};
    mapped_append(&whole, prefix.text, prefix.size, mapped_origin(text, 0));
    for (size_t i = 0; i < text->size; i++)
        mapped_append(&whole, text->text + i, 1, mapped_origin(text, i));

    struct mapped_text view = mapped_view(&whole);
    enum status status = run_from(pretokenizer, step + 1, &view, sink, e);
    mapped_free(&whole);
    return status;
}

static enum status run_metaspace(const struct pretokenizer *pretokenizer, int step,
                                 const struct mapped_text *text, const struct piece_sink *sink,
                                 struct error *e) {
    const struct pretokenizer_step *pretokenizer_step = &pretokenizer->steps[step];
    uint32_t origin = mapped_origin(text, 0);
    bool begins = text->text[0] == ' ' || (text->size >= pretokenizer_step->symbol_size &&
                                           memcmp(text->text, pretokenizer_step->symbol,
                                                  pretokenizer_step->symbol_size) == 0);
    bool wanted = pretokenizer_step->prepend == METASPACE_ALWAYS ||
                  (pretokenizer_step->prepend == METASPACE_FIRST && origin == 0);

    struct mapped_buffer whole = {0};
    if (wanted && !begins)
        mapped_append(&whole, pretokenizer_step->symbol, pretokenizer_step->symbol_size, origin);
    for (size_t i = 0; i < text->size; i++) {
        bool space = text->text[i] == ' ';
        mapped_append(&whole, space ? pretokenizer_step->symbol : text->text + i,
                      space ? pretokenizer_step->symbol_size : 1, mapped_origin(text, i));
    }

    struct mapped_text view = mapped_view(&whole);
    enum status status = run_from(pretokenizer, step + 1, &view, sink, e);
    mapped_free(&whole);
    return status;
}

static enum status run_split(const struct pretokenizer *pretokenizer, int step,
                             const struct mapped_text *text, const struct piece_sink *sink,
                             struct error *e) {
    struct span_list pieces = {0};
    enum status status = step_split(&pretokenizer->steps[step], text, &pieces, e);
    for (size_t i = 0; i < pieces.n && status == STATUS_OK; i++) {
        struct mapped_text piece = mapped_slice(text, pieces.spans[i].start, pieces.spans[i].end);
        status = run_from(pretokenizer, step + 1, &piece, sink, e);
    }
    free(pieces.spans);
    return status;
}

static enum status run_from(const struct pretokenizer *pretokenizer, int step,
                            const struct mapped_text *text, const struct piece_sink *sink,
                            struct error *e) {
    if (text->size == 0) return STATUS_OK;
    if (step == pretokenizer->n) return sink->take(sink->context, text, e);
    switch (pretokenizer->steps[step].kind) {
        case PRETOKENIZER_SPLIT: return run_split(pretokenizer, step, text, sink, e);
        case PRETOKENIZER_METASPACE: return run_metaspace(pretokenizer, step, text, sink, e);
        case PRETOKENIZER_PREFIX_SPACE: break;
    }
    if (text->text[0] == ' ') return run_from(pretokenizer, step + 1, text, sink, e);
    return run_prefixed(pretokenizer, step, (struct text_span){" ", 1}, text, sink, e);
}

enum status pretokenizer_run(const struct pretokenizer *pretokenizer,
                             const struct mapped_text *text, const struct piece_sink *sink,
                             struct error *e) {
    return run_from(pretokenizer, 0, text, sink, e);
}
