/* retrieval/words/postings_writer.c: see postings_writer.h. */
#include "retrieval/words/postings_writer.h"

#include <string.h>

static unsigned count_bits(const uint32_t *values, size_t n) {
    uint32_t all = 0;
    for (size_t i = 0; i < n; i++) all |= values[i];
    return all == 0 ? 0 : 32 - (unsigned)__builtin_clz(all);
}

/* Bits on their way to bytes. */
struct bit_packing {
    struct buffer *out;
    uint64_t pending;
    unsigned n_pending;
};

static void pack(struct bit_packing *packing, const uint32_t *values, size_t n, unsigned bits) {
    for (size_t i = 0; i < n; i++) {
        packing->pending |= (uint64_t)values[i] << packing->n_pending;
        packing->n_pending += bits;
        size_t whole = packing->n_pending / 8;
        buffer_append(packing->out, &packing->pending, whole);
        packing->pending >>= 8 * whole; /* at most 38 bits were pending */
        packing->n_pending %= 8;
    }
}

static void end_block(struct postings_writer *writer) {
    size_t n = (size_t)writer->n, n_steps = writer->steps.size / sizeof(uint32_t);
    const uint32_t *steps = (const void *)writer->steps.data;
    uint32_t last = writer->chunks[n - 1];
    for (size_t i = 0; i < n; i++) {
        uint64_t next = (uint64_t)writer->chunks[i] + 1;
        writer->chunks[i] = (uint32_t)(writer->chunks[i] - writer->next);
        writer->counts[i]--;
        writer->next = next;
    }
    unsigned gap_bits = count_bits(writer->chunks, n), bits = count_bits(writer->counts, n),
             step_bits = count_bits(steps, n_steps);
    uint16_t head = (uint16_t)(gap_bits | bits << 5 | step_bits << 10);
    struct bit_packing packing = {.out = &writer->blocks};
    buffer_append(&writer->blocks, &head, sizeof head);
    pack(&packing, writer->chunks, n, gap_bits);
    pack(&packing, writer->counts, n, bits);
    pack(&packing, steps, n_steps, step_bits);
    buffer_append(&writer->blocks, &packing.pending, packing.n_pending > 0);
    struct words_block block = {last, (uint32_t)writer->blocks.size, writer->largest,
                                writer->shortest};
    buffer_append(&writer->table, &block, sizeof block);
    buffer_clear(&writer->steps);
    writer->n = 0;
}

void postings_writer_add(struct postings_writer *writer, uint32_t chunk, uint32_t count,
                         const uint32_t *positions, uint32_t length) {
    if (writer->n == WORDS_BLOCK) end_block(writer);
    if (writer->n == 0) writer->shortest = UINT32_MAX, writer->largest = 0;
    writer->chunks[writer->n] = chunk;
    writer->counts[writer->n] = count;
    writer->n++;
    writer->n_all++;
    writer->shortest = length < writer->shortest ? length : writer->shortest;
    writer->largest = count > writer->largest ? count : writer->largest;
    for (uint32_t i = 0; positions && i < count; i++) {
        uint32_t step = positions[i] - (i > 0 ? positions[i - 1] : 0);
        buffer_append(&writer->steps, &step, sizeof step);
    }
}

enum status postings_writer_end(struct postings_writer *writer, struct buffer *out, int64_t *n,
                                struct error *e) {
    if (writer->n > 0) end_block(writer);
    bool fits = writer->blocks.size <= UINT32_MAX;
    if (writer->n_all > WORDS_BLOCK) buffer_append(out, writer->table.data, writer->table.size);
    buffer_append(out, writer->blocks.data, writer->blocks.size);
    *n = writer->n_all;
    buffer_clear(&writer->table);
    buffer_clear(&writer->blocks);
    writer->next = 0;
    writer->n_all = 0;
    return fits ? STATUS_OK
                : error_set(e, STATUS_TOO_LARGE,
                            "a word is in %lld chunks, more than the index of words holds",
                            (long long)*n);
}

void postings_writer_free(struct postings_writer *writer) {
    buffer_free(&writer->steps);
    buffer_free(&writer->table);
    buffer_free(&writer->blocks);
}
