/* retro/template/memory.c: the arena of one template or one run of it, and the way out of a
 * failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/template/template_private.h"

enum { BLOCK_BYTES = 64 << 10, ALIGNMENT = 16 };

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(ALIGNMENT) char bytes[];
};

void memory_fail(struct template_memory *memory, enum status status, const char *format, ...) {
    char text[sizeof memory->e->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(memory->e, status, "%s", text);
    longjmp(memory->failed, 1);
}

static void add_block(struct template_memory *memory, size_t bytes) {
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    struct arena_block *block = calloc(1, sizeof *block + size);
    if (block == NULL)
        memory_fail(memory, STATUS_NO_MEMORY, "the chat template: no memory for %zu bytes", size);
    block->size = size;
    block->next = memory->blocks;
    memory->blocks = block;
}

void *memory_take(struct template_memory *memory, size_t bytes) {
    if (bytes > TEMPLATE_MAX_MEMORY || memory->taken + bytes > TEMPLATE_MAX_MEMORY)
        memory_fail(memory, STATUS_TOO_LARGE,
                    "the chat template takes more than %d MB for this request",
                    TEMPLATE_MAX_MEMORY >> 20);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (memory->blocks == NULL || memory->blocks->size - memory->blocks->used < bytes)
        add_block(memory, bytes);
    void *place = memory->blocks->bytes + memory->blocks->used;
    memory->blocks->used += bytes;
    memory->taken += bytes;
    return place;
}

void *memory_grow(struct template_memory *memory, void *items, int n, int *capacity, size_t size) {
    if (n < *capacity) return items;
    int larger = *capacity ? *capacity * 2 : 4;
    void *grown = memory_take(memory, (size_t)larger * size);
    if (n > 0) memcpy(grown, items, (size_t)n * size);
    *capacity = larger;
    return grown;
}

void memory_lookup_add(struct template_memory *memory, struct lookup_table *table, uint64_t hash,
                       int number) {
    size_t size = lookup_wants(table);
    if (size > 0) lookup_move(table, memory_take(memory, size * sizeof *table->slots), size);
    lookup_add(table, hash, number);
}

void memory_release(struct template_memory *memory) {
    while (memory->blocks) {
        struct arena_block *next = memory->blocks->next;
        free(memory->blocks);
        memory->blocks = next;
    }
    memory->taken = 0;
}
