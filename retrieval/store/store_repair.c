/* retrieval/store/store_repair.c: what a person asks for who would rather go on without a part than
 * not at all: the end of a damaged log is cut off, a damaged generation is given up for the one
 * before. Both are put aside. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "retrieval/store/store_private.h"

/* The log. */

/* The head of the log cannot be read: nothing of it can. */
static bool is_without_head(enum status status, const struct change_log_end *end) {
    return status == STATUS_CORRUPT && end->size == 0;
}

static enum status repair_log(struct disk_generation *generation, struct store_repaired *repaired,
                              struct error *e) {
    struct epoch *epoch = NULL;
    struct change_log_end end;
    enum status status = epoch_load(&epoch, disk_generation_hold(generation), &end, e);
    epoch_release(epoch);
    if (is_without_head(status, &end)) {
        end.torn = change_log_measure(disk_generation_folder(generation));
        end.damaged = true;
        status = STATUS_OK;
    }
    if (status) return status;
    repaired->n_kept = end.sequence;
    repaired->n_cut = end.torn;
    repaired->n_lost = end.n_lost;
    repaired->log_cut = end.torn > 0 || end.damaged;
    return repaired->log_cut ? change_log_cut(disk_generation_folder(generation), &end, e)
                             : STATUS_OK;
}

/* The generation. */

/* A generation that CURRENT need not name, by what its MANIFEST says of itself. */
static enum status open_by_manifest(struct disk_generation **out, const char *dir, int generation,
                                    struct error *e) {
    struct manifest manifest = {0};
    struct buffer text = {0};
    char *folder = disk_generation_path(dir, generation), *path = disk_path(folder, "MANIFEST");
    enum status status = file_read(path, MANIFEST_LIMIT, &text, e);
    if (status == STATUS_OK) status = manifest_parse(&manifest, text.data, text.size, path, e);
    struct generation_origin origin = {generation, manifest.checksum};
    manifest_free(&manifest);
    buffer_free(&text);
    free(path);
    free(folder);
    return status ? status : disk_generation_open_one(out, dir, origin, e);
}

/* The newest generation that is whole; of those below `below` alone, where that is not 0. */
static enum status find_whole(struct disk_generation **out, const char *dir, int below,
                              struct error *e) {
    int *found, n = disk_list_generations(dir, &found);
    struct error why;
    enum status status = STATUS_NOT_FOUND;
    for (int i = n - 1; i >= 0 && status != STATUS_OK; i--)
        if (below == 0 || found[i] < below) status = open_by_manifest(out, dir, found[i], &why);
    free(found);
    if (status == STATUS_OK) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT,
                     "%s: no other generation is whole; restore a snapshot, or build it again",
                     dir);
}

/* Renames a generation's folder to a name that no program looks for. */
static enum status put_generation_aside(const char *dir, int generation, struct error *e) {
    struct buffer aside = {0};
    struct stat st;
    char *folder = disk_generation_path(dir, generation);
    buffer_printf(&aside, "%s.damaged", folder);
    for (int i = 2; stat(aside.data, &st) == 0; i++) {
        buffer_clear(&aside);
        buffer_printf(&aside, "%s.damaged-%d", folder, i);
    }
    enum status status = stat(folder, &st) == 0 ? disk_rename(folder, aside.data, e) : STATUS_OK;
    buffer_free(&aside);
    free(folder);
    return status;
}

/* damaged: the generation that CURRENT names; 0: it names none. */
static enum status fall_back(struct disk_generation **out, const char *dir, int damaged,
                             struct store_repaired *repaired, struct error *e) {
    enum status status = find_whole(out, dir, damaged, e);
    if (status) return status;
    status = current_write(dir, disk_generation_origin(*out), e);
    if (status == STATUS_OK) status = disk_sync(dir, e);
    if (status == STATUS_OK && damaged > 0) status = put_generation_aside(dir, damaged, e);
    if (status == STATUS_OK) status = disk_sync(dir, e);
    repaired->damaged_generation = damaged;
    repaired->generation = disk_generation_origin(*out).generation;
    return status;
}

static enum status repair_locked(const char *dir, struct store_repaired *repaired,
                                 struct error *e) {
    struct disk_generation *generation = NULL;
    struct generation_origin origin = {0};
    enum status status =
        current_read(dir, &origin.generation, &origin.manifest_checksum, &repaired->why);
    if (status) origin.generation = 0;
    if (status == STATUS_OK)
        status = disk_generation_open_one(&generation, dir, origin, &repaired->why);
    /* A lack of memory is no damage. */
    if (status == STATUS_NO_MEMORY) return error_set(e, status, "%s", repaired->why.text);
    repaired->fell_back = status != STATUS_OK;
    if (repaired->fell_back) status = fall_back(&generation, dir, origin.generation, repaired, e);
    if (status == STATUS_OK) status = repair_log(generation, repaired, e);
    disk_generation_close(generation);
    return status;
}

enum status store_repair(const char *dir, struct store_repaired *repaired, struct error *e) {
    int lock;
    *repaired = (struct store_repaired){0};
    if (access(dir, F_OK) != 0) return error_errno(e, "%s", dir);
    if (generation_lock_soon(&lock, dir, e)) return e->status;
    enum status status = repair_locked(dir, repaired, e);
    generation_unlock(lock);
    return status;
}
