/* retro/text/charsmap.c: precompiled_charsmap, the replacements of characters that SentencePiece
 * compiles into a model: a double-array trie (darts-clone) whose values are offsets into
 * NUL-terminated texts. tokenizer.json has the bytes in base64: u32 bytes of the trie, the trie's
 * u32 units, the texts; little-endian. */
#include <stdlib.h>
#include <string.h>

#include "config/base/base64.h"
#include "retro/text/tokenizer_private.h"

enum {
    CHARSMAP_BLOCK =
        256, /* units come in blocks, so that a label added to an offset stays inside */
    CHARSMAP_MAX_GRAPHEME = 5,   /* bytes; longer clusters are replaced character by character */
    CHARSMAP_MAX_UNITS = 1 << 22 /* sixteen times the largest of published models */
};

struct charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts; /* ends in NUL */
    size_t texts_size;
};

/* A unit: bits 0 to 7 and 31 are the label, bit 8 says that a value lies at the unit's offset, 9 to
 * 30 are the offset.
 */
static bool unit_has_value(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t unit_label(uint32_t unit) { return unit & 0x800000FFu; }
static uint32_t unit_offset(uint32_t unit) { return unit >> 10 << ((unit & 0x200u) >> 6); }
/* A unit that is a value has bit 31 set. */
static bool unit_is_value(uint32_t unit) { return unit >> 31; }
static uint32_t unit_value(uint32_t unit) { return unit & 0x7FFFFFFFu; }

static uint32_t read_little(const char *p) {
    uint32_t value = 0;
    for (int i = 3; i >= 0; i--) value = value << 8 | (uint8_t)p[i];
    return value;
}

/* Every step a lookup can take has to stay inside the units, and every value has to begin a
 * character of the texts. */
static enum status check_units(const struct charsmap *charsmap, struct error *e) {
    if (unit_is_value(charsmap->units[0]))
        return error_set(e, STATUS_INVALID, "unit 0 is a value: expected the root");
    for (size_t i = 0; i < charsmap->n_units; i++) {
        uint32_t unit = charsmap->units[i];
        if (unit_is_value(unit)) continue;
        size_t base = i ^ unit_offset(unit);
        if ((base | (CHARSMAP_BLOCK - 1)) >= charsmap->n_units)
            return error_set(e, STATUS_INVALID, "unit %zu leads to unit %zu of %zu", i, base,
                             charsmap->n_units);
        if (!unit_has_value(unit)) continue;
        size_t value = unit_value(charsmap->units[base]);
        if (value >= charsmap->texts_size || ((uint8_t)charsmap->texts[value] & 0xC0) == 0x80)
            return error_set(e, STATUS_INVALID, "unit %zu: byte %zu of %zu begins no text", base,
                             value, charsmap->texts_size);
    }
    return STATUS_OK;
}

static enum status read_bytes(struct charsmap *charsmap, struct text_span bytes, struct error *e) {
    size_t size = bytes.size < 4 ? 0 : read_little(bytes.text);
    if (size + 4 > bytes.size || size % (4 * CHARSMAP_BLOCK) != 0 || size == 0 ||
        size / 4 > CHARSMAP_MAX_UNITS)
        return error_set(e, STATUS_INVALID,
                         "%zu bytes: expected a size, a trie in blocks of %d units, and texts",
                         bytes.size, CHARSMAP_BLOCK);
    charsmap->n_units = size / 4;
    charsmap->units = xmalloc(size);
    for (size_t i = 0; i < charsmap->n_units; i++)
        charsmap->units[i] = read_little(bytes.text + 4 + 4 * i);

    charsmap->texts_size = bytes.size - 4 - size;
    charsmap->texts = xstrndup(bytes.text + 4 + size, charsmap->texts_size);
    if (!utf8_is_valid(charsmap->texts, charsmap->texts_size))
        return error_set(e, STATUS_INVALID, "the texts are not UTF-8");
    return check_units(charsmap, e);
}

enum status charsmap_open(struct charsmap **out, const struct json *base64, struct error *e) {
    struct buffer bytes = {0};
    struct charsmap *charsmap = xcalloc(1, sizeof *charsmap);
    enum status status = STATUS_OK;
    if (!json_is_text(base64) || !base64_decode(json_text(base64), &bytes))
        status = error_set(e, STATUS_INVALID, "expected base64");
    if (status == STATUS_OK)
        status = read_bytes(charsmap, (struct text_span){bytes.data, bytes.size}, e);
    buffer_free(&bytes);
    if (status == STATUS_OK) {
        *out = charsmap;
        return STATUS_OK;
    }
    charsmap_close(charsmap);
    return error_prefix(e, "precompiled_charsmap");
}

void charsmap_close(struct charsmap *charsmap) {
    if (charsmap == NULL) return;
    free(charsmap->units);
    free(charsmap->texts);
    free(charsmap);
}

/* The replacement of a part of a text, or NULL. The reference takes the shortest key that the part
 * begins with. */
static const char *find_replacement(const struct charsmap *charsmap, const char *part,
                                    size_t size) {
    size_t at = unit_offset(charsmap->units[0]);
    for (size_t i = 0; i < size && part[i] != '\0'; i++) {
        at ^= (uint8_t)part[i];
        uint32_t unit = charsmap->units[at];
        if (unit_label(unit) != (uint8_t)part[i]) return NULL;
        at ^= unit_offset(unit);
        if (unit_has_value(unit)) return charsmap->texts + unit_value(charsmap->units[at]);
    }
    return NULL;
}

void charsmap_normalise(const struct charsmap *charsmap, const struct mapped_text *in,
                        struct mapped_buffer *out) {
    int32_t c;
    size_t cluster_end = 0;
    for (size_t i = 0; i < in->size;) {
        bool begins = i == cluster_end;
        if (begins) cluster_end = i + unicode_grapheme(in->text + i, in->size - i);
        size_t length = (size_t)utf8_read(in->text + i, in->size - i, &c);
        const char *replacement = NULL;
        if (begins && cluster_end - i <= CHARSMAP_MAX_GRAPHEME) {
            replacement = find_replacement(charsmap, in->text + i, cluster_end - i);
            if (replacement != NULL) length = cluster_end - i;
        }
        if (replacement == NULL) replacement = find_replacement(charsmap, in->text + i, length);

        if (replacement != NULL) {
            mapped_append(out, replacement, strlen(replacement), mapped_origin(in, i));
        } else {
            for (size_t k = i; k < i + length; k++)
                mapped_append(out, in->text + k, 1, mapped_origin(in, k));
        }
        i += length;
    }
}
