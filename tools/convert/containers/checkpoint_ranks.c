/* tools/convert/containers/checkpoint_ranks.c: Megatron's "torch" format: a file of torch.save for
 * each tensor parallel rank of each pipeline stage. Each stage counts its layers from 0;
 * interleaved stages hold several runs of layers. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/line.h"
#include "tools/convert/containers/checkpoint.h"

enum {
    RANKS_LIMIT = 1024,
    CHUNKS_LIMIT = 64,
    DEPTH_LIMIT = 12,
    NAME_LIMIT = 400,
    STACKS = 16,
    ENTRIES_LIMIT = 1 << 20
};

/* One file. */
struct rank_file {
    char *path; /* shown in messages */
    int rank, stage;
    struct torch_file *file;
};

struct rank_files {
    struct rank_file *list;
    int n, capacity;
};

static const char *const file_names[] = {"model_optim_rng.pt", "model_rng.pt",
                                         "model_weights.ckpt"};

/* The number behind a prefix at *at, which moves behind it; -1: none. */
static int take_number(const char **at, const char *prefix) {
    size_t n = strlen(prefix);
    if (strncmp(*at, prefix, n) != 0 || !isdigit((unsigned char)(*at)[n])) return -1;
    char *end;
    unsigned long number = strtoul(*at + n, &end, 10);
    *at = end;
    return number > RANKS_LIMIT ? RANKS_LIMIT : (int)number;
}

/* mp_rank_00, mp_rank_00_001 and NeMo's tp_rank_00_pp_rank_001; false: another name. */
static bool parse_name(const char *name, int *rank, int *stage) {
    const char *at = name;
    *stage = -1;
    *rank = take_number(&at, "mp_rank_");
    if (*rank >= 0) {
        *stage = take_number(&at, "_");
        return *at == '\0';
    }
    at = name;
    *rank = take_number(&at, "tp_rank_");
    if (*rank >= 0) *stage = take_number(&at, "_pp_rank_");
    return *rank >= 0 && *at == '\0';
}

/* NeMo's training calls a rank's file after the step: "NAME--val_loss=2.5.ckpt". */
static bool is_weights(const char *name, bool of_rank) {
    size_t n = strlen(name), end = strlen(".ckpt");
    for (size_t i = 0; i < ARRAY_COUNT(file_names); i++)
        if (strcmp(name, file_names[i]) == 0) return true;
    return of_rank && n > end && strcmp(name + n - end, ".ckpt") == 0;
}

static int compare_files(const void *a, const void *b) {
    const struct rank_file *file = a, *rank_file = b;
    return file->stage != rank_file->stage ? file->stage - rank_file->stage
                                           : file->rank - rank_file->rank;
}

static void add_file(struct rank_files *files, const char *path, int rank, int stage) {
    files->list = xgrow(files->list, files->n, &files->capacity, sizeof *files->list);
    files->list[files->n] =
        (struct rank_file){.path = xstrdup(path), .rank = rank, .stage = stage < 0 ? 0 : stage};
    files->n++;
}

static enum status list_files(const struct checkpoint *checkpoint, struct rank_files *files,
                              struct error *e) {
    for (int i = 0; i < checkpoint->n_entries; i++) {
        const char *name = checkpoint->entries[i].name, *slash = strchr(name, '/');
        int rank = 0, stage = -1;
        char *folder = xstrndup(name, slash ? (size_t)(slash - name) : 0);
        if (is_weights(slash ? slash + 1 : name, slash != NULL) &&
            (slash == NULL || parse_name(folder, &rank, &stage)))
            add_file(files, name, rank, stage);
        free(folder);
    }
    if (files->n == 0)
        return error_set(e, STATUS_NOT_FOUND,
                         "%s holds no mp_rank_*/model_optim_rng.pt: is this the torch format?",
                         checkpoint->folder);
    qsort(files->list, (size_t)files->n, sizeof *files->list, compare_files);
    for (int i = 1; i < files->n; i++)
        if (compare_files(&files->list[i], &files->list[i - 1]) == 0)
            return error_set(
                e, STATUS_INVALID,
                "%s holds %s and %s, two checkpoints of one rank: give a folder of one",
                checkpoint->folder, files->list[i - 1].path, files->list[i].path);
    return STATUS_OK;
}

/* Every rank of every stage is there once. T5's encoder may have stages of its own, before the
 * decoder's. */
static enum status check_files(struct checkpoint *checkpoint, const struct rank_files *files,
                               struct error *e) {
    const struct rank_file *last = &files->list[files->n - 1];
    int64_t ranks = last->rank + 1, stages = last->stage + 1, of_encoder;
    settings_int(&checkpoint->settings, "tensor_model_parallel_size", &ranks);
    if (settings_int(&checkpoint->settings, "pipeline_model_parallel_size", &stages) &&
        settings_int(&checkpoint->settings, "encoder_pipeline_model_parallel_size", &of_encoder) &&
        of_encoder > 0)
        stages = of_encoder > RANKS_LIMIT || stages > RANKS_LIMIT ? 0 : stages + of_encoder;
    if (settings_int(&checkpoint->settings, "encoder_tensor_model_parallel_size", &of_encoder) &&
        of_encoder > 0 && of_encoder != ranks)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: the encoder was split over %lld ranks and the decoder over %lld, "
                         "which is not imported",
                         checkpoint->folder, (long long)of_encoder, (long long)ranks);
    if (ranks < 1 || ranks > RANKS_LIMIT || stages < 1 || stages > RANKS_LIMIT)
        return error_set(e, STATUS_CORRUPT, "%s: %lld ranks of %lld stages are out of reason",
                         checkpoint->folder, (long long)ranks, (long long)stages);
    bool complete = files->n == ranks * stages;
    for (int i = 0; i < files->n && complete; i++)
        complete = files->list[i].stage == i / ranks && files->list[i].rank == i % ranks;
    checkpoint->ranks = (int)ranks;
    checkpoint->stages = (int)stages;
    if (complete) return STATUS_OK;

    struct buffer found = {0};
    for (int i = 0; i < files->n && i < 20; i++)
        buffer_printf(&found, "%s%d of stage %d", i ? ", " : "", files->list[i].rank,
                      files->list[i].stage);
    error_set(e, STATUS_CORRUPT,
              "%s holds the ranks %s; its arguments say %lld tensor parallel ranks of %lld "
              "pipeline stages, all of "
              "which are needed",
              checkpoint->folder, found.data, (long long)ranks, (long long)stages);
    buffer_free(&found);
    return e->status;
}

/* Collects one run of layers of one rank. */
struct rank_walk {
    struct checkpoint *c;
    const struct rank_file *file;
    int first;      /* of the run's tensors, which rank 0 makes */
    int order;      /* of the run */
    int n;          /* tensors of this rank */
    int seen;       /* entries, tensors or not: dicts that hold one another would have no end */
    bool respelled; /* a norm of this rank has another spelling than rank 0's */
    struct error *e;
};

/* Whether names are the same but for "_layernorm." and "_norm.", which Megatron's versions call a
 * norm. */
static bool is_respelled(const char *a, const char *b) {
    static const char *const spellings[] = {"_layernorm.", "_norm."};
    while (*a && *b) {
        size_t skip_a = 0, skip_b = 0;
        for (size_t i = 0; i < ARRAY_COUNT(spellings); i++) {
            size_t n = strlen(spellings[i]);
            if (strncmp(a, spellings[i], n) == 0) skip_a = n;
            if (strncmp(b, spellings[i], n) == 0) skip_b = n;
        }
        bool norms = skip_a > 0 && skip_b > 0;
        if (!norms && *a != *b) return false;
        a += norms ? skip_a : 1;
        b += norms ? skip_b : 1;
    }
    return *a == *b;
}

static bool is_same(const char *a, const char *b) { return strcmp(a, b) == 0; }

static struct checkpoint_tensor *find_by(const struct rank_walk *walk, const char *name,
                                         bool (*same)(const char *, const char *)) {
    int count = walk->c->n - walk->first;
    for (int k = 0; k < count; k++) { /* ranks list their tensors in one order */
        struct checkpoint_tensor *tensor = &walk->c->tensors[walk->first + (walk->n + k) % count];
        if (same(tensor->name, name)) return tensor;
    }
    return NULL;
}

/* The tensor that rank 0 has by this name, or by its other spelling, which is said once a file. */
static struct checkpoint_tensor *find_in_run(struct rank_walk *walk, const char *name) {
    struct checkpoint_tensor *tensor = find_by(walk, name, is_same);
    if (tensor) return tensor;
    tensor = find_by(walk, name, is_respelled);
    if (tensor && !walk->respelled)
        line_print(stderr,
                   "retro-convert: %s calls %s what rank 0 calls %s; rank 0 counts, for its other "
                   "norms too",
                   walk->file->path, name, tensor->name);
    walk->respelled = walk->respelled || tensor != NULL;
    return tensor;
}

static void put_piece(struct checkpoint_tensor *tensor, int rank,
                      const struct torch_tensor *stored) {
    struct checkpoint_piece *piece = &tensor->pieces[rank];
    *piece = (struct checkpoint_piece){.data = stored->data};
    memcpy(piece->extent, stored->shape, sizeof piece->extent);
}

static enum status fail_different(const struct rank_walk *walk, const char *name) {
    return error_set(walk->e, STATUS_CORRUPT,
                     "%s and %s hold different tensors: %s is not the same, or in one only",
                     walk->file->path, walk->file[-walk->file->rank].path, name);
}

static enum status take_tensor(struct rank_walk *walk, const char *name,
                               const struct pickle_value *value) {
    struct torch_tensor stored;
    struct error problem;
    enum status status = torch_tensor_read(walk->file->file, value, name, &stored, &problem);
    if (status && status != STATUS_UNSUPPORTED) {
        *walk->e = problem;
        return status;
    }
    bool first = walk->file->rank == 0;
    struct checkpoint_tensor *tensor =
        first ? checkpoint_add(walk->c, name) : find_in_run(walk, name);
    if (tensor == NULL) return fail_different(walk, name);
    if (first) {
        tensor->pieces = xcalloc((size_t)walk->c->ranks, sizeof *tensor->pieces);
        tensor->dtype = stored.dtype;
        tensor->n_dims = stored.n_dims;
        tensor->stage = walk->order;
        tensor->file = walk->file->file->name;
        memcpy(tensor->shape, stored.shape, sizeof tensor->shape);
    }
    walk->n++;
    tensor->n_pieces++;
    if (status) {
        if (tensor->problem == NULL) tensor->problem = xstrdup(problem.text);
        return STATUS_OK;
    }
    bool same = tensor->dtype == stored.dtype && tensor->n_dims == stored.n_dims &&
                memcmp(tensor->shape, stored.shape, sizeof tensor->shape) == 0;
    if (!same || tensor->n_pieces != walk->file->rank + 1) return fail_different(walk, name);
    put_piece(tensor, walk->file->rank, &stored);
    return STATUS_OK;
}

/* Dicts within dicts are names with points. */
static enum status walk(struct rank_walk *rank_walk, const struct pickle_value *pickle_value,
                        const char *outer, int depth) {
    if (depth == 0)
        return error_set(rank_walk->e, STATUS_CORRUPT, "%s: dicts lie too deep",
                         rank_walk->file->path);
    for (size_t i = 0; i < pickle_pairs(pickle_value); i++) {
        const struct pickle_value *key = pickle_key(pickle_value, i),
                                  *value = pickle_pair_value(pickle_value, i);
        char name[NAME_LIMIT];
        rank_walk->seen++;
        if (rank_walk->seen > ENTRIES_LIMIT)
            return error_set(rank_walk->e, STATUS_CORRUPT, "%s: holds more than %d entries",
                             rank_walk->file->path, ENTRIES_LIMIT);
        if (key->kind != PICKLE_TEXT || memchr(key->text.text, '\0', key->text.size)) continue;
        int n = snprintf(name, sizeof name, "%s%s%.*s", outer, outer[0] ? "." : "",
                         (int)(key->text.size < NAME_LIMIT ? key->text.size : NAME_LIMIT),
                         key->text.text);
        if (n >= NAME_LIMIT)
            return error_set(rank_walk->e, STATUS_CORRUPT, "%s: a tensor's name is too long",
                             rank_walk->file->path);
        if (checkpoint_drops(name))
            rank_walk->c->dropped++;
        else if (torch_is_tensor(value))
            take_tensor(rank_walk, name, value);
        else if (pickle_pairs(value) > 0)
            walk(rank_walk, value, name, depth - 1);
        else
            continue;
        if (rank_walk->e->status) return rank_walk->e->status;
    }
    return STATUS_OK;
}

/* The weights of run `chunk` of a file: "model", of interleaved stages "model0", "model1"; NeMo's
 * files are all weights.
 */
static const struct pickle_value *find_model(const struct torch_file *file, int chunk) {
    const struct pickle_value *root = torch_file_root(file), *model = pickle_member(root, "model");
    char name[20];
    snprintf(name, sizeof name, "model%d", chunk);
    if (model == NULL) model = pickle_member(root, "state_dict");
    if (model && chunk == 0) return model;
    if (pickle_member(root, name)) return pickle_member(root, name);
    return chunk == 0 && pickle_member(root, "args") == NULL ? root : NULL;
}

static enum status collect_run(struct checkpoint *checkpoint, const struct rank_files *files,
                               int stage, int chunk, struct error *e) {
    struct rank_walk rank_walk = {.c = checkpoint,
                                  .first = checkpoint->n,
                                  .order = chunk * checkpoint->stages + stage,
                                  .e = e};
    for (int r = 0; r < checkpoint->ranks; r++) {
        rank_walk.file = &files->list[stage * checkpoint->ranks + r];
        rank_walk.n = rank_walk.seen = 0;
        rank_walk.respelled = false;
        const struct pickle_value *model = find_model(rank_walk.file->file, chunk);
        if (pickle_pairs(model) == 0)
            return error_set(e, STATUS_CORRUPT,
                             "%s: holds no \"model\": no checkpoint of Megatron's",
                             rank_walk.file->path);
        if (walk(&rank_walk, model, "", DEPTH_LIMIT)) return e->status;
        if (rank_walk.n != checkpoint->n - rank_walk.first)
            return fail_different(&rank_walk, "a tensor");
    }
    return STATUS_OK;
}

/* Layers that are counted so far, of each stack: "decoder.layers." */
struct layer_counts {
    struct layer_count {
        char prefix[NAME_LIMIT];
        int before, here; /* in earlier runs, and in this one */
    } stacks[STACKS];
    int n;
};

static struct layer_count *count_of(struct layer_counts *counts, const char *prefix) {
    for (int i = 0; i < counts->n; i++)
        if (strcmp(counts->stacks[i].prefix, prefix) == 0) return &counts->stacks[i];
    if (counts->n == STACKS) return NULL;
    struct layer_count *made = &counts->stacks[counts->n];
    *made = (struct layer_count){0};
    snprintf(made->prefix, sizeof made->prefix, "%s", prefix);
    counts->n++;
    return made;
}

/* Gives a tensor its layer's number in the whole model. */
static enum status renumber(struct checkpoint_tensor *tensor, struct layer_counts *counts,
                            struct error *e) {
    const char *found = strstr(tensor->name, "layers.");
    char prefix[NAME_LIMIT];
    if (found == NULL || !isdigit((unsigned char)found[7])) return STATUS_OK;
    char *end;
    unsigned long layer = strtoul(found + 7, &end, 10);
    snprintf(prefix, sizeof prefix, "%.*s", (int)(found - tensor->name), tensor->name);
    struct layer_count *count = count_of(counts, prefix);
    if (count == NULL || layer > 1 << 20)
        return error_set(e, STATUS_CORRUPT, "%s: the tensor %s has no layer that can be",
                         tensor->file, tensor->name);
    struct buffer name = {0};
    buffer_printf(&name, "%slayers.%lu%s", prefix, (unsigned long)count->before + layer, end);
    count->here = max_int(count->here, (int)layer + 1);
    free(tensor->name);
    tensor->name = name.data;
    return STATUS_OK;
}

/* Runs of layers follow one another as they were collected: first runs of all stages, then second
 * runs. */
static enum status renumber_all(struct checkpoint *checkpoint, struct error *e) {
    struct layer_counts *counts = xcalloc(1, sizeof *counts);
    enum status status = STATUS_OK;
    for (int i = 0; i < checkpoint->n && status == STATUS_OK; i++) {
        bool next = i > 0 && checkpoint->tensors[i].stage != checkpoint->tensors[i - 1].stage;
        for (int k = 0; next && k < counts->n; k++) {
            counts->stacks[k].before += counts->stacks[k].here;
            counts->stacks[k].here = 0;
        }
        status = renumber(&checkpoint->tensors[i], counts, e);
    }
    free(counts);
    return status;
}

static enum status open_files(struct checkpoint *checkpoint, struct rank_files *files,
                              struct error *e) {
    struct text_span bytes;
    for (int i = 0; i < files->n; i++) {
        struct rank_file *file = &files->list[i];
        struct buffer shown = {0};
        buffer_printf(&shown, "%s/%s%s", checkpoint->folder, checkpoint->inner, file->path);
        enum status status = checkpoint_read(checkpoint, file->path, &bytes, e);
        free(file->path);
        file->path = shown.data;
        if (status || checkpoint_torch_file(checkpoint, bytes, file->path, &file->file, e))
            return e->status;
    }
    return STATUS_OK;
}

static enum status read_settings(struct checkpoint *checkpoint, const struct torch_file *file,
                                 struct error *e) {
    const struct pickle_value *root = torch_file_root(file),
                              *version = pickle_member(root, "checkpoint_version");
    const struct pickle_value *args = pickle_member(root, "args");
    if (checkpoint_take_arguments(checkpoint, root, e)) return e->status;
    bool numbered = pickle_is(version, PICKLE_REAL) || pickle_is(version, PICKLE_INT);
    if (numbered)
        checkpoint->version = version->real;
    else if (args)
        checkpoint->version = 0;
    return STATUS_OK;
}

static enum status collect(struct checkpoint *checkpoint, struct rank_files *files,
                           struct error *e) {
    if (list_files(checkpoint, files, e) || open_files(checkpoint, files, e)) return e->status;
    if (read_settings(checkpoint, files->list[0].file, e) || check_files(checkpoint, files, e))
        return e->status;
    while (checkpoint->chunks < CHUNKS_LIMIT && find_model(files->list[0].file, checkpoint->chunks))
        checkpoint->chunks++;
    for (int chunk = 0; chunk < checkpoint->chunks; chunk++)
        for (int stage = 0; stage < checkpoint->stages; stage++)
            if (collect_run(checkpoint, files, stage, chunk, e)) return e->status;
    return renumber_all(checkpoint, e);
}

enum status checkpoint_open_ranks(struct checkpoint *checkpoint, struct error *e) {
    struct rank_files files = {0};
    checkpoint->container = "torch: a file for each rank";
    checkpoint->ranked = true;
    e->status = STATUS_OK;
    enum status status = collect(checkpoint, &files, e);
    for (int i = 0; i < files.n; i++) free(files.list[i].path);
    free(files.list);
    if (status == STATUS_OK) checkpoint_sort(checkpoint);
    return status;
}
