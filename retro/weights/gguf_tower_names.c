/* retro/weights/gguf_tower_names.c: tensors of a tower's file as those of the folder. See
 * gguf_tower.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/weights/gguf_tower_kinds.h"

bool tower_swaps_mlp(const struct gguf *tower) {
    const struct gguf_tensor *up = gguf_find(tower, "v.blk.0.ffn_up.weight"),
                             *down = gguf_find(tower, "v.blk.0.ffn_down.weight"),
                             *norm = gguf_find(tower, "v.blk.0.ln1.weight");
    bool there = up && down && norm && up->n_dims == 2 && down->n_dims == 2 && norm->n_dims == 1;
    return there && down->shape[1] == norm->shape[0] && up->shape[1] != norm->shape[0];
}

static bool is_bound(const char *ending) {
    static const char *const bounds[] = {"input_min", "input_max", "output_min", "output_max"};
    for (size_t i = 0; i < ARRAY_COUNT(bounds); i++)
        if (strcmp(ending, bounds[i]) == 0) return true;
    return false;
}

/* Whether a name has the form of a row; its number, -1 without one, and its ending. */
static bool match(const char *form, const char *name, int64_t *number, const char **ending) {
    *number = -1;
    *ending = "";
    for (; *form && *form != '*' && *form != '?'; form++) {
        if (*form == '#') {
            char *end;
            *number = strtol(name, &end, 10);
            if (end == name || *name < '0' || *name > '9' || *number >= ARCHITECTURE_LAYERS)
                return false;
            name = end;
        } else if (*form == *name) {
            name++;
        } else {
            return false;
        }
    }
    if (*form == '\0') return *name == '\0';
    *ending = name;
    return *form == '?' ? is_bound(name) : strcmp(name, "weight") == 0 || strcmp(name, "bias") == 0;
}

/* A row's name for the folder, with the number and the ending. */
static bool fill(char *out, size_t size, const char *form, int64_t number, const char *ending) {
    struct buffer name = {0};
    for (; *form; form++) {
        if (*form == '#')
            buffer_printf(&name, "%lld", (long long)number);
        else if (*form == '*' || *form == '?')
            buffer_append_string(&name, ending);
        else
            buffer_append(&name, form, 1);
    }
    bool fits = name.size < size;
    if (fits) memcpy(out, name.data, name.size + 1);
    buffer_free(&name);
    return fits;
}

/* The rows of both products of an MLP are beside each other in towers that have no bounds. */
static const struct tower_tensor *exchange_mlp(const struct tower_tensor *row) {
    if (strstr(row->name, "ffn_up")) return row + 1;
    return strstr(row->name, "ffn_down") ? row - 1 : row;
}

static bool name_tensor(struct gguf_view *view, const struct gguf *tower,
                        const struct tower_kind *kind, const char *name) {
    for (size_t i = 0; i < kind->n_tensors; i++) {
        const struct tower_tensor *row = &kind->tensors[i];
        const char *ending;
        int64_t number;
        if (!match(row->name, name, &number, &ending)) continue;
        if (row->folder == NULL) return true;
        if (kind->family != TOWER_GEMMA4 && tower_swaps_mlp(tower)) row = exchange_mlp(row);
        view->scalar = strchr(row->name, '?') != NULL;
        if (strncmp(name, "v.deepstack.", strlen("v.deepstack.")) == 0)
            number = tower_count_deepstack(tower, kind, number);
        return fill(view->name, sizeof view->name, row->folder, number, ending);
    }
    return false;
}

/* Names of a tower of sound. */
static bool is_of_sound(const char *name) {
    return strncmp(name, "a.", 2) == 0 || strncmp(name, "mm.a.", 5) == 0;
}

/* The rows of a head of a matrix whose queries or keys lie in pairs; 0: it is no such. */
static int find_paired(const struct gguf *tower, const struct tower_kind *kind, const char *name) {
    int64_t width = 0, heads = 0;
    bool rotated = strstr(name, ".attn_q.") || strstr(name, ".attn_k.");
    if (!kind->paired || !rotated) return 0;
    gguf_key_int(architecture_value(tower, &kind->vision, "embedding_length"), &width);
    gguf_key_int(architecture_value(tower, &kind->vision, "attention.head_count"), &heads);
    return heads > 0 && width % (2 * heads) == 0 ? (int)(width / heads) : 0;
}

enum status gguf_view_tower(struct gguf_view *view, const struct gguf *model,
                            const struct gguf_tensor *tensor, const struct gguf_tensor **frames,
                            struct error *e) {
    static const char first[] = "v.patch_embd.weight", second[] = "v.patch_embd.weight.1";
    const struct gguf *tower = gguf_joined(model);
    const struct tower_kind *kind = gguf_tower_kind(model);
    bool two = kind->most_pixels > 0; /* of Qwen's towers */
    *view = (struct gguf_view){.turned = false};
    *frames = NULL;
    if (two && strcmp(tensor->name, second) == 0) return STATUS_OK;
    if (kind->sound && is_of_sound(tensor->name)) return STATUS_OK;
    if (two && strcmp(tensor->name, first) == 0) {
        *frames = gguf_find(tower, second);
        if (*frames == NULL)
            return error_set(e, STATUS_CORRUPT, "%s: tensor %s is missing", gguf_name(tower),
                             second);
    }
    view->by_pixel = kind->family == TOWER_GEMMA4 && strcmp(tensor->name, first) == 0;
    view->paired = find_paired(tower, kind, tensor->name);
    if (name_tensor(view, tower, kind, tensor->name)) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED, "%s: tensor \"%s\" has no place in a tower of %s",
                     gguf_name(tower), tensor->name, kind->projector);
}
