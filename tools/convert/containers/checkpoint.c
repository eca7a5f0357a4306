/* tools/convert/containers/checkpoint.c: finds out which container a path is, and opens it. See
 * checkpoint.h. */
#include "tools/convert/containers/checkpoint.h"

#include "config/base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TRACKER_LIMIT = 64 };

#define tracker_name "latest_checkpointed_iteration.txt"

static bool path_exists(const char *folder, const char *name) {
    struct buffer path = {0};
    struct stat st;
    buffer_printf(&path, "%s/%s", folder, name);
    bool there = stat(path.data, &st) == 0;
    buffer_free(&path);
    return there;
}

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Whether the folder has an entry whose name starts so. */
static bool has_entry(const char *folder, const char *start) {
    DIR *dir = opendir(folder);
    bool found = false;
    for (struct dirent *entry; dir && !found && (entry = readdir(dir)) != NULL;)
        found = starts_with(entry->d_name, start);
    if (dir) closedir(dir);
    return found;
}

/* A container, told by a file whose name begins with one of its signs. */
struct container_kind {
    const char *signs[3];
    enum status (*open)(struct checkpoint *checkpoint, struct error *e);
    const char *shown; /* in the list of those that are known */
};

/* In Megatron's own order. */
static const struct container_kind containers[] = {
    {{".metadata"}, checkpoint_open_distributed, ".metadata (torch_dist)"},
    {{"mp_rank_", "tp_rank_", "model_weights.ckpt"},
     checkpoint_open_ranks,
     "mp_rank_*/model_optim_rng.pt (torch)"},
    {{"metadata.json"}, checkpoint_open_zarr, "metadata.json (zarr)"},
};

static bool is_checkpoint(const char *path) {
    static const char *const names[] = {tracker_name, "model_config.yaml", "weights/.metadata"};
    bool found = false;
    if (is_file(path)) return ends_with(path, ".nemo");
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) found = found || path_exists(path, names[i]);
    for (size_t i = 0; i < ARRAY_COUNT(containers); i++)
        for (size_t k = 0; k < ARRAY_COUNT(containers[i].signs) && containers[i].signs[k]; k++)
            found = found || has_entry(path, containers[i].signs[k]);
    return found;
}

/* The folders of a path that are checkpoints by their names, iterations of Megatron's or NeMo's
 * NAME--val_loss=...; in order. */
static int list_iterations(const char *path, struct buffer *out) {
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort), found = 0;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        struct buffer folder = {0};
        buffer_printf(&folder, "%s/%s", path, name);
        bool named =
            starts_with(name, "iter_") || strcmp(name, "release") == 0 || strstr(name, "--");
        if (named && !is_file(folder.data) && is_checkpoint(folder.data)) {
            buffer_printf(out, "%s%s", found ? ", " : "", folder.data);
            found++;
        }
        buffer_free(&folder);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return found;
}

/* The same of a folder that is none itself, or of its folder "checkpoints", which is NeMo's; 0:
 * there are none. */
static int find_iterations(const char *path, struct buffer *out) {
    struct buffer inner = {0};
    if (is_checkpoint(path)) return 0;
    buffer_printf(&inner, "%s/checkpoints", path);
    int n = list_iterations(path, out);
    if (n == 0) n = list_iterations(inner.data, out);
    buffer_free(&inner);
    return n;
}

bool checkpoint_detect(const char *path) {
    struct buffer found = {0};
    bool is = is_checkpoint(path) || find_iterations(path, &found) > 0;
    buffer_free(&found);
    return is;
}

/* The only checkpoint of a folder without a tracker; the folder itself where there is none. */
static enum status enter_only(struct checkpoint *checkpoint, const char *path, struct error *e) {
    struct buffer found = {0};
    int n = find_iterations(path, &found);
    checkpoint->folder = xstrdup(n == 1 ? found.data : path);
    if (n > 1)
        error_set(e, STATUS_INVALID,
                  "%s holds several checkpoints and no %s that says which: give one of %s", path,
                  tracker_name, found.data);
    buffer_free(&found);
    return n > 1 ? e->status : STATUS_OK;
}

/* The tracker's text: a number, or "release". */
static enum status follow_tracker(struct checkpoint *checkpoint, const char *path,
                                  struct error *e) {
    struct buffer file = {0}, text = {0};
    buffer_printf(&file, "%s/%s", path, tracker_name);
    enum status status = file_read(file.data, TRACKER_LIMIT, &text, e);
    while (status == STATUS_OK && text.size > 0 && isspace((unsigned char)text.data[text.size - 1]))
        text.size--;
    buffer_append(&text, "", 0);
    struct buffer folder = {0};
    char *end = NULL;
    unsigned long long iteration = 0;
    if (status == STATUS_OK) {
        text.data[text.size] = '\0';
        iteration = strtoull(text.data, &end, 10);
        bool number = text.size > 0 && isdigit((unsigned char)text.data[0]) && *end == '\0';
        if (number)
            buffer_printf(&folder, "%s/iter_%07llu", path, iteration);
        else if (strcmp(text.data, "release") == 0)
            buffer_printf(&folder, "%s/release", path);
        else
            status = error_set(e, STATUS_INVALID,
                               "%s says \"%s\"; expected a number of an iteration or \"release\"",
                               file.data, text.data);
    }
    if (status == STATUS_OK && !path_exists(folder.data, "."))
        status =
            error_set(e, STATUS_NOT_FOUND, "%s says that the checkpoint is %s, which is not there",
                      file.data, folder.data);
    checkpoint->folder = folder.data;
    buffer_free(&file);
    buffer_free(&text);
    return status;
}

static bool has_start(const struct checkpoint *checkpoint, const char *start) {
    for (int i = 0; i < checkpoint->n_entries; i++)
        if (starts_with(checkpoint->entries[i].name, start)) return true;
    return false;
}

/* NeMo's configurations, and the folder that has the weights. */
static enum status enter_nemo(struct checkpoint *checkpoint, struct error *e) {
    static const char *const configurations[] = {"model_config.yaml", "hparams.yaml",
                                                 "context/model.yaml"};
    static const char *const folders[] = {"model_weights/", "weights/"};
    for (size_t i = 0; i < ARRAY_COUNT(configurations); i++)
        if (checkpoint_has(checkpoint, configurations[i]) &&
            checkpoint_read_nemo(checkpoint, configurations[i], e))
            return e->status;
    for (size_t i = 0; i < ARRAY_COUNT(folders); i++)
        if (has_start(checkpoint, folders[i])) checkpoint_enter(checkpoint, folders[i]);
    return STATUS_OK;
}

static enum status open_container(struct checkpoint *checkpoint, struct error *e) {
    enum status status = is_file(checkpoint->folder) ? checkpoint_list_archive(checkpoint, e)
                                                     : checkpoint_list_folder(checkpoint, e);
    if (status || enter_nemo(checkpoint, e)) return e->status;
    struct buffer known = {0};
    for (size_t i = 0; i < ARRAY_COUNT(containers); i++) {
        for (size_t k = 0; k < ARRAY_COUNT(containers[i].signs) && containers[i].signs[k]; k++) {
            if (!has_start(checkpoint, containers[i].signs[k])) continue;
            buffer_free(&known);
            return containers[i].open(checkpoint, e);
        }
        buffer_printf(&known, "%s no %s", i ? "," : "", containers[i].shown);
    }
    error_set(e, STATUS_UNSUPPORTED, "%s is no checkpoint that is known:%s", checkpoint->folder,
              known.data);
    buffer_free(&known);
    return e->status;
}

enum status checkpoint_open(struct checkpoint **out, const char *path, const char *scratch,
                            struct error *e) {
    struct checkpoint *checkpoint = xcalloc(1, sizeof *checkpoint);
    checkpoint->scratch = scratch;
    checkpoint->version = 3;
    checkpoint->ranks = checkpoint->stages = checkpoint->chunks = 1;
    checkpoint->inner = "";
    enum status status = path_exists(path, tracker_name) ? follow_tracker(checkpoint, path, e)
                                                         : enter_only(checkpoint, path, e);
    if (status == STATUS_OK) status = open_container(checkpoint, e);
    if (status == STATUS_OK) status = checkpoint_check_shared(checkpoint, e);
    if (status == STATUS_OK && checkpoint->settings.n == 0 && !is_file(checkpoint->folder))
        status = checkpoint_read_above(checkpoint, e);
    if (status == STATUS_OK && checkpoint->n == 0)
        status =
            error_set(e, STATUS_CORRUPT, "%s: the checkpoint holds no weights", checkpoint->folder);
    if (status) {
        checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return STATUS_OK;
}

void checkpoint_close(struct checkpoint *checkpoint) {
    if (checkpoint == NULL) return;
    for (int i = 0; i < checkpoint->n; i++) {
        free(checkpoint->tensors[i].name);
        free(checkpoint->tensors[i].problem);
        free(checkpoint->tensors[i].pieces);
    }
    for (int i = 0; i < checkpoint->n_files; i++) {
        torch_file_close(checkpoint->files[i]);
        free(checkpoint->files[i]);
    }
    for (int i = 0; i < checkpoint->n_sources; i++) {
        file_map_close(&checkpoint->sources[i].map);
        free(checkpoint->sources[i].path);
    }
    for (int i = 0; i < checkpoint->n_entries; i++) free(checkpoint->entries[i].name);
    settings_free(&checkpoint->settings);
    free(checkpoint->entries);
    free(checkpoint->tensors);
    free(checkpoint->files);
    free(checkpoint->sources);
    free(checkpoint->folder);
    free(checkpoint);
}

enum status checkpoint_torch_file(struct checkpoint *checkpoint, struct text_span bytes,
                                  const char *name, struct torch_file **out, struct error *e) {
    struct torch_file *file = xcalloc(1, sizeof *file);
    if (torch_file_open(file, bytes, name, e)) {
        free(file);
        return e->status;
    }
    checkpoint->files = xgrow(checkpoint->files, checkpoint->n_files, &checkpoint->file_capacity,
                              sizeof(struct torch_file *));
    checkpoint->files[checkpoint->n_files] = file;
    checkpoint->n_files++;
    *out = file;
    return STATUS_OK;
}

struct checkpoint_tensor *checkpoint_add(struct checkpoint *checkpoint, const char *name) {
    checkpoint->tensors = xgrow(checkpoint->tensors, checkpoint->n, &checkpoint->capacity,
                                sizeof *checkpoint->tensors);
    struct checkpoint_tensor *tensor = &checkpoint->tensors[checkpoint->n];
    *tensor = (struct checkpoint_tensor){.name = xstrdup(name)};
    checkpoint->n++;
    return tensor;
}

bool checkpoint_drops(const char *name) {
    static const char *const starts[] = {"optimizer", "chained_", "rng_state", "rerun_state",
                                         "opt_param_scheduler"};
    static const char *const ends[] = {"_extra_state", "inv_freq", "rotary_pos_emb"};
    for (size_t i = 0; i < ARRAY_COUNT(starts); i++)
        if (starts_with(name, starts[i])) return true;
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++)
        if (ends_with(name, ends[i])) return true;
    return strstr(name, "_extra_state/") != NULL;
}

static int compare_tensors(const void *a, const void *b) {
    const struct checkpoint_tensor *tensor = a, *checkpoint_tensor = b;
    int order = strcmp(tensor->name, checkpoint_tensor->name);
    return order != 0 ? order
                      : (tensor->stage > checkpoint_tensor->stage) -
                            (tensor->stage < checkpoint_tensor->stage);
}

void checkpoint_sort(struct checkpoint *checkpoint) {
    if (checkpoint->n > 1)
        qsort(checkpoint->tensors, (size_t)checkpoint->n, sizeof *checkpoint->tensors,
              compare_tensors);
}

struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name) {
    int low = 0, high = checkpoint->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strcmp(checkpoint->tensors[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < checkpoint->n && strcmp(checkpoint->tensors[low].name, name) == 0
               ? &checkpoint->tensors[low]
               : NULL;
}
