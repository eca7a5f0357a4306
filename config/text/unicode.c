/* config/text/unicode.c: mapped text, normalisation, kinds of characters. See unicode.h. */
#include "config/text/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "config/text/unicode_ages.h"
#include "config/text/unicode_case.h"

struct mapped_text mapped_slice(const struct mapped_text *text, size_t from, size_t to) {
    return (struct mapped_text){text->text + from, to - from,
                                text->origin ? text->origin + from : NULL,
                                text->base + (uint32_t)from};
}

void mapped_append(struct mapped_buffer *buffer, const char *bytes, size_t n, uint32_t origin) {
    if (n > buffer->capacity - buffer->size) {
        buffer->capacity = (buffer->capacity + n) * 2 + 64;
        buffer->text = xrealloc(buffer->text, buffer->capacity);
        buffer->origin = xrealloc(buffer->origin, buffer->capacity * sizeof *buffer->origin);
    }
    for (size_t i = 0; i < n; i++) {
        buffer->text[buffer->size] = bytes[i];
        buffer->origin[buffer->size] = origin;
        buffer->size++;
    }
}

size_t unicode_write(int32_t character, char bytes[4]) {
    if (!utf8proc_codepoint_valid(character)) return 0;
    return (size_t)utf8proc_encode_char(character, (utf8proc_uint8_t *)bytes);
}

static void append_character(struct mapped_buffer *buffer, int32_t character, uint32_t origin) {
    char bytes[4];
    mapped_append(buffer, bytes, unicode_write(character, bytes), origin);
}

struct mapped_text mapped_view(const struct mapped_buffer *buffer) {
    return (struct mapped_text){buffer->text ? buffer->text : "", buffer->size, buffer->origin, 0};
}

void mapped_free(struct mapped_buffer *buffer) {
    free(buffer->text);
    free(buffer->origin);
    *buffer = (struct mapped_buffer){0};
}

void unicode_repair(const char *text, size_t size, struct mapped_buffer *out) {
    for (size_t i = 0; i < size;) {
        int32_t c;
        int length = utf8_read(text + i, size - i, &c);
        if (c < 0) {
            mapped_append(out, "\xEF\xBF\xBD", 3, (uint32_t)i);
        } else {
            /* A character split over two tokens starts in its own middle, so each byte keeps its
             * own place. */
            for (int k = 0; k < length; k++)
                mapped_append(out, text + i + k, 1, (uint32_t)i + (uint32_t)k);
        }
        i += (size_t)length;
    }
}

bool unicode_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool unicode_is_word(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_ND) || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D ||
           (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189) || age_word(c);
}

bool unicode_is_punctuation(int32_t c) {
    if (c < 0x80)
        return c > ' ' && c < 0x7F && !((c | 32) >= 'a' && (c | 32) <= 'z') &&
               !(c >= '0' && c <= '9');
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
    return unicode_is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
           (c >= 0x1369 && c <= 0x1371) || c == 0x19DA || c == 0x2070 ||
           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
           (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
           (c >= 0x2488 && c <= 0x2490) || c == 0x24EA || (c >= 0x24F5 && c <= 0x24FD) ||
           c == 0x24FF || (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) ||
           (c >= 0x278A && c <= 0x2792) || (c >= 0x10A40 && c <= 0x10A43) ||
           (c >= 0x10E60 && c <= 0x10E68) || (c >= 0x11052 && c <= 0x1105A) ||
           (c >= 0x1F100 && c <= 0x1F10A);
}

bool unicode_is_numeric(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool unicode_is_upper(int32_t c) { return utf8proc_isupper(c); }
bool unicode_is_lower(int32_t c) { return utf8proc_islower(c); }

bool unicode_is_cased(int32_t c) {
    return utf8proc_isupper(c) || utf8proc_islower(c) ||
           utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

bool unicode_is_case_ignorable(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
           c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

int32_t unicode_lower(int32_t c) { return utf8proc_tolower(c); }

int unicode_map_case(int32_t c, enum unicode_case form, int32_t to[3]) {
    const int32_t *special =
        form == UNICODE_CASE_LOWER ? NULL : unicode_special_case(c, form == UNICODE_CASE_TITLE);
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

static void stretch_add(struct stretch *stretch, int32_t c, unsigned options, uint32_t origin) {
    if (stretch->capacity - stretch->n < 32) {
        stretch->capacity = stretch->capacity * 2 + 64;
        stretch->c = xrealloc(stretch->c, stretch->capacity * sizeof *stretch->c);
        stretch->sorted = xrealloc(stretch->sorted, stretch->capacity * sizeof *stretch->sorted);
        stretch->origin = xrealloc(stretch->origin, stretch->capacity * sizeof *stretch->origin);
        stretch->sorted_origin =
            xrealloc(stretch->sorted_origin, stretch->capacity * sizeof *stretch->sorted_origin);
    }
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char(c, stretch->c + stretch->n, 32,
                                (utf8proc_option_t)(UTF8PROC_DECOMPOSE | options), &boundary);
    /* No character decomposes into more than 18. */
    CHECK(n >= 0 && n <= 32);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        stretch->origin[stretch->n] = origin;
        stretch->n++;
    }
}

static int combining_class(int32_t c) {
    int k = utf8proc_get_property(c)->combining_class;
    return k != 0 && age_not_combining(c) ? 0 : k;
}

/* Canonical ordering of one run of non-starters [from, to): a stable counting sort, so that a
 * megabyte of marks on one letter takes linear time. */
static void sort_marks(struct stretch *stretch, size_t from, size_t to) {
    size_t place[257] = {0};
    for (size_t i = from; i < to; i++) place[combining_class(stretch->c[i]) + 1]++;
    for (int k = 0; k < 256; k++) place[k + 1] += place[k];
    for (size_t i = from; i < to; i++) {
        size_t *next = &place[combining_class(stretch->c[i])], at = *next;
        (*next)++;
        stretch->sorted[at] = stretch->c[i];
        stretch->sorted_origin[at] = stretch->origin[i];
    }
    memcpy(stretch->c + from, stretch->sorted, (to - from) * sizeof *stretch->c);
    memcpy(stretch->origin + from, stretch->sorted_origin, (to - from) * sizeof *stretch->origin);
}

static void stretch_flush(struct stretch *stretch, bool compose, struct mapped_buffer *out) {
    for (size_t i = 0; i < stretch->n;) {
        size_t to = i;
        bool sorted = true;
        while (to < stretch->n && combining_class(stretch->c[to]) != 0) {
            sorted = sorted && (to == i || combining_class(stretch->c[to - 1]) <=
                                               combining_class(stretch->c[to]));
            to++;
        }
        if (!sorted) sort_marks(stretch, i, to);
        i = to + 1;
    }
    size_t n = stretch->n;
    if (compose && n > 1)
        n = (size_t)utf8proc_normalize_utf32(stretch->c, (utf8proc_ssize_t)n,
                                             UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    /* A composed character counts from where its stretch began; otherwise every character keeps its
     * own origin. */
    for (size_t i = 0; i < n; i++)
        append_character(out, stretch->c[i],
                         n == stretch->n ? stretch->origin[i] : stretch->origin[0]);
    stretch->n = 0;
}

void stretch_free(struct stretch *stretch) {
    free(stretch->c);
    free(stretch->sorted);
    free(stretch->origin);
    free(stretch->sorted_origin);
}

/* Whether c may combine with what stands before it. */
static bool joins_previous(int32_t c) {
    const utf8proc_property_t *p = utf8proc_get_property(c);
    return p->combining_class != 0 || p->boundclass == UTF8PROC_BOUNDCLASS_EXTEND ||
           p->boundclass == UTF8PROC_BOUNDCLASS_SPACINGMARK ||
           p->boundclass == UTF8PROC_BOUNDCLASS_V || p->boundclass == UTF8PROC_BOUNDCLASS_T;
}

void unicode_normalise(const struct mapped_text *in, enum unicode_form form,
                       struct mapped_buffer *out) {
    struct stretch stretch = {0};
    bool compose = form == UNICODE_NFC || form == UNICODE_NFKC;
    bool compatible = form == UNICODE_NFKC || form == UNICODE_NFKD;
    for (size_t i = 0; i < in->size;) {
        int32_t c;
        int length = utf8_read(in->text + i, in->size - i, &c);
        if (stretch.n > 0 && (c < 0x80 || !joins_previous(c)))
            stretch_flush(&stretch, compose, out);
        stretch_add(&stretch, c, compatible && !age_not_decomposed(c) ? UTF8PROC_COMPAT : 0,
                    mapped_origin(in, i));
        i += (size_t)length;
    }
    stretch_flush(&stretch, compose, out);
    stretch_free(&stretch);
}

static char ascii_lower(int32_t c) { return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c); }

bool unicode_joins_previous(int32_t c) { return c >= 0x80 && joins_previous(c); }

static void stretch_add_folded(struct stretch *stretch, int32_t c) {
    stretch_add(stretch, c < 0 || c == 0x200B ? ' ' : c,
                UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE, 0);
}

void unicode_fold(struct stretch *stretch, struct text_span text, struct mapped_buffer *out) {
    for (size_t i = 0; i < text.size;) {
        int32_t c;
        int length = utf8_read(text.text + i, text.size - i, &c);
        if (stretch->n > 0 && !unicode_joins_previous(c)) stretch_flush(stretch, true, out);
        stretch_add_folded(stretch, c);
        i += (size_t)length;
    }
    stretch_flush(stretch, true, out);
}

int32_t unicode_fold_single(int32_t c, int *combining) {
    struct stretch stretch = {0};
    stretch_add_folded(&stretch, c);
    int32_t single = stretch.n == 1 ? stretch.c[0] : -1;
    stretch_free(&stretch);
    if (single < 0) return single;
    *combining = combining_class(single);
    /* Marks that only our Unicode knows are sorted and composed by different classes. */
    return *combining == utf8proc_get_property(single)->combining_class ? single : -1;
}

/* Characters of the first two planes; those of later ones decompose into one each. */
enum { SECOND_PLANES = 0x20000 };
static uint64_t second_characters[SECOND_PLANES / 64];
static pthread_once_t second_once = PTHREAD_ONCE_INIT;

static void find_second_characters(void) {
    utf8proc_int32_t parts[32];
    for (int32_t c = 0x80; c < SECOND_PLANES; c++) {
        int boundary = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
        for (utf8proc_ssize_t i = 1; i < n; i++)
            second_characters[parts[i] / 64] |= (uint64_t)1 << (parts[i] % 64);
    }
}

bool unicode_is_second(int32_t c) {
    pthread_once(&second_once, find_second_characters);
    /* utf8proc takes what stands before Hangul's first final consonant for a final consonant too.
     */
    if (c == 0x11A7) return true;
    return c < SECOND_PLANES && (second_characters[c / 64] >> (c % 64) & 1) != 0;
}

/* The ranges as the tokenizers library has them, with its U+2B920 for U+2B820. */
static bool is_chinese(int32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Control, format and private use characters; surrogates cannot occur. */
static bool is_control(int32_t c) {
    if (c == '\t' || c == '\n' || c == '\r') return false;
    utf8proc_category_t k = utf8proc_category(c);
    return (k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO) &&
           !age_not_control(c);
}

/* Category Mn, and U+1734 as in the reference's older Unicode. */
static bool is_nonspacing(int32_t c) {
    return c == 0x1734 || (utf8proc_category(c) == UTF8PROC_CATEGORY_MN && !age_not_nonspacing(c));
}

static void bert_append(const struct bert_normalizer *normalizer, int32_t c, uint32_t origin,
                        struct mapped_buffer *out) {
    if (normalizer->lowercase) {
        append_lower(out, c, origin);
    } else {
        append_character(out, c, origin);
    }
}

static void bert_character(const struct bert_normalizer *normalizer, int32_t c, uint32_t origin,
                           struct mapped_buffer *out) {
    if (normalizer->clean_text) {
        if (c == 0 || c == 0xFFFD || is_control(c)) return;
        if (unicode_is_space(c)) c = ' ';
    }
    bool chinese = normalizer->handle_chinese_chars && is_chinese(c);
    if (chinese) mapped_append(out, " ", 1, origin);
    if (!normalizer->strip_accents) {
        bert_append(normalizer, c, origin, out);
    } else {
        /* Marks are dropped, so their canonical order does not matter and one character at a time
         * is enough. */
        utf8proc_int32_t parts[32];
        int boundary = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
        CHECK(n >= 0 && n <= 32);
        for (utf8proc_ssize_t i = 0; i < n; i++)
            if (!is_nonspacing(parts[i])) bert_append(normalizer, parts[i], origin, out);
    }
    if (chinese) mapped_append(out, " ", 1, origin);
}

void unicode_normalise_bert(const struct mapped_text *in, const struct bert_normalizer *normalizer,
                            struct mapped_buffer *out) {
    for (size_t i = 0; i < in->size;) {
        int32_t c;
        int length = utf8_read(in->text + i, in->size - i, &c);
        if (c >= ' ' && c < 0x7F) {
            char lower = normalizer->lowercase ? ascii_lower(c) : (char)c;
            mapped_append(out, &lower, 1, mapped_origin(in, i));
        } else {
            bert_character(normalizer, c, mapped_origin(in, i), out);
        }
        i += (size_t)length;
    }
}
