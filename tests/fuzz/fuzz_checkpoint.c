/* tests/fuzz/fuzz_checkpoint.c: any bytes as a file of torch.save in Megatron's checkpoint of one
 * rank, as its pickle, as the .metadata of a distributed one, as an archive of NeMo's and as its
 * configuration: whatever opens is planned as a model and read to the last byte. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/convert/formats/yaml.h"
#include "tools/convert/plan/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VALUES_LIMIT = 1 << 16 };

/* The checkpoints go with the process. */
static char ranks[60], spread[60];

static void remove_folders(void) {
    char path[120];
    snprintf(path, sizeof path, "%s/model_weights.ckpt", ranks);
    unlink(path);
    snprintf(path, sizeof path, "%s/.metadata", spread);
    unlink(path);
    snprintf(path, sizeof path, "%s.nemo", spread);
    unlink(path);
    rmdir(ranks);
    rmdir(spread);
}

static void make_folders(void) {
    snprintf(ranks, sizeof ranks, "/dev/shm/fuzz_ranks_XXXXXX");
    snprintf(spread, sizeof spread, "/dev/shm/fuzz_spread_XXXXXX");
    CHECK(mkdtemp(ranks) != NULL && mkdtemp(spread) != NULL);
    atexit(remove_folders);
}

static void write_path(const char *path, const void *data, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static void write_file(const char *folder, const char *name, const void *data, size_t size) {
    char path[120];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    write_path(path, data, size);
}

/* Values that hold one another have no end. */
static void walk(const struct pickle_value *v, int depth, int *seen) {
    if (v == NULL || depth == 0 || *seen > VALUES_LIMIT) return;
    ++*seen;
    for (size_t i = 0; i < v->text.size; i++) CHECK(v->text.text[i] <= 0 || v->text.text[i] > 0);
    for (size_t i = 0; i < v->count; i++) walk(v->items[i], depth - 1, seen);
    walk(v->class, depth - 1, seen);
    walk(v->arguments, depth - 1, seen);
    walk(v->state, depth - 1, seen);
}

static void read_pickle(const void *data, size_t size) {
    struct pickle *p;
    struct error e;
    int seen = 0;
    if (pickle_open(&p, (struct text_span){data, size}, "fuzz", &e)) return;
    walk(pickle_root(p), 50, &seen);
    pickle_close(p);
}

static void read_yaml(const void *data, size_t size) {
    struct settings s = {0};
    struct error e;
    yaml_read(&s, (struct text_span){data, size}, "fuzz", &e);
    settings_free(&s);
}

static void read_pieces(const struct import_plan *p) {
    unsigned sum = 0;
    for (int i = 0; i < p->n; i++) {
        const struct checkpoint_tensor *t = p->targets[i].from;
        for (int k = 0; k < t->n_pieces; k++) {
            size_t bytes = torch_dtype_bytes(t->dtype);
            for (int axis = 0; axis < t->n_dims; axis++) bytes *= (size_t)t->pieces[k].extent[axis];
            for (size_t at = 0; at < bytes; at++) sum += t->pieces[k].data[at];
        }
    }
    CHECK(sum < UINT32_MAX);
}

static void plan(const char *folder) {
    struct import_plan p = {0};
    struct import_options o = {.from = folder, .inspect = true};
    struct error e;
    if (checkpoint_open(&p.checkpoint, folder, "/dev/shm", &e) == STATUS_OK &&
        import_rename(&p, &e) == STATUS_OK && import_find_layers(&p, &o, &e) == STATUS_OK &&
        import_configure(&p, &o, &e) == STATUS_OK && import_match(&p, &e) == STATUS_OK)
        read_pieces(&p);
    import_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char archive[80];
    if (ranks[0] == '\0') make_folders();
    read_pickle(data, size);
    read_yaml(data, size);
    write_file(ranks, "model_weights.ckpt", data, size);
    plan(ranks);
    write_file(spread, ".metadata", data, size);
    plan(spread);
    snprintf(archive, sizeof archive, "%s.nemo", spread);
    write_path(archive, data, size);
    plan(archive);
    return 0;
}
