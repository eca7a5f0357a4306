/* tests/fuzz/fuzz_gguf.c: any bytes as a GGUF file: whatever opens is read to the last byte, every
 * row of its tensors is converted, and it is tried as a tokenizer and as a model. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "retro/model/model.h"
#include "retro/text/open/tokenizer_gguf.h"
#include "retro/weights/gguf_architectures.h"
#include "retro/weights/gguf_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_COLUMNS = 1 << 12 };

/* The file that models are opened from goes with the process. */
static char path[60];

static void remove_file(void) { unlink(path); }

static void write_file(const void *data, size_t size) {
    if (path[0] == '\0') {
        snprintf(path, sizeof path, "/dev/shm/fuzz_gguf_%d.gguf", (int)getpid());
        atexit(remove_file);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static void read_values(const struct gguf *g) {
    for (int i = 0; i < gguf_value_count(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        struct gguf_items it = gguf_items_of(v);
        struct gguf_value item;
        struct text_span text;
        int64_t whole;
        double number;
        unsigned sum = 0;
        while (gguf_next(&it, &item)) {
            gguf_number(&item, &number);
            for (size_t k = 0; gguf_text(&item, &text) && k < text.size; k++)
                sum += (uint8_t)text.text[k];
        }
        gguf_int(v, &whole);
        CHECK(sum < UINT32_MAX);
    }
}

static void read_row(const struct gguf_tensor *t, const uint8_t *row, int cols) {
    static float wide[MOST_COLUMNS];
    static int8_t values[MOST_COLUMNS];
    static uint16_t scales[MOST_COLUMNS / QUANTISE_BLOCK], minimums[MOST_COLUMNS / QUANTISE_BLOCK];
    struct deviation lost = {0};
    blocks_widen(wide, t->form, row, cols);
    if (!block_form_plain(t->form))
        blocks_quantise(t->form->dtype, (struct quantised_row){values, scales, minimums}, t->form,
                        row, cols, &lost);
}

static void read_tensors(const struct gguf *g) {
    const struct architecture *architecture;
    struct error e;
    bool known = architecture_find(g, &architecture, &e) == STATUS_OK;
    for (int i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        struct gguf_view view;
        CHECK(gguf_find(g, t->name) == t);
        if (known) gguf_view_tensor(&view, g, architecture, t, &e);
        int64_t cols = t->shape[t->n_dims - 1];
        size_t bytes = cols > 0 ? block_row_bytes(t->form, cols) : 0,
               rows = bytes ? t->bytes / bytes : 0;
        for (size_t row = 0; row < rows && cols <= MOST_COLUMNS; row++)
            read_row(t, t->data + row * bytes, (int)cols);
    }
}

static void open_tokenizer(const struct gguf *g) {
    static const char text[] = "Hello <s> \xC3\xA9 12\n";
    struct tokenizer *t;
    struct tokens ids = {0};
    struct buffer back = {0};
    struct error e = {0};
    enum status status = tokenizer_open_gguf(&t, g, &e);
    CHECK(status == STATUS_OK || e.text[0] != '\0');
    if (status) return;
    if (tokenizer_encode(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL,
                         &ids, &e) == STATUS_OK)
        tokenizer_decode(t, ids.ids, ids.n, false, &back);
    buffer_free(&back);
    tokens_free(&ids);
    tokenizer_close(t);
}

static void open_model(const void *data, size_t size) {
    static struct backend *backend;
    static struct comm *comm;
    struct model *m = NULL;
    struct error e = {0};
    if (backend == NULL) {
        CHECK(backend_open(&backend, "cpu", &(struct backend_options){.threads = 1}, NULL) ==
              STATUS_OK);
        CHECK(comm_open_single(&comm, NULL) == STATUS_OK);
    }
    write_file(data, size);
    enum status status = model_open(&m, path, backend, comm, &(struct model_options){0}, &e);
    CHECK((status == STATUS_OK) == (m != NULL) && (status == STATUS_OK || e.text[0] != '\0'));
    model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gguf *g = NULL;
    struct error e = {0};
    enum status status = gguf_open_memory(&g, data, size, "input", &e);
    if (status) {
        CHECK(g == NULL && e.status == status && e.text[0] != '\0');
        return 0;
    }
    read_values(g);
    read_tensors(g);
    open_tokenizer(g);
    gguf_close(g);
    open_model(data, size);
    return 0;
}
