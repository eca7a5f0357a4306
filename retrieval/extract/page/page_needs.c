/* retrieval/extract/page/page_needs.c: see page_needs.h. */
#include "retrieval/extract/page/page_needs.h"

#include <math.h>

#include "config/base/text.h"
#include "config/base/utf8.h"

/* Shares of a page, and of its letters. */
static const float SCAN_SHARE = 0.5F, SLIVER_SHARE = 0.03F;
enum { STAMP_WORDS = 25, FEW_LETTERS = 40, MANY_LETTERS = 200 };
/* Of a text's letters a to z at least so many are frequent ones: 64 % in English, German and
 * French, 52 % in Polish, 31 % where letters were exchanged at random, and 47 % in German by ROT13.
 */
static const float COMMON_SHARE = 0.495F;

struct text_facts {
    size_t words, letters; /* letters: characters of any kind */
    size_t strange;        /* private use, replacement, control characters */
    size_t ascii, vowels;  /* letters of a to z, and those of them that are vowels */
    size_t digits;
    size_t common; /* those of them that are frequent in all languages that have them */
    size_t hidden; /* words */
    float area;    /* of the words, square points */
};

enum letter_kind { VOWEL = 1, COMMON = 2 };
#define LETTER(letter) [letter - 'a']
static const uint8_t letter_kinds['z' - 'a' + 1] = {
    LETTER('a') = VOWEL | COMMON, LETTER('e') = VOWEL | COMMON, LETTER('i') = VOWEL | COMMON,
    LETTER('o') = VOWEL | COMMON, LETTER('u') = VOWEL,          LETTER('y') = VOWEL,
    LETTER('t') = COMMON,         LETTER('n') = COMMON,         LETTER('s') = COMMON,
    LETTER('r') = COMMON};

static void read_character(int32_t c, struct text_facts *facts) {
    int32_t lower = c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
    facts->letters++;
    facts->strange += c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0xe000 && c <= 0xf8ff) ||
                      c == 0xfffd || c >= 0xf0000;
    facts->digits += c >= '0' && c <= '9';
    if (lower < 'a' || lower > 'z') return;
    uint8_t kind = letter_kinds[lower - 'a'];
    facts->ascii++;
    facts->vowels += (kind & VOWEL) != 0;
    facts->common += (kind & COMMON) != 0;
}

static void read_facts(const struct page *page, struct text_facts *facts) {
    size_t n;
    const struct page_word *words = page_words(page, &n);
    *facts = (struct text_facts){.words = n};
    for (size_t i = 0; i < n; i++) {
        struct text_span text = page_word_text(page, &words[i]);
        facts->hidden += words[i].hidden;
        facts->area += rect_width(&words[i].box) * rect_height(&words[i].box);
        for (size_t at = 0; at < text.size;) {
            int32_t c;
            at += (size_t)utf8_read(text.text + at, text.size - at, &c);
            read_character(c, facts);
        }
    }
}

/* The largest picture's share of the page. */
static float picture_share(const struct page *page) {
    const struct page_picture *pictures = (const void *)page->pictures.data;
    float most = 0, area = page->width * page->height;
    for (size_t i = 0; i < page->pictures.size / sizeof *pictures; i++)
        most = fmaxf(most, rect_width(&pictures[i].box) * rect_height(&pictures[i].box));
    return area > 0 ? most / area : 0;
}

/* Every glyph shifted, or given a number instead of a letter: few vowels, or hardly a letter. */
static bool is_gibberish(const struct text_facts *facts) {
    if (facts->letters < FEW_LETTERS) return facts->strange * 2 > facts->letters;
    if (facts->strange * 5 > facts->letters) return true;
    bool latin = facts->ascii * 2 > facts->letters;
    return latin && facts->vowels * 8 < facts->ascii;
}

static enum page_need find_need(const struct text_facts *facts, float share, float area) {
    if (facts->words == 0) return share > 0 ? PAGE_HAS_NO_TEXT : PAGE_IS_EMPTY;
    if (is_gibberish(facts)) {
        bool layer = facts->hidden * 2 > facts->words && share >= SCAN_SHARE;
        return layer ? PAGE_HAS_BAD_LAYER : PAGE_HAS_GIBBERISH;
    }
    bool sliver = facts->words < STAMP_WORDS && facts->area < SLIVER_SHARE * area;
    return share >= SCAN_SHARE && sliver ? PAGE_HAS_A_STAMP : PAGE_NEEDS_NOTHING;
}

static bool is_doubtful(const struct text_facts *facts) {
    if (facts->letters >= MANY_LETTERS && facts->digits * 10 > facts->letters * 9) return true;
    return facts->ascii >= MANY_LETTERS && facts->ascii * 2 > facts->letters &&
           (float)facts->common < COMMON_SHARE * (float)facts->ascii;
}

struct page_verdict page_judge(const struct page *page) {
    struct text_facts facts;
    float share = picture_share(page);
    read_facts(page, &facts);
    return (struct page_verdict){.need = find_need(&facts, share, page->width * page->height),
                                 .has_layer = facts.hidden * 2 > facts.words && share >= SCAN_SHARE,
                                 .is_doubtful = is_doubtful(&facts)};
}

const char *page_need_name(enum page_need need) {
    switch (need) {
        case PAGE_IS_EMPTY: return "nothing is on it";
        case PAGE_HAS_NO_TEXT: return "a picture without text";
        case PAGE_HAS_A_STAMP: return "a picture with a few words beside it";
        case PAGE_HAS_BAD_LAYER: return "a picture whose hidden text is no language";
        case PAGE_HAS_GIBBERISH: return "its letters have no meaning: its fonts name none";
        default: return "";
    }
}
