/* server/api/neighbor_json.c: neighbours as JSON. See neighbor_json.h. */
#include "server/api/neighbor_json.h"

#include <math.h>

void neighbor_write(struct json_writer *w, const struct hit *hit) {
    put_key_string(w, "document", hit->path);
    put_key_string(w, "title", hit->title);
    put_key_int(w, "start", (int64_t)hit->start);
    put_key_int(w, "end", (int64_t)hit->end);
    put_key_float(w, "distance", fmaxf(0, 1 - hit->similarity));
    put_key_string_n(w, "text", hit->text.text, hit->text.size);
}

void neighbor_write_given(struct json_writer *w, struct text_span text) {
    static const char *const unknown[] = {"document", "title", "start", "end", "distance"};
    for (size_t i = 0; i < ARRAY_COUNT(unknown); i++) {
        put_key_null(w, unknown[i]);
    }
    put_key_string_n(w, "text", text.text, text.size);
}

bool found_is_told(const struct generation *g) { return g->asked.neighbors.search || g->asked.neighbors.given_k > 0; }

bool found_is_numbered(const struct generation *g) { return g->asked.neighbors.search && g->answer.n_chunks == 0; }

void found_write(struct json_writer *w, const struct found_listing *l, int j) {
    const struct generation *g = l->generation;
    if (!found_is_told(g)) return;
    put_object(w);
    put_key_int(w, "index", l->index);
    put_key_int(w, "chunk", j);
    put_key_int(w, "position", generation_chunk_position(g, j));
    put_key_array(w, "neighbors");
    for (int i = 0; g->asked.neighbors.search && i < g->answer.found[j].n; i++) {
        put_object(w);
        if (found_is_numbered(g)) put_key_int(w, "number", i + 1);
        neighbor_write(w, &g->answer.found[j].list[i]);
        put_object_end(w);
    }
    for (int i = 0; i < g->asked.neighbors.given_k; i++) {
        put_object(w);
        neighbor_write_given(w, l->asked->neighbors[i]);
        put_object_end(w);
    }
    put_array_end(w);
    put_object_end(w);
}
