/* config/text/unicode.c: mapped text, normalisation, kinds of characters. See unicode.h. */
#include "config/text/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "config/text/unicode_ages.h"
#include "config/text/unicode_case.h"

struct mapped_text mapped_slice(const struct mapped_text *m, size_t from, size_t to) {
    return (struct mapped_text){m->text + from, to - from, m->origin ? m->origin + from : NULL,
                                m->base + (uint32_t)from};
}

void mapped_append(struct mapped_buffer *b, const char *bytes, size_t n, uint32_t origin) {
    if (n > b->capacity - b->size) {
        b->capacity = (b->capacity + n) * 2 + 64;
        b->text = xrealloc(b->text, b->capacity);
        b->origin = xrealloc(b->origin, b->capacity * sizeof *b->origin);
    }
    for (size_t i = 0; i < n; i++) {
        b->text[b->size] = bytes[i];
        b->origin[b->size] = origin;
        b->size++;
    }
}

static void append_character(struct mapped_buffer *b, int32_t character, uint32_t origin) {
    char bytes[4];
    mapped_append(b, bytes, (size_t)utf8proc_encode_char(character, (utf8proc_uint8_t *)bytes), origin);
}

struct mapped_text mapped_view(const struct mapped_buffer *b) {
    return (struct mapped_text){b->text ? b->text : "", b->size, b->origin, 0};
}

void mapped_free(struct mapped_buffer *b) {
    free(b->text);
    free(b->origin);
    *b = (struct mapped_buffer){0};
}

void unicode_repair(const char *text, size_t size, struct mapped_buffer *out) {
    for (size_t i = 0; i < size;) {
        int32_t c;
        int length = utf8_read(text + i, size - i, &c);
        if (c < 0) {
            mapped_append(out, "\xEF\xBF\xBD", 3, (uint32_t)i);
        } else {
            /* A character split over two tokens starts in its own middle, so each byte keeps its own place. */
            for (int k = 0; k < length; k++) mapped_append(out, text + i + k, 1, (uint32_t)i + (uint32_t)k);
        }
        i += (size_t)length;
    }
}

bool unicode_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool unicode_is_word(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_ND) || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
           (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189) ||
           age_word(c);
}

bool unicode_is_punctuation(int32_t c) {
    if (c < 0x80) return c > ' ' && c < 0x7F && !((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9');
    utf8proc_category_t k = utf8proc_category(c);
    if (c == 0x166D || c == 0x111C9) return true; /* punctuation in the reference's older Unicode */
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO && !age_not_punctuation(c);
}

bool unicode_is_printable(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return c == ' ' || (k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS);
}

bool unicode_is_letter(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_decimal(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_ND; }

bool unicode_is_digit(int32_t c) {
    return unicode_is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0x1369 && c <= 0x1371) ||
           c == 0x19DA || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
           (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) || (c >= 0x2488 && c <= 0x2490) ||
           c == 0x24EA || (c >= 0x24F5 && c <= 0x24FD) || c == 0x24FF || (c >= 0x2776 && c <= 0x277E) ||
           (c >= 0x2780 && c <= 0x2788) || (c >= 0x278A && c <= 0x2792) || (c >= 0x10A40 && c <= 0x10A43) ||
           (c >= 0x10E60 && c <= 0x10E68) || (c >= 0x11052 && c <= 0x1105A) || (c >= 0x1F100 && c <= 0x1F10A);
}

bool unicode_is_numeric(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool unicode_is_upper(int32_t c) { return utf8proc_isupper(c); }
bool unicode_is_lower(int32_t c) { return utf8proc_islower(c); }

bool unicode_is_cased(int32_t c) {
    return utf8proc_isupper(c) || utf8proc_islower(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

bool unicode_is_case_ignorable(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
           c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

int32_t unicode_lower(int32_t c) { return utf8proc_tolower(c); }

int unicode_map_case(int32_t c, enum unicode_case form, int32_t to[3]) {
    const int32_t *special = form == UNICODE_CASE_LOWER ? NULL : unicode_special_case(c, form == UNICODE_CASE_TITLE);
    to[0] = form == UNICODE_CASE_UPPER   ? utf8proc_toupper(c)
            : form == UNICODE_CASE_TITLE ? utf8proc_totitle(c)
                                         : utf8proc_tolower(c);
    if (form == UNICODE_CASE_LOWER && c == 0x130) {
        to[0] = 'i';
        to[1] = 0x307;
        return 2;
    }
    if (special == NULL) return 1;
    int n = 0;
    for (; n < 3 && special[n] != 0; n++) to[n] = special[n];
    return n;
}

size_t unicode_grapheme(const char *text, size_t size) {
    int32_t before, after, state = 0;
    size_t end = (size_t)utf8_read(text, size, &before);
    while (end < size) {
        size_t length = (size_t)utf8_read(text + end, size - end, &after);
        if (utf8proc_grapheme_break_stateful(before, after, &state)) break;
        end += length;
        before = after;
    }
    return end;
}

/* U+0130 is the only character whose lower case is two characters. */
static void append_lower(struct mapped_buffer *out, int32_t c, uint32_t origin) {
    if (c == 0x130) {
        mapped_append(out, "i\xCC\x87", 3, origin);
    } else {
        int32_t offset = age_lower_offset(c);
        append_character(out, offset ? c + offset : utf8proc_tolower(c), origin);
    }
}

void unicode_lowercase(const struct mapped_text *in, struct mapped_buffer *out) {
    for (size_t i = 0; i < in->size;) {
        int32_t c;
        int length = utf8_read(in->text + i, in->size - i, &c);
        append_lower(out, c, mapped_origin(in, i));
        i += (size_t)length;
    }
}

/* Characters of one stretch that normalises on its own, with their origins. */
struct stretch {
    utf8proc_int32_t *c, *sorted;
    uint32_t *origin, *sorted_origin;
    size_t n, capacity;
};

static void stretch_add(struct stretch *s, int32_t c, unsigned options, uint32_t origin) {
    if (s->capacity - s->n < 32) {
        s->capacity = s->capacity * 2 + 64;
        s->c = xrealloc(s->c, s->capacity * sizeof *s->c);
        s->sorted = xrealloc(s->sorted, s->capacity * sizeof *s->sorted);
        s->origin = xrealloc(s->origin, s->capacity * sizeof *s->origin);
        s->sorted_origin = xrealloc(s->sorted_origin, s->capacity * sizeof *s->sorted_origin);
    }
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char(c, s->c + s->n, 32, (utf8proc_option_t)(UTF8PROC_DECOMPOSE | options), &boundary);
    /* No character decomposes into more than 18. */
    CHECK(n >= 0 && n <= 32);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        s->origin[s->n] = origin;
        s->n++;
    }
}

static int combining_class(int32_t c) {
    int k = utf8proc_get_property(c)->combining_class;
    return k != 0 && age_not_combining(c) ? 0 : k;
}

/* Canonical ordering of one run of non-starters [from, to): a stable counting sort, so that a megabyte of marks on one
 * letter takes linear time. */
static void sort_marks(struct stretch *s, size_t from, size_t to) {
    size_t place[257] = {0};
    for (size_t i = from; i < to; i++) place[combining_class(s->c[i]) + 1]++;
    for (int k = 0; k < 256; k++) place[k + 1] += place[k];
    for (size_t i = from; i < to; i++) {
        size_t *next = &place[combining_class(s->c[i])], at = *next;
        (*next)++;
        s->sorted[at] = s->c[i];
        s->sorted_origin[at] = s->origin[i];
    }
    memcpy(s->c + from, s->sorted, (to - from) * sizeof *s->c);
    memcpy(s->origin + from, s->sorted_origin, (to - from) * sizeof *s->origin);
}

static void stretch_flush(struct stretch *s, bool compose, struct mapped_buffer *out) {
    for (size_t i = 0; i < s->n;) {
        size_t to = i;
        bool sorted = true;
        while (to < s->n && combining_class(s->c[to]) != 0) {
            sorted = sorted && (to == i || combining_class(s->c[to - 1]) <= combining_class(s->c[to]));
            to++;
        }
        if (!sorted) sort_marks(s, i, to);
        i = to + 1;
    }
    size_t n = s->n;
    if (compose && n > 1)
        n = (size_t)utf8proc_normalize_utf32(s->c, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    /* A composed character counts from where its stretch began; otherwise every character keeps its own origin. */
    for (size_t i = 0; i < n; i++) append_character(out, s->c[i], n == s->n ? s->origin[i] : s->origin[0]);
    s->n = 0;
}

static void stretch_free(struct stretch *s) {
    free(s->c);
    free(s->sorted);
    free(s->origin);
    free(s->sorted_origin);
}

/* Whether c may combine with what stands before it. */
static bool joins_previous(int32_t c) {
    const utf8proc_property_t *p = utf8proc_get_property(c);
    return p->combining_class != 0 || p->boundclass == UTF8PROC_BOUNDCLASS_EXTEND ||
           p->boundclass == UTF8PROC_BOUNDCLASS_SPACINGMARK || p->boundclass == UTF8PROC_BOUNDCLASS_V ||
           p->boundclass == UTF8PROC_BOUNDCLASS_T;
}

void unicode_normalise(const struct mapped_text *in, enum unicode_form form, struct mapped_buffer *out) {
    struct stretch s = {0};
    bool compose = form == UNICODE_NFC || form == UNICODE_NFKC;
    bool compatible = form == UNICODE_NFKC || form == UNICODE_NFKD;
    for (size_t i = 0; i < in->size;) {
        int32_t c;
        int length = utf8_read(in->text + i, in->size - i, &c);
        if (s.n > 0 && (c < 0x80 || !joins_previous(c))) stretch_flush(&s, compose, out);
        stretch_add(&s, c, compatible && !age_not_decomposed(c) ? UTF8PROC_COMPAT : 0, mapped_origin(in, i));
        i += (size_t)length;
    }
    stretch_flush(&s, compose, out);
    stretch_free(&s);
}

static char ascii_lower(int32_t c) { return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c); }

void unicode_fold(const char *text, size_t size, struct mapped_buffer *out) {
    const unsigned options = UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE;
    struct stretch s = {0};
    for (size_t i = 0; i < size;) {
        int32_t c;
        int length = utf8_read(text + i, size - i, &c);
        if (s.n > 0 && (c < 0x80 || !joins_previous(c))) stretch_flush(&s, true, out);
        bool alone = c < 0x80 && (i + 1 >= size || (unsigned char)text[i + 1] < 0x80);
        if (alone)
            mapped_append(out, &(char){ascii_lower(c)}, 1, 0);
        else
            stretch_add(&s, c < 0 || c == 0x200B ? ' ' : c, options, 0);
        i += (size_t)length;
    }
    stretch_flush(&s, true, out);
    stretch_free(&s);
}

/* The ranges as the tokenizers library has them, with its U+2B920 for U+2B820. */
static bool is_chinese(int32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Control, format and private use characters; surrogates cannot occur. */
static bool is_control(int32_t c) {
    if (c == '\t' || c == '\n' || c == '\r') return false;
    utf8proc_category_t k = utf8proc_category(c);
    return (k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO) && !age_not_control(c);
}

/* Category Mn, and U+1734 as in the reference's older Unicode. */
static bool is_nonspacing(int32_t c) {
    return c == 0x1734 || (utf8proc_category(c) == UTF8PROC_CATEGORY_MN && !age_not_nonspacing(c));
}

static void bert_append(const struct bert_normalizer *b, int32_t c, uint32_t origin, struct mapped_buffer *out) {
    if (b->lowercase) {
        append_lower(out, c, origin);
    } else {
        append_character(out, c, origin);
    }
}

static void bert_character(const struct bert_normalizer *b, int32_t c, uint32_t origin, struct mapped_buffer *out) {
    if (b->clean_text) {
        if (c == 0 || c == 0xFFFD || is_control(c)) return;
        if (unicode_is_space(c)) c = ' ';
    }
    bool chinese = b->handle_chinese_chars && is_chinese(c);
    if (chinese) mapped_append(out, " ", 1, origin);
    if (!b->strip_accents) {
        bert_append(b, c, origin, out);
    } else {
        /* Marks are dropped, so their canonical order does not matter and one character at a time is enough. */
        utf8proc_int32_t parts[32];
        int boundary = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
        CHECK(n >= 0 && n <= 32);
        for (utf8proc_ssize_t i = 0; i < n; i++)
            if (!is_nonspacing(parts[i])) bert_append(b, parts[i], origin, out);
    }
    if (chinese) mapped_append(out, " ", 1, origin);
}

void unicode_normalise_bert(const struct mapped_text *in, const struct bert_normalizer *b, struct mapped_buffer *out) {
    for (size_t i = 0; i < in->size;) {
        int32_t c;
        int length = utf8_read(in->text + i, in->size - i, &c);
        if (c >= ' ' && c < 0x7F) {
            char lower = b->lowercase ? ascii_lower(c) : (char)c;
            mapped_append(out, &lower, 1, mapped_origin(in, i));
        } else {
            bert_character(b, c, mapped_origin(in, i), out);
        }
        i += (size_t)length;
    }
}
