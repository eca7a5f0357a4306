/* retrieval/words/words.c: opening words and looking for one. See words.h. */
#include "retrieval/words/words.h"

#include <inttypes.h>
#include <stdlib.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "retrieval/words/words_private.h"

int words_split(struct text_span text, struct word_text *words, int most) {
    struct word_reader reader;
    struct key_set seen = {0};
    struct read_word word;
    int n = 0;
    word_reader_open(&reader, text);
    while (n < most && word_reader_next(&reader, &word)) {
        if (!key_set_add(&seen, hash_bytes(word.bytes, word.size, 0),
                         hash_bytes(word.bytes, word.size, 1)))
            continue;
        words[n] = (struct word_text){.size = word.size};
        memcpy(words[n].bytes, word.bytes, word.size);
        n++;
    }
    word_reader_close(&reader);
    key_set_free(&seen);
    return n;
}

/* Opening. */

enum status words_fail(const struct words *words, const char *what, struct error *e) {
    return error_set(e, STATUS_CORRUPT, "%s: %s; build the collection again", words->name, what);
}

/* The fault of a foot that ends bytes [size]; NULL: there is none. */
static const char *find_foot_fault(const struct words_foot *foot, uint64_t size, int64_t n_chunks) {
    uint64_t end = size - sizeof *foot, width = foot->length_width;
    if (memcmp(foot->magic, "RETROWRD", sizeof foot->magic) != 0) return "it has no words";
    if (foot->format != WORDS_FORMAT) return "its format is of another version";
    if (foot->n_chunks != (uint64_t)n_chunks) return "it has another number of chunks";
    if (width != 1 && width != 2 && width != 4) return "its lengths have no known width";
    if (foot->lengths < WORDS_PAD || foot->lengths > foot->dictionary ||
        foot->dictionary > foot->index || foot->index > end)
        return "its parts do not follow each other";
    if ((foot->dictionary - foot->lengths) / width != foot->n_chunks ||
        (foot->dictionary - foot->lengths) % width != 0)
        return "it has not one length a chunk";
    if ((end - foot->index) % 16 != 0 ||
        (end - foot->index) / 16 !=
            foot->n_words / WORDS_STRIDE + (foot->n_words % WORDS_STRIDE > 0))
        return "its index has not every sixteenth word";
    if (foot->total > INT64_MAX) return "it has more words than can be";
    return NULL;
}

enum status words_open(struct words **out, struct text_span bytes, int64_t n_chunks,
                       const char *name, struct error *e) {
    struct words_foot foot;
    if (bytes.size < sizeof foot)
        return error_set(e, STATUS_CORRUPT, "%s: it is cut off; build the collection again", name);
    memcpy(&foot, bytes.text + bytes.size - sizeof foot, sizeof foot);
    const char *fault = find_foot_fault(&foot, bytes.size, n_chunks);
    if (fault)
        return error_set(e, STATUS_CORRUPT, "%s: %s; build the collection again", name, fault);
    *out = xmalloc(sizeof **out);
    **out = (struct words){.data = (const uint8_t *)bytes.text,
                           .foot = foot,
                           .index_size = (bytes.size - sizeof foot - foot.index) / 16,
                           .name = xstrdup(name)};
    return STATUS_OK;
}

void words_free(struct words *words) {
    if (words == NULL) return;
    free(words->own);
    free(words->name);
    free(words);
}

uint32_t words_length(const struct words *words, int64_t chunk) {
    const uint8_t *lengths = words->data + words->foot.lengths;
    uint16_t half;
    CHECK(chunk >= 0 && (uint64_t)chunk < words->foot.n_chunks);
    if (words->foot.length_width == 1) return lengths[chunk];
    if (words->foot.length_width == 4) return words_load32(lengths + 4 * chunk);
    memcpy(&half, lengths + 2 * chunk, sizeof half);
    return half;
}

int64_t words_total(const struct words *words) { return (int64_t)words->foot.total; }
int64_t words_count(const struct words *words) { return (int64_t)words->foot.n_words; }
size_t words_size(const struct words *words) {
    return words->foot.index + 16 * words->index_size + sizeof words->foot;
}

/* The dictionary. */

static bool read_number(const uint8_t *bytes, size_t size, size_t *at, uint64_t *number) {
    *number = 0;
    for (unsigned shift = 0; shift < 63 && *at < size; shift += 7) {
        uint8_t byte = bytes[*at];
        *at += 1;
        *number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Goes on from what the index says of the next word. */
static bool enter_stride(struct words_walk *walk) {
    const struct words *words = walk->words;
    const uint8_t *entry = words->data + words->foot.index + 16 * (walk->number / WORDS_STRIDE);
    uint64_t at = words_load64(entry), postings = words_load64(entry + 8);
    uint64_t size = words->foot.index - words->foot.dictionary;
    bool first = walk->number == 0;
    if (at >= size || postings > words->foot.lengths - WORDS_PAD ||
        (first && (at != 0 || postings != 0))) {
        walk->damage = "its index leads out of it";
        return false;
    }
    walk->at = at;
    walk->postings = postings;
    walk->size = 0;
    return true;
}

bool words_walk_next(struct words_walk *walk) {
    const struct words *words = walk->words;
    const uint8_t *bytes = words->data + words->foot.dictionary;
    size_t size = words->foot.index - words->foot.dictionary;
    uint64_t n, n_bytes;
    if (walk->damage || (uint64_t)walk->number >= words->foot.n_words) return false;
    if (walk->number % WORDS_STRIDE == 0 && !enter_stride(walk)) return false;
    walk->damage = "its dictionary is damaged";
    if (size - walk->at < 2) return false;
    size_t shared = bytes[walk->at], rest = bytes[walk->at + 1];
    walk->at += 2;
    if (shared > walk->size || shared + rest < 1 || shared + rest > WORD_BYTES ||
        rest > size - walk->at)
        return false;
    memcpy(walk->bytes + shared, bytes + walk->at, rest);
    walk->at += rest;
    walk->size = shared + rest;
    if (!read_number(bytes, size, &walk->at, &n) || !read_number(bytes, size, &walk->at, &n_bytes))
        return false;
    if (n < 1 || n > words->foot.n_chunks ||
        n_bytes > words->foot.lengths - WORDS_PAD - walk->postings)
        return false;
    walk->list =
        (struct word_list){{(const char *)words->data + walk->postings, n_bytes}, (int64_t)n};
    walk->postings += n_bytes;
    walk->number++;
    walk->damage = NULL;
    return true;
}

static int compare_words(struct text_span left, struct text_span right) {
    size_t size = left.size < right.size ? left.size : right.size;
    int order = memcmp(left.text, right.text, size);
    return order != 0 ? order : (left.size > right.size) - (left.size < right.size);
}

/* Whether the first word of a stride is above `from`. */
static bool is_above(const struct words *words, size_t stride, struct text_span from) {
    const uint8_t *bytes = words->data + words->foot.dictionary;
    uint64_t at = words_load64(words->data + words->foot.index + 16 * stride),
             size = words->foot.index - words->foot.dictionary;
    if (at >= size || size - at < 2 || bytes[at + 1] > size - at - 2) return true;
    return compare_words((struct text_span){(const char *)bytes + at + 2, bytes[at + 1]}, from) > 0;
}

void words_walk_open(struct words_walk *walk, const struct words *words, struct text_span from) {
    size_t low = 0, high = words->index_size;
    *walk = (struct words_walk){.words = words};
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_above(words, middle, from))
            high = middle;
        else
            low = middle + 1;
    }
    walk->number = low > 0 ? (int64_t)(low - 1) * WORDS_STRIDE : 0;
    struct words_walk next = *walk;
    while (words_walk_next(&next)) {
        if (compare_words((struct text_span){next.bytes, next.size}, from) >= 0) return;
        *walk = next;
    }
    *walk = next;
}

enum status words_find(const struct words *words, struct text_span word, struct word_list *list,
                       struct error *e) {
    struct words_walk walk;
    *list = (struct word_list){.n = 0};
    words_walk_open(&walk, words, word);
    bool found = words_walk_next(&walk) && walk.size == word.size &&
                 memcmp(walk.bytes, word.text, word.size) == 0;
    if (walk.damage) return words_fail(words, walk.damage, e);
    if (found) *list = walk.list;
    return STATUS_OK;
}
