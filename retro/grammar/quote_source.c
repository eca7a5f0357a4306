/* retro/grammar/quote_source.c: passages cut into words. See quote_source.h. */
#include "retro/grammar/quote_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/text/unicode.h"

/* A word: where a quote that begins with it may begin, before its punctuation and behind that; and
 * where it ends. */
struct cut_word {
    uint32_t outer, inner, end;
};

/* One passage on its way into one text. A stretch is what one quote may go over; a run is what
 * stands between blanks. */
struct cutter {
    const struct quote_source *source;
    struct quote_text *to;
    enum quote_writing writing;
    struct cut_word *words; /* [n_words] of the stretch */
    int n_words, words_capacity;
    uint32_t *edges; /* [n_edges] ends of the characters behind the run's latest letter */
    int n_edges, edges_capacity;
    uint32_t run;      /* where the run begins */
    uint32_t last_end; /* of the stretch's latest word that is over, with its punctuation */
    bool in_run;
    bool has_word;     /* the run has one: the latest of `words` */
    bool alone;        /* the run's latest letter is a word by itself */
    bool letters[256]; /* of ASCII */
    bool broken;       /* the run has what no quote goes over: the rest of it is no word either */
};

/* Texts. */

/* Room for n more bytes, whose marks are cleared. */
static void text_reserve(struct quote_text *to, size_t n) {
    size_t needed = to->size + n + 1;
    if (needed > to->capacity) {
        to->capacity = needed > 2 * to->capacity ? needed : 2 * to->capacity;
        to->text = xrealloc(to->text, to->capacity);
        to->marks = xrealloc(to->marks, to->capacity);
    }
    if (to->size == 0) to->marks[0] = 0;
    memset(to->marks + to->size + 1, 0, n);
}

static void add_start(struct quote_text *to, uint32_t at, uint32_t least) {
    to->starts = xgrow(to->starts, to->n_starts, &to->starts_capacity, sizeof *to->starts);
    to->starts[to->n_starts] = (struct quote_place){at, least};
    to->n_starts++;
}

/* Runs and stretches. */

static void add_edge(struct cutter *cutter) {
    cutter->edges =
        xgrow(cutter->edges, cutter->n_edges, &cutter->edges_capacity, sizeof *cutter->edges);
    cutter->edges[cutter->n_edges] = (uint32_t)cutter->to->size;
    cutter->n_edges++;
}

static void end_run(struct cutter *cutter) {
    if (cutter->in_run && cutter->has_word) {
        cutter->last_end = cutter->words[cutter->n_words - 1].end;
        cutter->to->marks[cutter->last_end] |= PLACE_ENDS;
        for (int i = 0; i < cutter->n_edges; i++) {
            cutter->last_end = cutter->edges[i];
            cutter->to->marks[cutter->last_end] |= PLACE_ENDS;
        }
        cutter->n_edges = 0;
    }
    cutter->in_run = cutter->has_word = cutter->alone = false;
}

static void end_stretch(struct cutter *cutter) {
    int ahead = cutter->source->least_words - 1;
    end_run(cutter);
    for (int i = 0; i + ahead < cutter->n_words; i++) {
        const struct cut_word *word = &cutter->words[i];
        uint32_t least = cutter->words[i + ahead].end;
        add_start(cutter->to, word->outer, least);
        if (word->inner != word->outer) add_start(cutter->to, word->inner, least);
    }
    if (cutter->n_words > 0) cutter->to->marks[cutter->last_end] |= PLACE_STOPS;
    cutter->n_words = 0;
}

/* A run has something that no quote goes over: a quote ends before the run, or begins behind it. */
static void break_run(struct cutter *cutter) {
    if (cutter->has_word) cutter->n_words--;
    cutter->n_edges = 0;
    cutter->in_run = cutter->has_word = cutter->alone = false;
    end_stretch(cutter);
    cutter->broken = true;
}

static void begin_run(struct cutter *cutter) {
    if (cutter->in_run) return;
    cutter->in_run = true;
    cutter->run = (uint32_t)cutter->to->size;
}

static void begin_word(struct cutter *cutter) {
    if (cutter->has_word) return;
    cutter->has_word = true;
    cutter->words =
        xgrow(cutter->words, cutter->n_words, &cutter->words_capacity, sizeof *cutter->words);
    cutter->words[cutter->n_words] =
        (struct cut_word){.outer = cutter->run, .inner = (uint32_t)cutter->to->size};
    cutter->n_words++;
}

/* Characters. */

/* One character as it is written. */
struct written_char {
    int32_t c; /* negative: it is none */
    const char *bytes;
    size_t size;
    bool escaped;
};

/* Letters of scripts that are written without blanks. */
static bool stands_alone(int32_t c) {
    static const int32_t ranges[][2] = {
        {0x0E00, 0x0EFF}, {0x1000, 0x109F}, {0x1780, 0x17FF},   {0x3005, 0x3007},
        {0x3021, 0x30FF}, {0x31F0, 0x31FF}, {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},
        {0xF900, 0xFAFF}, {0xFF66, 0xFF9F}, {0x1B000, 0x1B16F}, {0x20000, 0x3FFFF},
    };
    if (c < ranges[0][0]) return false;
    for (size_t i = 0; i < ARRAY_COUNT(ranges); i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return unicode_is_letter(c);
    return false;
}

static bool is_quotation_mark(int32_t c) {
    return c == '"' || c == 0xAB || c == 0xBB || (c >= 0x201C && c <= 0x201F);
}

static bool parts_words(int32_t c) {
    return c < 0x80 ? c == ' ' || (c >= '\t' && c <= '\r') : unicode_is_space(c);
}

static bool is_letter(int32_t c) {
    if (c >= 0x80) return unicode_is_word(c);
    return is_digit((char)c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether a quote may go over the character, as far as it is no quotation mark. */
static bool is_quotable(const struct cutter *cutter, const struct written_char *written) {
    const struct vocab *vocab = cutter->source->vocab;
    if (written->size == 1) return written->c >= 0 && vocab->writes[written->c];
    return written->c >= 0 && vocab_writes(vocab, written->bytes, written->size, !written->escaped);
}

static void read_letter(struct cutter *cutter, int32_t c) {
    bool alone = stands_alone(c);
    if (cutter->has_word && (alone || (cutter->alone && unicode_is_letter(c)))) end_run(cutter);
    begin_run(cutter);
    begin_word(cutter);
    cutter->alone = alone || (cutter->alone && !unicode_is_letter(c));
}

static void read_char(struct cutter *cutter, const struct written_char *written) {
    bool ascii = written->c >= 0 && written->c < 0x80;
    bool letter = ascii ? cutter->letters[written->c] : written->c >= 0 && is_letter(written->c);
    bool marks = cutter->writing == QUOTE_PLAIN && is_quotation_mark(written->c);
    bool parts = written->c >= 0 && parts_words(written->c);
    if (marks)
        end_stretch(cutter);
    else if (!is_quotable(cutter, written))
        break_run(cutter);
    else if (parts)
        end_run(cutter);
    else if (letter && (!cutter->broken || stands_alone(written->c)))
        read_letter(cutter, written->c);
    else if (!cutter->broken)
        begin_run(cutter);
    if (marks || parts || cutter->has_word) cutter->broken = false;
    memcpy(cutter->to->text + cutter->to->size, written->bytes, written->size);
    cutter->to->size += written->size;
    if (!cutter->has_word) return;
    if (!letter) {
        add_edge(cutter);
        return;
    }
    cutter->words[cutter->n_words - 1].end = (uint32_t)cutter->to->size;
    cutter->n_edges = 0;
}

/* The escape of a character that stands in no JSON string as it is, by a letter where there is one;
 * its length, 0: the character needs none. */
static size_t write_escape(int32_t c, char escape[8]) {
    static const char letters[] = "btnvfr";
    if (c != '"' && c != '\\' && (c < 0 || c >= ' ')) return 0;
    if (c < '\b' || c > '\r' || c == '\v') {
        if (c < ' ') return (size_t)snprintf(escape, 8, "\\u%04x", (unsigned)c);
        return (size_t)snprintf(escape, 8, "\\%c", (char)c);
    }
    return (size_t)snprintf(escape, 8, "\\%c", letters[c - '\b']);
}

/* Letters of ASCII that go on with a word: most of most texts. Returns how many there were. */
static size_t read_letters(struct cutter *cutter, const char *text, size_t size) {
    const bool *writes = cutter->source->vocab->writes;
    size_t n = 0;
    if (!cutter->has_word || cutter->n_edges > 0 || cutter->alone) return 0;
    while (n < size && cutter->letters[(unsigned char)text[n]] && writes[(unsigned char)text[n]])
        n++;
    memcpy(cutter->to->text + cutter->to->size, text, n);
    cutter->to->size += n;
    cutter->words[cutter->n_words - 1].end = (uint32_t)cutter->to->size;
    return n;
}

static void cut_passage(struct cutter *cutter, const struct passage_text *of) {
    struct text_span passage = of->text;
    cutter->broken = of->torn_start;
    text_reserve(cutter->to, (cutter->writing == QUOTE_JSON ? 6 * passage.size : passage.size) + 1);
    for (size_t at = 0; at < passage.size;) {
        struct written_char written = {.bytes = passage.text + at};
        char escape[8];
        unsigned char first = (unsigned char)passage.text[at];
        size_t n = 1, escaped = 0;
        written.c = first;
        if (first >= 0x80) n = (size_t)utf8_read(passage.text + at, passage.size - at, &written.c);
        if (cutter->writing == QUOTE_JSON) escaped = write_escape(written.c, escape);
        written.size = escaped ? escaped : n;
        written.escaped = escaped > 0;
        if (escaped) written.bytes = escape;
        read_char(cutter, &written);
        at += n;
        at += read_letters(cutter, passage.text + at, passage.size - at);
    }
    if (of->torn_end) break_run(cutter);
    end_stretch(cutter);
    cutter->to->text[cutter->to->size] = '\0';
    cutter->to->marks[cutter->to->size] |= PLACE_STOPS;
    cutter->to->size++;
}

/* The source. */

void quote_source_open(struct quote_source *source, const struct vocab *vocab,
                       const bool writes[QUOTE_WRITINGS], int least_words) {
    *source = (struct quote_source){.vocab = vocab, .least_words = max_int(1, least_words)};
    memcpy(source->writes, writes, sizeof source->writes);
}

void quote_source_close(struct quote_source *source) {
    for (int i = 0; i < QUOTE_WRITINGS; i++) {
        free(source->texts[i].text);
        free(source->texts[i].marks);
        free(source->texts[i].starts);
    }
    free(source->passages);
    *source = (struct quote_source){0};
}

/* An escape is six bytes at most. */
static bool has_room(const struct quote_source *source, size_t size) {
    for (int i = 0; i < QUOTE_WRITINGS; i++) {
        size_t most = i == QUOTE_JSON ? 6 * size : size;
        if (source->writes[i] && source->texts[i].size + most + 1 > QUOTE_MOST_BYTES) return false;
    }
    return true;
}

enum status quote_source_add(struct quote_source *source, const struct passage_text *passage,
                             int number, struct error *e) {
    if (passage->text.size > QUOTE_MOST_BYTES || !has_room(source, passage->text.size))
        return error_set(e, STATUS_TOO_LARGE,
                         "the passages that were read for one answer are too long to quote from: "
                         "more than %d MiB; read fewer of them (retrieval.k, retrieval.every)",
                         QUOTE_MOST_BYTES >> 20);
    source->passages = xgrow(source->passages, source->n_passages, &source->passages_capacity,
                             sizeof *source->passages);
    struct quote_passage *added = &source->passages[source->n_passages];
    *added = (struct quote_passage){.number = number};
    source->n_passages++;
    source->indexed = false;
    for (int i = 0; i < QUOTE_WRITINGS; i++) {
        struct cutter cutter = {
            .source = source, .to = &source->texts[i], .writing = (enum quote_writing)i};
        if (!source->writes[i]) continue;
        added->first[i] = (uint32_t)cutter.to->size;
        for (int c = 0; c < 0x80; c++) cutter.letters[c] = is_letter(c);
        cut_passage(&cutter, passage);
        free(cutter.words);
        free(cutter.edges);
    }
    return STATUS_OK;
}

bool quote_source_is_empty(const struct quote_source *source) {
    for (int i = 0; i < QUOTE_WRITINGS; i++)
        if (source->texts[i].n_starts > 0) return false;
    return true;
}

static void index_text(struct quote_text *text) {
    int ends[256] = {0};
    if (text->n_starts == 0) return;
    struct quote_place *sorted = xmalloc((size_t)text->n_starts * sizeof *sorted);
    for (int i = 0; i < text->n_starts; i++) ends[(unsigned char)text->text[text->starts[i].at]]++;
    for (int b = 0; b < 256; b++) {
        text->first[b + 1] = text->first[b] + ends[b];
        ends[b] = text->first[b];
    }
    for (int i = 0; i < text->n_starts; i++) {
        unsigned char byte = (unsigned char)text->text[text->starts[i].at];
        sorted[ends[byte]] = text->starts[i];
        ends[byte]++;
    }
    free(text->starts);
    text->starts = sorted;
    text->starts_capacity = text->n_starts;
}

void quote_source_index(struct quote_source *source) {
    if (source->indexed) return;
    for (int i = 0; i < QUOTE_WRITINGS; i++) index_text(&source->texts[i]);
    source->indexed = true;
}

/* Bytes of a passage that are written in these of its text. */
static size_t count_bytes(enum quote_writing writing, const char *text, size_t size) {
    size_t n = 0;
    if (writing == QUOTE_PLAIN) return size;
    for (size_t at = 0; at < size; n++) {
        if (text[at] != '\\')
            at++;
        else
            at += text[at + 1] == 'u' ? 6 : 2;
    }
    return n;
}

struct quote_found quote_source_find(const struct quote_source *source, enum quote_writing writing,
                                     uint32_t from, uint32_t to) {
    int low = 0, high = source->n_passages;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (source->passages[middle].first[writing] <= from)
            low = middle;
        else
            high = middle;
    }
    const char *text = source->texts[writing].text;
    uint32_t first = source->passages[low].first[writing];
    size_t start = count_bytes(writing, text + first, from - first);
    return (struct quote_found){.number = source->passages[low].number,
                                .start = start,
                                .end = start + count_bytes(writing, text + from, to - from)};
}
