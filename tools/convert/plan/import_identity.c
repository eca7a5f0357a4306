/* tools/convert/plan/import_identity.c: what the weights of a folder depend on, as a line of text:
 * files of two runs belong together where it is the same. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/hash.h"
#include "tools/convert/plan/import.h"

/* The files of the checkpoint, as they are now. */
static uint64_t hash_sources(const struct checkpoint *checkpoint) {
    uint64_t hash = 0;
    for (int i = 0; i < checkpoint->n_sources; i++) {
        struct stat st = {0};
        const char *path = checkpoint->sources[i].path;
        if (stat(path, &st) != 0) continue; /* it is mapped, so what it holds is still there */
        int64_t seen[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (int64_t)st.st_ino};
        hash = hash_bytes(path, strlen(path), hash);
        hash = hash_bytes(seen, sizeof seen, hash);
    }
    return hash;
}

static uint64_t hash_targets(const struct import_plan *plan) {
    const struct checkpoint *checkpoint = plan->checkpoint;
    int64_t layout[] = {checkpoint->ranks, (int64_t)(1000 * checkpoint->version), plan->channels};
    uint64_t hash = hash_bytes(layout, sizeof layout, 0);
    for (int i = 0; i < plan->n; i++) {
        const struct import_target *target = &plan->targets[i];
        int64_t how[] = {target->type, target->to, target->split, target->parts};
        hash = hash_bytes(target->name, strlen(target->name), hash);
        hash = hash_bytes(target->shape, sizeof target->shape, hash);
        hash = hash_bytes(how, sizeof how, hash);
    }
    return hash;
}

void import_identify(struct buffer *out, const struct import_plan *plan) {
    buffer_printf(out, "retro-convert %s, files %016llx, tensors %016llx\n", RETRO_VERSION,
                  (unsigned long long)hash_sources(plan->checkpoint),
                  (unsigned long long)hash_targets(plan));
}
