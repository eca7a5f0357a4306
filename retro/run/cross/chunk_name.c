/* retro/run/cross/chunk_name.c: see chunk_name.h. */
#include "retro/run/cross/chunk_name.h"

static struct text_span bytes_of(const void *bytes, size_t size) {
    return (struct text_span){bytes, size};
}

void chunk_history_begin(struct chunk_history *history, uint32_t scope) {
    const struct text_span parts[] = {bytes_of(&scope, sizeof scope)};
    sha256_hash(parts, ARRAY_COUNT(parts), history->closed.bytes);
    buffer_clear(&history->open);
    history->rows = history->closed_rows = 0;
    history->lost = false;
}

void chunk_history_free(struct chunk_history *history) { buffer_free(&history->open); }

void chunk_history_add(struct chunk_history *history, int32_t id) {
    buffer_append(&history->open, &id, sizeof id);
    history->rows++;
}

void chunk_history_lose(struct chunk_history *history) { history->lost = true; }

void chunk_history_close(struct chunk_history *history) {
    struct chunk_name before = history->closed;
    const struct text_span parts[] = {bytes_of(&before, sizeof before),
                                      bytes_of(history->open.data, history->open.size)};
    sha256_hash(parts, ARRAY_COUNT(parts), history->closed.bytes);
    buffer_clear(&history->open);
    history->closed_rows = history->rows;
}

bool chunk_history_name(const struct chunk_history *history,
                        const struct neighbor_tokens *neighbors, int r, struct chunk_name *name) {
    size_t ids = (size_t)neighbors->k * (size_t)r;
    const struct text_span parts[] = {bytes_of(&history->closed, sizeof history->closed),
                                      bytes_of(neighbors->ids, ids * sizeof *neighbors->ids)};
    if (history->lost || history->closed_rows == 0) return false;
    sha256_hash(parts, ARRAY_COUNT(parts), name->bytes);
    return true;
}
