/* tools/eval_model.c: opening the model that a sub-command of retro-eval is about. */
#include "tools/eval.h"

enum status opened_model_open(struct opened_model *o, const struct config *c, const char *folder, struct error *e) {
    *o = (struct opened_model){0};
    struct backend_options options = {.threads = c->model.threads};
    struct model_options model_options = model_options_of(c->model.dtype);
    enum status status = backend_open(&o->backend, c->model.device, &options, e);
    if (status == STATUS_OK) status = comm_open_single(&o->comm, e);
    if (status == STATUS_OK) status = model_open(&o->model, folder, o->backend, o->comm, &model_options, e);
    if (status) opened_model_close(o);
    return status;
}

void opened_model_close(struct opened_model *o) {
    model_close(o->model);
    comm_close(o->comm);
    backend_close(o->backend);
    *o = (struct opened_model){0};
}
