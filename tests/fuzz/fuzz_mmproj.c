/* tests/fuzz/fuzz_mmproj.c: any bytes as the file of a vision tower beside a model's GGUF file:
 * what opens is a model with pictures, with its processor, its tokenizer and its chat template. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "retro/chat/chat.h"
#include "retro/model/model.h"
#include "retro/pictures/preprocessor.h"
#include "retro/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PATH_ROOM = 80 };

/* Models of each kind of tower that the bytes may name; the last one is for all others. */
static const struct {
    const char *projector, *model;
} models[] = {{"gemma3", "gemma3_a"},  {"gemma4v", "gemma4_a"}, {"qwen3vl_merger", "qwen3_vl"},
              {"pixtral", "mistral3"}, {"mlp", "llava_served"}, {"", "qwen2_5_vl"}};
enum { MODELS = sizeof models / sizeof *models };

/* Folders in memory, which go with the process. */
static char folders[MODELS][PATH_ROOM];

static void join(char path[PATH_ROOM], int model, const char *name) {
    int n = snprintf(path, PATH_ROOM, "%s/%s", folders[model], name);
    CHECK(n > 0 && n < PATH_ROOM);
}

static void remove_folders(void) {
    for (int i = 0; i < MODELS; i++) {
        char path[PATH_ROOM];
        join(path, i, "model.gguf");
        unlink(path);
        join(path, i, "mmproj.gguf");
        unlink(path);
        rmdir(folders[i]);
    }
}

static void make_folders(void) {
    if (folders[0][0]) return;
    for (int i = 0; i < MODELS; i++) {
        char golden[PATH_ROOM], full[PATH_MAX], link[PATH_ROOM];
        snprintf(folders[i], PATH_ROOM, "/dev/shm/fuzz_mmproj_%d_%d", (int)getpid(), i);
        snprintf(golden, PATH_ROOM, "tests/golden/mmproj/%s/model.gguf", models[i].model);
        CHECK(mkdir(folders[i], 0700) == 0 && realpath(golden, full) != NULL);
        join(link, i, "model.gguf");
        CHECK(symlink(full, link) == 0);
    }
    atexit(remove_folders);
}

static void write_tower(const char *path, const void *data, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static void open_model(const char *path) {
    static struct backend *backend;
    static struct comm *comm;
    struct model *model = NULL;
    struct error e = {0};
    if (backend == NULL) {
        CHECK(backend_open(&backend, "cpu", &(struct backend_options){.threads = 1}, NULL) ==
              STATUS_OK);
        CHECK(comm_open_single(&comm, NULL) == STATUS_OK);
    }
    enum status status = model_open(&model, path, backend, comm, &(struct model_options){0}, &e);
    CHECK((status == STATUS_OK) == (model != NULL) && (status == STATUS_OK || e.text[0] != '\0'));
    model_close(model);
}

static void open_rest(const char *path) {
    struct preprocessor processor;
    struct tokenizer *tokenizer = NULL;
    struct chat *chat = NULL;
    struct error e = {0};
    enum status status = preprocessor_open(&processor, path, &e);
    CHECK(status == STATUS_OK || (e.status == status && e.text[0] != '\0'));
    if (tokenizer_open(&tokenizer, path, &e) == STATUS_OK) tokenizer_close(tokenizer);
    if (chat_open(&chat, path, &e) == STATUS_OK) chat_close(chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char tower[PATH_ROOM], model[PATH_ROOM];
    int kind = 0;
    make_folders();
    while (kind < MODELS - 1 &&
           !memmem(data, size, models[kind].projector, strlen(models[kind].projector)))
        kind++;
    join(tower, kind, "mmproj.gguf");
    join(model, kind, "model.gguf");
    write_tower(tower, data, size);
    open_model(model);
    open_rest(model);
    return 0;
}
