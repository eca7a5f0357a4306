/* config/text/unicode_fold.c: folding by tables. See unicode_fold.h.
 *
 * A stretch of one character folds to what the table says, which utf8proc said for that character
 * alone. A stretch of several is left to utf8proc, unless each of them is plain and their marks are
 * in canonical order already: then nothing moves and nothing composes, and each character folds as
 * it does alone. A plain character that is no mark (combining class 0) begins a stretch of its own:
 * no mark moves past it, and those behind it compose with it at most. */
#include "config/text/unicode_fold.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static enum fold_place fold_place_of(int32_t character) {
    if (character < 0x10000 && !unicode_is_word(character) && !unicode_is_numeric(character))
        return FOLD_BETWEEN;
    bool alone = (character >= 0x2e80 && character < 0xe000) ||
                 (character >= 0x20000 && character < 0x40000);
    return alone ? FOLD_ALONE : FOLD_WITHIN;
}

/* Tables of what single characters fold to, made of utf8proc's answers. */

enum { FOLD_BYTES = 5 };
struct fold_entry {
    char bytes[FOLD_BYTES]; /* the fold of the character alone */
    uint8_t size;
    uint8_t combining;  /* the combining class of a plain character */
    uint8_t known : 1;  /* the bytes are there: they are few enough */
    uint8_t single : 1; /* they are one character, which is at fold_place `place` */
    uint8_t place : 2;
    uint8_t own_place : 2; /* the fold_place of the character itself, in folded text */
    uint8_t joins : 1;     /* it may combine with what stands before it */
    uint8_t plain : 1;     /* it decomposes into one character, which composes with none before */
};
_Static_assert(sizeof(struct fold_entry) == FOLD_ENTRY, "a run has room for an entry behind it");

/* Characters of one and two bytes have a table, made once. */
enum { SHORT = 0x800 };
static struct fold_entry short_entries[SHORT];
static pthread_once_t short_once = PTHREAD_ONCE_INIT;

/* Letters are in the first four planes. A page is made when its first character is looked up, and
 * stays: all of them are 2 MiB. */
enum { PAGE = 256, PAGES = 0x40000 / PAGE };
static const struct fold_entry *_Atomic pages[PAGES];

/* Of characters beyond the tables, and of bytes that are none: utf8proc has to be asked. */
static const struct fold_entry unlisted = {.joins = true};
/* Behind the last character. */
static const struct fold_entry ending = {0};

static struct fold_entry fold_entry_make(int32_t character) {
    struct fold_entry entry = {0};
    struct stretch stretch = {0};
    struct mapped_buffer folded = {0};
    char bytes[4];
    size_t length = unicode_write(character, bytes);
    if (length == 0) return entry; /* half of a pair of UTF-16 */
    unicode_fold(&stretch, (struct text_span){bytes, length}, &folded);
    if (folded.size <= FOLD_BYTES) {
        int32_t first = 0;
        entry.known = true;
        entry.size = (uint8_t)folded.size;
        if (folded.size > 0) {
            memcpy(entry.bytes, folded.text, folded.size);
            entry.single = (size_t)utf8_read(folded.text, folded.size, &first) == folded.size;
        }
        if (entry.single) entry.place = (uint8_t)fold_place_of(first) & 3;
    }
    int combining = 0;
    int32_t single = unicode_fold_single(character, &combining);
    entry.combining = (uint8_t)combining;
    entry.plain = entry.single && single >= 0 && !unicode_is_second(single);
    bool apart = entry.plain && combining == 0;
    entry.joins = !apart && unicode_joins_previous(character);
    entry.own_place = (uint8_t)fold_place_of(character) & 3;
    mapped_free(&folded);
    stretch_free(&stretch);
    return entry;
}

static const struct fold_entry *make_page(uint32_t page) {
    struct fold_entry *entries = xmalloc(PAGE * sizeof *entries);
    const struct fold_entry *first = NULL;
    for (int32_t i = 0; i < PAGE; i++) entries[i] = fold_entry_make((int32_t)page * PAGE + i);
    if (atomic_compare_exchange_strong(&pages[page], &first, entries)) return entries;
    free(entries); /* another thread was faster */
    return first;
}

static void make_short_entries(void) {
    for (int32_t i = 0; i < SHORT; i++) short_entries[i] = fold_entry_make(i);
}

static inline const struct fold_entry *find_entry(int32_t character) {
    uint32_t page = (uint32_t)character / PAGE;
    if ((uint32_t)character < SHORT) return &short_entries[character];
    if (page >= PAGES) return &unlisted;
    const struct fold_entry *entries = pages[page];
    if (entries == NULL) entries = make_page(page);
    return &entries[character % PAGE];
}

/* Reading. */

/* The entry of a character beyond the short ones; it stays the reader's latest, for it is asked for
 * twice: whether it joins what stands before it, and what it folds to. Apart from read_entry, which
 * loops have within. */
static __attribute__((noinline)) const struct fold_entry *read_long_entry(
    struct fold_reader *reader, const char *text, size_t *length) {
    size_t left = (size_t)(reader->end - text);
    int32_t c = (unsigned char)text[0];
    bool three =
        c >= 0xE1 && c <= 0xEC && left > 2 && (text[1] & 0xC0) == 0x80 && (text[2] & 0xC0) == 0x80;
    if (three) {
        *length = 3;
        c = (c & 0xF) << 12 | (text[1] & 0x3F) << 6 | (text[2] & 0x3F);
    } else {
        *length = (size_t)utf8_read(text, left, &c);
    }
    reader->latest = text;
    reader->latest_length = *length;
    reader->latest_entry = find_entry(c);
    return reader->latest_entry;
}

/* The entry of the character at text, which has *length bytes; text is before the end. */
static inline const struct fold_entry *read_entry(struct fold_reader *reader, const char *text,
                                                  size_t *length) {
    uint32_t c = (unsigned char)text[0];
    *length = 1;
    if (c < 0x80) return &short_entries[c];
    if (c >= 0xC2 && c < 0xE0 && reader->end - text > 1 && (text[1] & 0xC0) == 0x80) {
        *length = 2;
        return &short_entries[(c & 0x1F) << 6 | (text[1] & 0x3F)];
    }
    if (text != reader->latest) return read_long_entry(reader, text, length);
    *length = reader->latest_length;
    return reader->latest_entry;
}

static bool joins_previous(struct fold_reader *reader, const char *text) {
    size_t length;
    int32_t c;
    if (text == reader->end) return false;
    const struct fold_entry *entry = read_entry(reader, text, &length);
    if (entry != &unlisted) return entry->joins;
    utf8_read(text, (size_t)(reader->end - text), &c);
    return unicode_joins_previous(c);
}

/* Whether the characters of the stretch that begins at reader->at fold each as it does alone; *end
 * is the stretch's. */
static __attribute__((noinline)) bool settle_stretch(struct fold_reader *reader, const char **end) {
    const char *at = reader->at;
    uint8_t combining = 0;
    bool settled = true;
    do {
        size_t length;
        const struct fold_entry *entry = read_entry(reader, at, &length);
        at += length;
        settled =
            settled && entry->plain && (entry->combining == 0 || entry->combining >= combining);
        combining = entry->combining;
    } while (joins_previous(reader, at));
    if (settled) reader->settled = at;
    *end = at;
    return settled;
}

/* Has utf8proc fold the next stretch where tables do not. */
static void read_stretch(struct fold_reader *reader) {
    const char *end;
    if (settle_stretch(reader, &end)) return;
    struct text_span text = {reader->at, (size_t)(end - reader->at)};
    reader->computed.size = 0;
    unicode_fold(&reader->stretch, text, &reader->computed);
    struct mapped_text folded = mapped_view(&reader->computed);
    reader->rest = folded.text;
    reader->rest_end = folded.text + folded.size;
    reader->at = end;
}

/* The next character of what is folded already. */
static void read_rest(struct fold_reader *reader) {
    int32_t c;
    reader->bytes = reader->rest;
    reader->length = (size_t)utf8_read(reader->rest, (size_t)(reader->rest_end - reader->rest), &c);
    reader->rest += reader->length;
    const struct fold_entry *entry = find_entry(c);
    reader->place = entry == &unlisted ? fold_place_of(c) : (enum fold_place)entry->own_place;
}

/* Folds the next characters of the text; true when the first of them is the current character. */
static bool read_text(struct fold_reader *reader) {
    size_t length;
    const struct fold_entry *entry = read_entry(reader, reader->at, &length);
    const char *behind = reader->at + length;
    if (reader->at >= reader->settled && (!entry->known || joins_previous(reader, behind))) {
        read_stretch(reader);
        return false;
    }
    reader->at = behind;
    reader->bytes = entry->bytes;
    reader->length = entry->size;
    reader->place = (enum fold_place)entry->place;
    if (entry->single) return true;
    reader->rest = entry->bytes;
    reader->rest_end = entry->bytes + entry->size;
    return false;
}

void fold_reader_open(struct fold_reader *reader, struct text_span text) {
    pthread_once(&short_once, make_short_entries);
    *reader = (struct fold_reader){
        .at = text.text, .end = text.text + text.size, .settled = text.text, .place = FOLD_END};
}

void fold_reader_next(struct fold_reader *reader) {
    while (reader->rest == reader->rest_end) {
        if (reader->at == reader->end) {
            reader->place = FOLD_END;
            return;
        }
        if (read_text(reader)) return;
    }
    read_rest(reader);
}

/* Adds characters as long as the tables fold them. */
static void add_known(struct fold_reader *reader, struct fold_run *run) {
    const char *at = reader->at, *end = reader->end, *settled = reader->settled;
    size_t size = run->size, length, next_length = 0;
    const struct fold_entry *next, *entry = at < end ? read_entry(reader, at, &length) : &unlisted;
    bool joined = run->joined;
    while (entry->single && entry->place == FOLD_WITHIN) {
        next = at + length < end ? read_entry(reader, at + length, &next_length) : &ending;
        if (next->joins && at + length >= settled) {
            reader->at = at;
            if (!settle_stretch(reader, &settled)) break;
        }
        if (size + entry->size <= FOLD_RUN) {
            memcpy(run->bytes + size, entry, FOLD_ENTRY);
            size += entry->size;
        }
        joined |= entry->bytes[0] == '_';
        at += length;
        entry = next;
        length = next_length;
    }
    reader->at = at;
    run->size = size;
    run->joined = joined;
}

void fold_reader_run(struct fold_reader *reader, struct fold_run *run) {
    while (reader->place == FOLD_WITHIN) {
        run->joined |= reader->bytes[0] == '_';
        if (run->size + reader->length <= FOLD_RUN) {
            memcpy(run->bytes + run->size, reader->bytes, reader->length);
            run->size += reader->length;
        }
        if (reader->rest == reader->rest_end) add_known(reader, run);
        fold_reader_next(reader);
    }
}

void fold_reader_close(struct fold_reader *reader) {
    stretch_free(&reader->stretch);
    mapped_free(&reader->computed);
}
