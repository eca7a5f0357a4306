/* tests/reference/compare_tokenizers.c: every tokenizer of a folder made by
 * make_tokenizer_fixtures.py against the ids and texts of the reference library: compare_tokenizers
 * FOLDER NAME... One line a tokenizer; exits 1 on a difference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/text/unicode.h"
#include "retro/text/tokenizer.h"

static uint32_t read_number(struct text_span *s) {
    uint32_t v;
    CHECK(s->size >= sizeof v);
    memcpy(&v, s->text, sizeof v);
    s->text += sizeof v;
    s->size -= sizeof v;
    return v;
}

static struct text_span read_bytes(struct text_span *s, size_t n) {
    CHECK(s->size >= n);
    struct text_span bytes = {s->text, n};
    s->text += n;
    s->size -= n;
    return bytes;
}

static struct text_span load(struct buffer *b, const char *folder, const char *name,
                             const char *end) {
    char path[1000];
    struct error e;
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    if (file_read(path, (size_t)1 << 30, b, &e) != STATUS_OK) return (struct text_span){NULL, 0};
    return (struct text_span){b->data, b->size};
}

struct totals {
    size_t texts, ids, bytes, wrong, decoded;
    double seconds;
};

static void complain(const char *name, size_t i, struct text_span text, const char *what) {
    printf("%s: text %zu of %zu bytes: %s: ", name, i, text.size, what);
    for (size_t k = 0; k < text.size && k < 48; k++) printf("%02x", (uint8_t)text.text[k]);
    printf("\n");
}

/* Starts never run backwards by more than a normaliser's reordering; they must lie in the text. */
static bool starts_valid(const struct tokens *t, size_t size) {
    for (int i = 0; i < t->n; i++)
        if (t->starts[i] > size) return false;
    return true;
}

static void compare(const struct tokenizer *t, const char *name, struct text_span texts,
                    struct text_span ids, struct text_span decoded, struct totals *sum) {
    uint32_t count = read_number(&texts), flags = read_number(&ids), round_trip = read_number(&ids);
    struct error e;
    for (uint32_t i = 0; i < count; i++) {
        struct text_span text = read_bytes(&texts, read_number(&texts));
        uint32_t n = read_number(&ids);
        struct text_span expected = read_bytes(&ids, n * sizeof(int32_t));
        struct tokens out = {0};
        struct buffer back = {0};
        double start = time_now();
        enum status status = tokenizer_encode(t, text.text, text.size, (int)flags, &out, &e);
        sum->seconds += time_now() - start;
        const char *what = NULL;
        if (status != STATUS_OK)
            what = e.text;
        else if ((uint32_t)out.n != n ||
                 (n > 0 && memcmp(out.ids, expected.text, expected.size) != 0))
            what = "ids";
        else if (!starts_valid(&out, text.size))
            what = "starts";
        if (decoded.text != NULL) {
            struct text_span reference = read_bytes(&decoded, read_number(&decoded));
            tokenizer_decode(t, out.ids, out.n, true, &back);
            bool same = back.size == reference.size &&
                        (back.size == 0 || memcmp(back.data, reference.text, back.size) == 0);
            if (what == NULL && !same) what = "decoding";
            /* Where the text is UTF-8, the reference gives it back, and so must we. */
            if (what == NULL && round_trip && text.size > 0 &&
                utf8_is_valid(text.text, text.size) &&
                (back.size != text.size || memcmp(back.data, text.text, text.size) != 0))
                what = "round trip";
            sum->decoded++;
        }
        if (what != NULL && sum->wrong++ < 12) complain(name, i, text, what);
        sum->texts++;
        sum->ids += n;
        sum->bytes += text.size;
        tokens_free(&out);
        buffer_free(&back);
    }
}

int main(int argc, char **argv) {
    size_t wrong = 0;
    if (argc < 3) return fprintf(stderr, "usage: compare_tokenizers FOLDER NAME...\n"), 2;
    struct buffer texts = {0}, ids = {0}, decoded = {0};
    struct text_span all = load(&texts, argv[1], "texts.bin", "");
    for (int i = 2; i < argc; i++) {
        char path[1000];
        struct tokenizer *t;
        struct error e;
        struct totals sum = {0};
        snprintf(path, sizeof path, "%s/%s", argv[1], argv[i]);
        struct text_span expected = load(&ids, argv[1], argv[i], ".ids");
        if (all.text == NULL || expected.text == NULL || tokenizer_open(&t, path, &e) != STATUS_OK)
            return printf("%s: cannot open: %s\n", path,
                          expected.text ? e.text : "fixtures are missing"),
                   2;
        compare(t, argv[i], all, expected, load(&decoded, argv[1], argv[i], ".decoded"), &sum);
        printf("%s texts=%zu ids=%zu decoded=%zu different=%zu %.1f MB/s\n", argv[i], sum.texts,
               sum.ids, sum.decoded, sum.wrong, (double)sum.bytes / 1e6 / sum.seconds);
        wrong += sum.wrong;
        tokenizer_close(t);
    }
    buffer_free(&texts);
    buffer_free(&ids);
    buffer_free(&decoded);
    return wrong > 0;
}
