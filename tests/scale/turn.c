/* tests/scale/turn.c: a made collection turns to other vectors while it is changed, and how long it
 * is locked for that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store_embed.h"
#include "tests/scale/scale.h"

enum { LATE_CHANGES = 20 };

struct turning {
    const struct scale *scale;
    bool changed;
    double began; /* the step that is under way */
};

/* As many as the document has, of its number alone. */
static enum status give_others(void *context, const struct collection_document *document,
                               bool awaited, float *vectors, struct sparse_rows *sparse,
                               struct error *e) {
    const struct turning *turning = context;
    uint64_t number = strtoull(document->path + strcspn(document->path, "0123456789"), NULL, 10);
    (void)awaited;
    (void)sparse;
    (void)e;
    for (int i = 0; i < document->n_chunks; i++)
        made_vector(&turning->scale->vectors, vectors + (size_t)i * SCALE_DIM, number,
                    ((uint64_t)1 << 41) + number * SCALE_DOCUMENT_CHUNKS + (uint64_t)i);
    return STATUS_OK;
}

/* Another program changes documents just before the lock. */
static enum status change_late(const struct scale *scale, struct error *e) {
    struct scale_document *made = xcalloc(1, sizeof *made);
    struct collection *collection;
    enum change_effect effect;
    enum status status = store_open(&collection, scale->dir, e);
    for (int i = 0; i < LATE_CHANGES && status == STATUS_OK; i++) {
        char id[DOCUMENT_ID_SIZE];
        scale_document_make(scale, made, i, 1000);
        document_id_of_path(made->path, id);
        made->document.id = id;
        status = collection_put(collection, NULL, &made->document, made->vectors, &effect, e);
    }
    if (status == STATUS_OK) collection_close(collection);
    buffer_free(&made->text);
    free(made);
    return status;
}

static void tell_step(void *context, const char *step) {
    struct turning *turning = context;
    struct error e;
    double now = time_now();
    scale_print("turn.step", now - turning->began, "s");
    printf("%s\n", step);
    turning->began = now;
    if (strstr(step, "turning") == NULL || turning->changed) return;
    turning->changed = true;
    if (change_late(turning->scale, &e)) fprintf(stderr, "scale: %s\n", e.text);
    turning->began = time_now();
}

enum status scale_turn(struct scale *scale, struct error *e) {
    struct turning turning = {.scale = scale, .began = time_now()};
    struct vector_changed changed;
    const struct vector_change change = {.embedder = "made again",
                                         .embedder_hash = scale->embedder.hash + 1,
                                         .query_prompt = "",
                                         .document_prompt = "",
                                         .dim = SCALE_DIM,
                                         .embed = give_others,
                                         .tell = tell_step,
                                         .context = &turning};
    enum status status = store_change_vectors(scale->dir, &change, &changed, e);
    if (status) return status;
    scale_print("turn.later", (double)changed.n_later, "documents");
    scale_print("turn.locked", 1e3 * changed.locked_seconds, "ms");
    return STATUS_OK;
}
