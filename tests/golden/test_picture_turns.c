/* tests/golden/test_picture_turns.c: while the pictures of one prompt go through the tower, others
 * write: at least a token for each layer. */
#include <stdlib.h>

#include "server/schedule/engine.h"
#include "server/threads/queue.h"
#include "tests/folder.h"

enum { PICTURES = 12, SIDE = 28, CONTEXT = 400, LONG = 200 };

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
    struct sequence *writer, *seer;
    int written; /* by the writer when the seer's answer is over */
    struct bell bell;
};

static void open_fixture(struct fixture *f) {
    const char *folder = "tests/golden/llava_served";
    const struct backend_options options = {.threads = 1};
    struct error e = {0};
    if (backend_open(&f->backend, "cpu", &options, &e) || comm_open_single(&f->comm, &e) ||
        model_open(&f->model, folder, f->backend, f->comm, &(struct model_options){0}, &e) ||
        tokenizer_open(&f->tokenizer, folder, &e))
        fail_msg("%s", e.text);
    const struct engine_options o = {.model = f->model,
                                     .backend = f->backend,
                                     .tokenizer = f->tokenizer,
                                     .max_sequences = 2,
                                     .max_queue = 2,
                                     .max_context = CONTEXT,
                                     .max_step_tokens = CONTEXT,
                                     .max_picture = model_info(f->model)->picture_rows,
                                     .max_neighbors = 1,
                                     .max_k = 1,
                                     .view_seconds = 0};
    if (engine_open(&f->engine, &o, &e)) fail_msg("%s", e.text);
    bell_open(&f->bell);
}

static void close_fixture(struct fixture *f) {
    sequence_release(f->writer);
    sequence_release(f->seer);
    engine_close(f->engine);
    bell_close(&f->bell);
    tokenizer_close(f->tokenizer);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

static void set_prompt(struct sequence_request *asked, const struct tokens *ids, int max_tokens) {
    asked->principal = principal_open(1);
    asked->prompt = calloc((size_t)ids->n, sizeof *asked->prompt);
    for (int i = 0; i < ids->n; i++) asked->prompt[i] = ids->ids[i];
    asked->n_prompt = ids->n;
    asked->max_tokens = max_tokens;
    asked->n_top = -1;
    asked->sampling.top_p = 1;
    asked->changes.repetition = 1;
    asked->end.ignore_eos = true;
}

static struct sequence *make_writer(void) {
    struct sequence *sequence = sequence_open();
    struct tokens ids = {0};
    for (int i = 0; i < 3; i++) tokens_append(&ids, 65 + i, 0);
    set_prompt(&sequence->asked, &ids, LONG);
    tokens_free(&ids);
    return sequence;
}

/* Its answer is one token. */
static struct sequence *make_seer(const struct fixture *f) {
    const struct picture_cut cut = {.tiles = 1, .height = SIDE, .width = SIDE};
    struct sequence *sequence = sequence_open();
    struct tokens ids = {0};
    struct error e = {0};
    sequence->asked.pictures = picture_set_open(f->model, (struct picture_line_ids){0}, PICTURES);
    for (int i = 0; i < PICTURES; i++) {
        float *pixels = calloc(3 * SIDE * SIDE, sizeof *pixels);
        pixels[i] = 1;
        picture_set_add(sequence->asked.pictures, pixels, &cut);
        tokens_append(&ids, model_picture_id(f->model), 0);
    }
    tokens_append(&ids, 66, 0);
    if (picture_set_merge(sequence->asked.pictures, &ids, &e)) fail_msg("%s", e.text);
    set_prompt(&sequence->asked, &ids, 1);
    tokens_free(&ids);
    return sequence;
}

/* The engine's thread publishes the seer's answer, and nothing else at this moment. */
static void seer_wakes(void *context) {
    struct fixture *f = context;
    struct error e;
    f->written = sequence_read(f->writer, SIZE_MAX, NULL, &e).n_ids;
    bell_ring(&f->bell);
}

static void test_others_write_meanwhile(void **state) {
    (void)state;
    struct fixture f = {0};
    struct error e = {0};
    open_fixture(&f);
    f.writer = make_writer();
    f.seer = make_seer(&f);
    f.writer->asked.wake_per_token = true;
    f.seer->answer.waker = (struct waker){seer_wakes, &f};
    struct sequence *both[] = {f.seer, f.writer};
    if (engine_submit(f.engine, both, 2, &e)) fail_msg("%s", e.text);
    bell_wait(&f.bell);

    assert_int_equal(sequence_read(f.seer, SIZE_MAX, NULL, &e).finish, FINISH_LENGTH);
    int layers = 2 * PICTURES; /* vision_feature_layer is -2 of 3 */
    assert_in_range(f.written, layers - 2, LONG - 1);
    sequence_cancel(f.writer);
    engine_notice(f.engine);
    engine_stop(f.engine);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_others_write_meanwhile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
