/* retrieval/words/words_writer.c: see words_writer.h. A run is, for each word in the order of
 * words, u8 its size, its bytes, u32 how often it stands in the run, and as often u32 chunk and u32
 * position. Runs are of chunks that follow each other, so the chunks of a word are those of the
 * first run, then those of the next. */
#include "retrieval/words/words_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "retrieval/words/postings_writer.h"
#include "retrieval/words/words_private.h"

/* Different words after which a run is full, too. */
enum { RUN_DIFFERENT = 1 << 19, PIECE = 1 << 20 };
#define WORDS_CHUNKS INT32_MAX /* a gap between two has 31 bits */

/* Where a word stands. */
struct occurrence {
    uint32_t chunk, position;
};
struct noted {
    uint32_t word; /* its number in the run */
    struct occurrence occurrence;
};
struct noted_word {
    size_t start; /* in the texts */
    uint32_t size, n;
    size_t first; /* of its sorted occurrences */
};

struct words_writer {
    char *folder;
    size_t run;
    struct key_set ids;                /* of the run's words, counted from 0 */
    struct buffer texts, words, noted; /* struct noted_word [], struct noted [] */
    struct buffer lengths;             /* u32 a chunk */
    uint64_t total;
    int spill;          /* -1: none yet */
    uint64_t spilled;   /* bytes */
    struct buffer ends; /* u64: of the runs in it */
};

struct words_writer *words_writer_open(const char *folder, size_t run) {
    struct words_writer *writer = xcalloc(1, sizeof *writer);
    writer->folder = folder ? xstrdup(folder) : NULL;
    writer->run = run;
    writer->spill = -1;
    return writer;
}

void words_writer_free(struct words_writer *writer) {
    if (writer == NULL) return;
    if (writer->spill >= 0) close(writer->spill);
    key_set_free(&writer->ids);
    buffer_free(&writer->texts);
    buffer_free(&writer->words);
    buffer_free(&writer->noted);
    buffer_free(&writer->lengths);
    buffer_free(&writer->ends);
    free(writer->folder);
    free(writer);
}

/* Noting. */

static struct noted_word *noted_words(const struct words_writer *writer) {
    return (struct noted_word *)(void *)writer->words.data;
}

static void note_word(struct words_writer *writer, uint32_t chunk, const struct read_word *word) {
    bool is_new;
    int64_t *number = key_set_put(&writer->ids, hash_bytes(word->bytes, word->size, 0),
                                  hash_bytes(word->bytes, word->size, 1), &is_new);
    if (is_new) {
        struct noted_word noted = {.start = writer->texts.size, .size = (uint32_t)word->size};
        *number = (int64_t)writer->ids.n - 1;
        buffer_append(&writer->texts, word->bytes, word->size);
        buffer_append(&writer->words, &noted, sizeof noted);
    }
    struct noted noted = {(uint32_t)*number, {chunk, word->position}};
    noted_words(writer)[*number].n++;
    buffer_append(&writer->noted, &noted, sizeof noted);
}

/* A word of a run, to be sorted. */
struct run_word {
    struct text_span text;
    uint32_t number;
};

static int compare_spans(struct text_span left, struct text_span right) {
    size_t size = left.size < right.size ? left.size : right.size;
    int difference = memcmp(left.text, right.text, size);
    return difference != 0 ? difference : (left.size > right.size) - (left.size < right.size);
}

static int compare_run_words(const void *left, const void *right) {
    return compare_spans(((const struct run_word *)left)->text,
                         ((const struct run_word *)right)->text);
}

/* The words of the run in their order; NULL: no memory. */
static struct run_word *sort_words(const struct words_writer *writer) {
    size_t n = writer->ids.n;
    const struct noted_word *words = noted_words(writer);
    struct run_word *sorted = malloc((n + 1) * sizeof *sorted);
    for (size_t i = 0; sorted && i < n; i++)
        sorted[i] =
            (struct run_word){{writer->texts.data + words[i].start, words[i].size}, (uint32_t)i};
    if (sorted && n > 0) qsort(sorted, n, sizeof *sorted, compare_run_words);
    return sorted;
}

/* Occurrences word by word, each word's in the order of chunks; NULL: no memory. */
static struct occurrence *sort_occurrences(struct words_writer *writer) {
    size_t n = writer->noted.size / sizeof(struct noted), first = 0;
    const struct noted *noted = (const void *)writer->noted.data;
    struct noted_word *words = noted_words(writer);
    struct occurrence *sorted = malloc((n + 1) * sizeof *sorted);
    if (sorted == NULL) return NULL;
    for (size_t i = 0; i < writer->ids.n; i++) {
        words[i].first = first;
        first += words[i].n;
    }
    for (size_t i = 0; i < n; i++) {
        sorted[words[noted[i].word].first] = noted[i].occurrence;
        words[noted[i].word].first++;
    }
    return sorted;
}

static void put_run_word(struct buffer *piece, struct text_span text, uint32_t n,
                         const struct occurrence *occurrences) {
    uint8_t size = (uint8_t)text.size;
    buffer_append(piece, &size, 1);
    buffer_append(piece, text.text, text.size);
    buffer_append(piece, &n, sizeof n);
    buffer_append(piece, occurrences, n * sizeof *occurrences);
}

/* Gives the run to the sink in pieces, and begins the next. */
static enum status end_run(struct words_writer *writer, words_sink *sink, void *context,
                           struct error *e) {
    size_t n = writer->ids.n;
    struct occurrence *occurrences = sort_occurrences(writer);
    struct run_word *words = sort_words(writer);
    struct buffer piece = {0};
    enum status status = STATUS_OK;
    if (occurrences == NULL || words == NULL)
        status = error_set(e, STATUS_NO_MEMORY, "words of %zu bytes", writer->noted.size);
    for (size_t i = 0; i < n && status == STATUS_OK; i++) {
        const struct noted_word *word = &noted_words(writer)[words[i].number];
        /* Sorting has moved `first` behind them. */
        put_run_word(&piece, words[i].text, word->n, occurrences + word->first - word->n);
        if (piece.size < PIECE) continue;
        status = sink(context, piece.data, piece.size, e);
        buffer_clear(&piece);
    }
    if (status == STATUS_OK && piece.size > 0) status = sink(context, piece.data, piece.size, e);
    buffer_free(&piece);
    free(words);
    free(occurrences);
    key_set_free(&writer->ids);
    buffer_clear(&writer->texts);
    buffer_clear(&writer->words);
    buffer_clear(&writer->noted);
    return status;
}

/* Full runs. */

static enum status open_spill(struct words_writer *writer, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/words.tmp", writer->folder);
    writer->spill = open(path.data, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    enum status status = STATUS_OK;
    if (writer->spill < 0 || unlink(path.data) != 0)
        status = error_errno(e, "%s: create", path.data);
    buffer_free(&path);
    return status;
}

static enum status write_spill(void *context, const void *bytes, size_t size, struct error *e) {
    struct words_writer *writer = context;
    for (size_t done = 0; done < size;) {
        ssize_t n = write(writer->spill, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s/words.tmp: write", writer->folder);
        done += (size_t)n;
    }
    writer->spilled += size;
    return STATUS_OK;
}

static enum status spill_run(struct words_writer *writer, struct error *e) {
    if (writer->spill < 0 && open_spill(writer, e)) return e->status;
    if (end_run(writer, write_spill, writer, e)) return e->status;
    buffer_append(&writer->ends, &writer->spilled, sizeof writer->spilled);
    return STATUS_OK;
}

enum status words_writer_add(struct words_writer *writer, struct text_span text, struct error *e) {
    struct word_reader reader;
    struct read_word word;
    uint64_t chunk = writer->lengths.size / sizeof(uint32_t);
    uint32_t length = 0;
    if (chunk >= WORDS_CHUNKS)
        return error_set(e, STATUS_TOO_LARGE, "more than %d chunks have no index of words",
                         WORDS_CHUNKS);
    bool full =
        writer->noted.size / sizeof(struct noted) >= writer->run || writer->ids.n >= RUN_DIFFERENT;
    if (full && writer->folder && spill_run(writer, e)) return e->status;
    word_reader_open(&reader, text);
    while (word_reader_next(&reader, &word)) {
        note_word(writer, (uint32_t)chunk, &word);
        length++;
    }
    word_reader_close(&reader);
    buffer_append(&writer->lengths, &length, sizeof length);
    writer->total += length;
    return STATUS_OK;
}

/* Joining. */

/* A run that is read word by word. */
struct words_run {
    const uint8_t *at, *end;
    struct text_span word; /* text NULL: it has no more */
    uint32_t n;
    const uint8_t *occurrences;
};

static void read_run(struct words_run *run) {
    run->word = (struct text_span){NULL, 0};
    if (run->at == run->end) return;
    size_t size = *run->at;
    run->word = (struct text_span){(const char *)run->at + 1, size};
    run->n = words_load32(run->at + 1 + size);
    run->occurrences = run->at + 1 + size + sizeof run->n;
    run->at = run->occurrences + run->n * sizeof(struct occurrence);
}

struct joining {
    const uint32_t *lengths; /* a chunk */
    struct words_run *runs;
    size_t n_runs;
    struct postings_writer postings;
    struct buffer positions; /* u32, of a word in a chunk */
    struct buffer dictionary, index;
    struct text_span latest; /* the word before */
    struct buffer piece;     /* of postings, to be given to the sink */
    struct words_foot foot;
    uint64_t written;
    words_sink *sink;
    void *context;
};

static enum status give(struct joining *joining, const void *bytes, size_t size, struct error *e) {
    joining->written += size;
    return size > 0 ? joining->sink(joining->context, bytes, size, e) : STATUS_OK;
}

static void put_number(struct buffer *out, uint64_t number) {
    while (number >= 0x80) {
        uint8_t byte = (uint8_t)(number | 0x80);
        buffer_append(out, &byte, 1);
        number >>= 7;
    }
    uint8_t last = (uint8_t)number;
    buffer_append(out, &last, 1);
}

static void put_word(struct joining *joining, struct text_span word, uint64_t n, uint64_t size) {
    uint8_t shared = 0, rest;
    if (joining->foot.n_words % WORDS_STRIDE == 0) {
        uint64_t entry[2] = {joining->dictionary.size,
                             joining->written + joining->piece.size - size};
        buffer_append(&joining->index, entry, sizeof entry);
    } else {
        while (shared < word.size && shared < joining->latest.size &&
               word.text[shared] == joining->latest.text[shared])
            shared++;
    }
    rest = (uint8_t)(word.size - shared);
    buffer_append(&joining->dictionary, &shared, 1);
    buffer_append(&joining->dictionary, &rest, 1);
    buffer_append(&joining->dictionary, word.text + shared, rest);
    put_number(&joining->dictionary, n);
    put_number(&joining->dictionary, size);
    joining->latest = word;
    joining->foot.n_words++;
}

/* Takes over the occurrences that a run has of a word. */
static void join_run(struct joining *joining, const struct words_run *run) {
    for (uint32_t i = 0; i < run->n;) {
        const uint8_t *at = run->occurrences + i * sizeof(struct occurrence);
        uint32_t chunk = words_load32(at), n = 0;
        buffer_clear(&joining->positions);
        for (; i + n < run->n && words_load32(at) == chunk; n++, at += sizeof(struct occurrence))
            buffer_append(&joining->positions, at + sizeof chunk, sizeof(uint32_t));
        postings_writer_add(&joining->postings, chunk, n,
                            (const uint32_t *)(const void *)joining->positions.data,
                            joining->lengths[chunk]);
        i += n;
    }
}

static enum status join_word(struct joining *joining, struct text_span word, struct error *e) {
    size_t before = joining->piece.size;
    int64_t n;
    for (size_t i = 0; i < joining->n_runs; i++) {
        struct words_run *run = &joining->runs[i];
        if (run->word.text == NULL || compare_spans(run->word, word) != 0) continue;
        join_run(joining, run);
        read_run(run);
    }
    if (postings_writer_end(&joining->postings, &joining->piece, &n, e)) return e->status;
    put_word(joining, word, (uint64_t)n, joining->piece.size - before);
    if (joining->piece.size < PIECE) return STATUS_OK;
    enum status status = give(joining, joining->piece.data, joining->piece.size, e);
    buffer_clear(&joining->piece);
    return status;
}

static enum status join_words(struct joining *joining, struct error *e) {
    enum status status = STATUS_OK;
    for (size_t i = 0; i < joining->n_runs; i++) read_run(&joining->runs[i]);
    while (status == STATUS_OK) {
        struct text_span lowest = {NULL, 0};
        for (size_t i = 0; i < joining->n_runs; i++) {
            struct text_span word = joining->runs[i].word;
            if (word.text && (lowest.text == NULL || compare_spans(word, lowest) < 0))
                lowest = word;
        }
        if (lowest.text == NULL) break;
        status = join_word(joining, lowest, e);
    }
    return status ? status : give(joining, joining->piece.data, joining->piece.size, e);
}

static enum status give_lengths(struct joining *joining, struct error *e) {
    uint32_t longest = 0;
    uint64_t n = joining->foot.n_chunks;
    struct buffer lengths = {0};
    for (uint64_t i = 0; i < n; i++)
        longest = joining->lengths[i] > longest ? joining->lengths[i] : longest;
    joining->foot.length_width = longest <= UINT8_MAX ? 1 : longest <= UINT16_MAX ? 2 : 4;
    for (uint64_t i = 0; i < n; i++)
        buffer_append(&lengths, &joining->lengths[i], joining->foot.length_width);
    enum status status = give(joining, lengths.data, lengths.size, e);
    buffer_free(&lengths);
    return status;
}

static enum status give_all(struct joining *joining, struct error *e) {
    const char zeros[WORDS_PAD] = {0};
    struct words_foot *foot = &joining->foot;
    if (join_words(joining, e) || give(joining, zeros, sizeof zeros, e)) return e->status;
    foot->lengths = joining->written;
    if (give_lengths(joining, e)) return e->status;
    foot->dictionary = joining->written;
    if (give(joining, joining->dictionary.data, joining->dictionary.size, e)) return e->status;
    foot->index = joining->written;
    if (give(joining, joining->index.data, joining->index.size, e)) return e->status;
    memcpy(foot->magic, "RETROWRD", sizeof foot->magic);
    foot->format = WORDS_FORMAT;
    return give(joining, foot, sizeof *foot, e);
}

/* Runs in the spill file, then the last, which is in memory. */
static struct words_run *list_runs(const struct words_writer *writer, const uint8_t *spill,
                                   const struct buffer *last, size_t *n_runs) {
    size_t n = writer->ends.size / sizeof(uint64_t);
    const uint64_t *ends = (const void *)writer->ends.data;
    struct words_run *runs = xcalloc(n + 1, sizeof *runs);
    for (size_t i = 0; i < n; i++) {
        runs[i].at = spill + (i > 0 ? ends[i - 1] : 0);
        runs[i].end = spill + ends[i];
    }
    runs[n].at = (const uint8_t *)last->data;
    runs[n].end = runs[n].at + last->size;
    *n_runs = n + 1;
    return runs;
}

static enum status keep_run(void *context, const void *bytes, size_t size, struct error *e) {
    (void)e;
    buffer_append(context, bytes, size);
    return STATUS_OK;
}

enum status words_writer_end(struct words_writer *writer, words_sink *sink, void *context,
                             struct error *e) {
    struct buffer last = {0};
    void *spill = NULL;
    enum status status = end_run(writer, keep_run, &last, e);
    if (status == STATUS_OK && writer->spilled > 0) {
        spill = mmap(NULL, (size_t)writer->spilled, PROT_READ, MAP_PRIVATE, writer->spill, 0);
        if (spill == MAP_FAILED) status = error_errno(e, "%s/words.tmp: map", writer->folder);
    }
    if (status == STATUS_OK) {
        struct joining joining = {
            .lengths = (const uint32_t *)(const void *)writer->lengths.data,
            .foot = {.n_chunks = writer->lengths.size / sizeof(uint32_t), .total = writer->total},
            .sink = sink,
            .context = context};
        joining.runs = list_runs(writer, spill, &last, &joining.n_runs);
        status = give_all(&joining, e);
        postings_writer_free(&joining.postings);
        buffer_free(&joining.positions);
        buffer_free(&joining.dictionary);
        buffer_free(&joining.index);
        buffer_free(&joining.piece);
        free(joining.runs);
    }
    if (spill && spill != MAP_FAILED) munmap(spill, (size_t)writer->spilled);
    buffer_free(&last);
    return status;
}

/* Words in memory. */

enum status words_make(struct words **out, words_source *source, void *context, int64_t n,
                       struct error *e) {
    struct buffer bytes = {0};
    struct words_writer *writer = words_writer_open(NULL, 0);
    enum status status = STATUS_OK;
    CHECK(n >= 0 && n < INT32_MAX);
    for (int64_t i = 0; i < n && status == STATUS_OK; i++)
        status = words_writer_add(writer, source(context, i), e);
    if (status == STATUS_OK) status = words_writer_end(writer, keep_run, &bytes, e);
    words_writer_free(writer);
    if (status == STATUS_OK)
        status = words_open(out, (struct text_span){bytes.data, bytes.size}, n,
                            "words of a changed document", e);
    if (status == STATUS_OK)
        (*out)->own = bytes.data;
    else
        buffer_free(&bytes);
    return status;
}
