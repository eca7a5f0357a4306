/* tests/fuzz/fuzz_safetensors.c: any bytes as a safetensors file: whatever opens is read to the
 * last byte, and tried as the weights of a small model, quantised or packed, which then takes a
 * step. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "retro/model/packed.h"
#include "retro/run/session/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The corpus holds this model with int8, int4 and packed weights. */
static const char config[] =
    "{\"architecture\":\"gpt\",\"num_layers\":1,\"hidden_size\":32,\"num_attention_heads\":2,\"ffn_"
    "hidden_size\":32,"
    "\"vocab_size\":8,\"max_position_embeddings\":8,\"position_embedding_type\":\"rope\","
    "\"normalization\":\"RMSNorm\","
    "\"activation\":\"swiglu\",\"add_bias_linear\":false}";

/* Folders of a model each; their files go with the process. */
enum { FOLDERS = 2 };
static const char *const files[FOLDERS] = {"model.safetensors", PACKED_FILE};
static char folders[FOLDERS][40];

static void write_file(const char *folder, const char *name, const void *data, size_t size) {
    char path[100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static void remove_folders(void) {
    for (int i = 0; i < FOLDERS; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%s", folders[i], files[i]);
        unlink(path);
        snprintf(path, sizeof path, "%s/config.json", folders[i]);
        unlink(path);
        rmdir(folders[i]);
    }
}

static void make_folders(void) {
    for (int i = 0; i < FOLDERS; i++) {
        snprintf(folders[i], sizeof folders[i], "/dev/shm/fuzz_weights_XXXXXX");
        CHECK(mkdtemp(folders[i]) != NULL);
        write_file(folders[i], "config.json", config, strlen(config));
    }
    atexit(remove_folders);
}

/* One step; NaN and infinities in weights are the model's own affair. */
static void take_step(struct backend *b, struct model *m) {
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = 4,
                                    .max_step_rows = 4,
                                    .max_logit_rows = 1,
                                    .max_neighbors = 1,
                                    .kv_dtype = model_info(m)->cache_dtype};
    struct session_pool *pool;
    struct session *s;
    struct tensor logits;
    int32_t tokens[3] = {1, 7, 0};
    CHECK(session_pool_open(&pool, m, &limits, NULL) == STATUS_OK);
    CHECK(session_open(&s, pool, (struct grid){1, 1}, NULL) == STATUS_OK);
    struct step_item item = {.session = s, .tokens = tokens, .n_tokens = 3, .n_logits = 1};
    CHECK(session_step(pool, &item, 1, &logits, NULL) == STATUS_OK &&
          backend_sync(b, NULL) == STATUS_OK);
    session_close(s);
    session_pool_close(pool);
}

static void open_model(const char *folder) {
    static struct backend *backend;
    static struct comm *comm;
    struct model *m = NULL;
    struct error e = {0};
    if (backend == NULL) {
        CHECK(backend_open(&backend, "cpu", &(struct backend_options){.threads = 1}, NULL) ==
              STATUS_OK);
        CHECK(comm_open_single(&comm, NULL) == STATUS_OK);
    }
    enum status status = model_open(&m, folder, backend, comm, &(struct model_options){0}, &e);
    CHECK(status == e.status || status == STATUS_OK);
    CHECK((status == STATUS_OK) == (m != NULL) && (status == STATUS_OK || e.text[0] != '\0'));
    if (m) take_step(backend, m);
    model_close(m);
}

/* The tensors are the whole of the data, each byte once. */
static void read_all(const struct weights *w, const uint8_t *data, size_t size) {
    size_t bytes = 0;
    unsigned sum = 0;
    for (int i = 0; i < weights_count(w); i++) {
        const struct stored_tensor *t = weights_at(w, i);
        CHECK(weights_find(w, t->name) == t && weights_index(w, t) == i);
        for (size_t j = 0; j < t->bytes; j++) sum += ((const uint8_t *)t->data)[j];
        bytes += t->bytes;
    }
    for (size_t j = size - bytes; j < size; j++) sum -= data[j];
    CHECK(sum == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct weights *w = NULL;
    struct error e = {0};
    enum status status = weights_open_memory(&w, data, size, "input", &e);
    if (status) {
        CHECK(w == NULL && e.status == status && e.text[0] != '\0');
        return 0;
    }
    read_all(w, data, size);
    weights_close(w);
    if (folders[0][0] == '\0') make_folders();
    for (int i = 0; i < FOLDERS; i++) {
        write_file(folders[i], files[i], data, size);
        open_model(folders[i]);
    }
    return 0;
}
