/* server/schedule/engine_pinned.c: the prefixes that the operator names: their rows are computed
 * before the first request, or read from a file that an earlier start wrote, and never evicted.
 * Nothing else is ever written. See engine_private.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/log.h"
#include "retro/run/cache/prefix_file.h"
#include "server/schedule/engine_private.h"

/* Reading a file. */

/* Whether the file has rows of these ids that this process would compute. A file that is not there
 * is no error. */
static bool file_fits(const struct engine *engine, const struct engine_prefix *prefix,
                      const struct prefix_file *file) {
    size_t bytes = session_image_bytes(engine->pool, prefix->n);
    return file->identity == engine->o.identity && file->n == prefix->n &&
           file->image.size == bytes &&
           memcmp(file->ids, prefix->ids, (size_t)file->n * sizeof *file->ids) == 0;
}

static bool read_rows(struct engine *engine, struct session *session,
                      const struct engine_prefix *prefix) {
    struct error e;
    struct file_map map;
    struct prefix_file file;
    bool read = false;
    enum status status = file_map_open(&map, prefix->file, &e);
    if (status) return false;
    status = prefix_file_parse(&file, (struct text_span){(const char *)map.data, map.size},
                               prefix->file, &e);
    if (status == STATUS_OK && file_fits(engine, prefix, &file)) {
        status = session_image_put(session, file.ids, file.n, file.image.text, &e);
        read = status == STATUS_OK;
    }
    if (status) log_warn("%s; its rows are computed again", e.text);
    file_map_close(&map);
    return read;
}

/* Computing. */

static enum status compute_rows(struct engine *engine, struct session *session,
                                const struct engine_prefix *prefix, struct error *e) {
    struct tensor logits;
    session_reuse(session, &(struct session_text){.ids = prefix->ids, .n = prefix->n});
    while (session_length(session) < prefix->n) {
        int done = session_length(session);
        struct step_item item = {.session = session,
                                 .tokens = prefix->ids + done,
                                 .n_tokens = min_int(prefix->n - done, engine->o.max_step_tokens)};
        if (session_step(engine->pool, &item, 1, &logits, e)) return e->status;
    }
    return STATUS_OK;
}

/* A file that cannot be written costs the next start some time and nothing else. */
static void write_rows(struct engine *engine, struct session *session,
                       const struct engine_prefix *prefix) {
    struct error e;
    size_t bytes = session_image_bytes(engine->pool, prefix->n);
    char *image = xmalloc(bytes);
    struct prefix_file file = {.identity = engine->o.identity,
                               .ids = prefix->ids,
                               .n = prefix->n,
                               .image = {image, bytes}};
    if (session_image_get(session, image, &e) || prefix_file_write(&file, prefix->file, &e))
        log_warn("prefix %s: %s", prefix->name, e.text);
    free(image);
}

/* Pinning. */

static enum status check_prefixes(const struct engine *engine, struct error *e) {
    struct session_blocks blocks = session_pool_blocks(engine->pool);
    int wanted = 0;
    for (int i = 0; i < engine->o.n_prefixes; i++) {
        const struct engine_prefix *prefix = &engine->o.prefixes[i];
        wanted += (prefix->n + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    }
    int states = engine_limits(&engine->o, &engine->info).kept_states;
    if (engine->info.state_bytes > 0 && engine->o.n_prefixes >= states)
        return error_set(
            e, STATUS_TOO_LARGE,
            "server.prefixes are %d, and the memory for prefixes has room for %d states "
            "of %.1f MB, one of them for prompts: raise server.prefix_cache_mb",
            engine->o.n_prefixes, states, 1e-6 * (double)engine->info.state_bytes);
    if (wanted >= blocks.kept_most)
        return error_set(e, STATUS_TOO_LARGE,
                         "server.prefixes take %.1f MB and there are %.1f MB for prefixes: raise "
                         "server.prefix_cache_mb",
                         1e-6 * (double)wanted * (double)blocks.bytes,
                         1e-6 * (double)blocks.kept_most * (double)blocks.bytes);
    return STATUS_OK;
}

static enum status pin_prefix(struct engine *engine, const struct engine_prefix *prefix,
                              struct error *e) {
    double began = time_now();
    struct session *session;
    bool stored = prefix->file && session_has_image(engine->pool);
    if (session_open(&session, engine->pool, (struct grid){0}, e)) return e->status;
    bool read = stored && read_rows(engine, session, prefix);
    if (!read && compute_rows(engine, session, prefix, e)) {
        session_close(session);
        return e->status;
    }
    if (!read && stored) write_rows(engine, session, prefix);
    session_pin(session);
    log_info("prefix %s: %d tokens %s in %.2f s", prefix->name, prefix->n,
             read ? "read from its file" : "computed", time_now() - began);
    return STATUS_OK;
}

enum status engine_pin_prefixes(struct engine *engine, struct error *e) {
    if (engine->o.n_prefixes == 0) return STATUS_OK;
    if (check_prefixes(engine, e)) return e->status;
    for (int i = 0; i < engine->o.n_prefixes; i++)
        if (pin_prefix(engine, &engine->o.prefixes[i], e)) return e->status;
    engine->o.prefixes = NULL; /* the caller's, and not needed any more */
    return STATUS_OK;
}
