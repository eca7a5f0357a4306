/* retro/model/identity.c: checksums of a model's folder. See identity.h. */
#include "retro/model/identity.h"

#include <string.h>

#include "config/base/hash.h"
#include "retro/model/packed.h"
#include "retro/weights/gguf_folder.h"

/* Models with experts have thousands of tensors: with 8 places in each a start would read
 * gigabytes.
 */
enum { WHOLE = 64 << 10, PLACES = 8, ALL_PLACES = 8192, PLACE = 8 << 10 };

static uint64_t hash_contents(const struct stored_tensor *stored, int places, uint64_t seed) {
    const char *data = stored->data;
    if (stored->bytes <= WHOLE) return hash_bytes(data, stored->bytes, seed);
    size_t step = places > 1 ? (stored->bytes - PLACE) / (size_t)(places - 1) : 0;
    for (int i = 0; i < places - 1; i++) seed = hash_bytes(data + (size_t)i * step, PLACE, seed);
    return hash_bytes(data + stored->bytes - PLACE, PLACE, seed);
}

static uint64_t hash_form(const struct stored_tensor *stored, uint64_t seed) {
    const char *type = stored_dtype_name(stored->dtype);
    seed = hash_bytes(stored->name, strlen(stored->name) + 1, seed);
    seed = hash_bytes(type, strlen(type) + 1, seed);
    return hash_bytes(stored->shape, (size_t)stored->n_dims * sizeof stored->shape[0], seed);
}

static void identify_config(const char *folder, struct buffer *lines) {
    struct buffer config = {0};
    struct error why;
    if (config_read_text(folder, &config, &why))
        buffer_printf(lines, "no model: %s\n", why.text);
    else
        buffer_printf(lines, "a config.json with checksum %016llx\n",
                      (unsigned long long)hash_bytes(config.data, config.size, 0));
    buffer_free(&config);
}

static void identify_tensors(const struct weights *weights, bool packed, struct comm *world,
                             struct buffer *lines) {
    uint64_t form = 0, contents = 0;
    size_t bytes = 0;
    int n = weights_count(weights),
        places = max_int(1, min_int(PLACES, ALL_PLACES / max_int(1, n)));
    weights_read_apart(weights);
    struct error ended; /* is told at the next agreement, too */
    for (int i = 0; i < n && comm_working(world, &ended) == STATUS_OK; i++) {
        const struct stored_tensor *stored = weights_at(weights, i);
        form = hash_form(stored, form);
        contents = hash_contents(stored, places, contents);
        bytes += stored->bytes;
    }
    buffer_printf(
        lines, "%s%d tensors of %.1f MB with names, types and shapes of checksum %016llx\n",
        packed ? PACKED_FILE ", " : "", n, 1e-6 * (double)bytes, (unsigned long long)form);
    buffer_printf(lines, "weights with checksum %016llx\n", (unsigned long long)contents);
}

void model_identify(const char *folder, struct comm *world, struct buffer *lines) {
    struct weights *weights;
    struct error why;
    bool packed;
    identify_config(folder, lines);
    if (model_files_open(&weights, &packed, folder, &why)) {
        buffer_printf(lines, "no weights: %s\n", why.text);
        return;
    }
    identify_tensors(weights, packed, world, lines);
    weights_close(weights);
}
