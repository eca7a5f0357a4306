/* retro/run/embed/sequence_head.c: see sequence_head.h. The heads are told apart by the names of
 * their tensors. */
#include "retro/run/embed/sequence_head.h"

#include <stdlib.h>
#include <string.h>

#include "retro/weights/weights.h"

/* A head: activation(x W^T + b), then the classifier. */
static const struct sequence_head {
    const char *dense, *dense_bias, *classifier, *classifier_bias;
    enum dense_activation activation;
} heads[] = {
    {"bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias",
     DENSE_TANH},
    {"classifier.dense.weight", "classifier.dense.bias", "classifier.out_proj.weight",
     "classifier.out_proj.bias", DENSE_TANH},
    {"pre_classifier.weight", "pre_classifier.bias", "classifier.weight", "classifier.bias",
     DENSE_RELU},
};

static const struct sequence_head *find_head(const struct weights *weights) {
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++)
        if (weights_find(weights, heads[i].dense) && weights_find(weights, heads[i].classifier))
            return &heads[i];
    return NULL;
}

static void add_layer(struct encoder_folder *folder, const char *weight, const char *bias, int n_in,
                      int n_out, enum dense_activation activation) {
    folder->modules[folder->n_modules] = (struct encoder_module){.n_in = n_in,
                                                                 .n_out = n_out,
                                                                 .bias = true,
                                                                 .activation = (int)activation,
                                                                 .folder = xstrdup(folder->model),
                                                                 .weight_name = weight,
                                                                 .bias_name = bias};
    folder->n_modules++;
}

enum status sequence_head_read(struct encoder_folder *folder, int hidden, struct error *e) {
    struct weights *weights;
    if (weights_open(&weights, folder->model, e)) return e->status;
    const struct sequence_head *head = find_head(weights);
    const struct stored_tensor *labels = head ? weights_find(weights, head->classifier) : NULL;
    int64_t n_labels = labels && labels->n_dims == 2 ? labels->shape[0] : 0;
    weights_close(weights);
    if (head == NULL)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: no head that scores a text: a reranker is a BERT, RoBERTa, "
                         "XLM-RoBERTa or DistilBERT "
                         "\"ForSequenceClassification\"",
                         folder->model);
    if (n_labels != 1)
        return error_set(e, STATUS_UNSUPPORTED, "%s: %s has %lld labels; a reranker has one",
                         folder->model, head->classifier, (long long)n_labels);
    folder->modes[0] = POOLING_CLS;
    folder->n_modes = 1;
    folder->include_prompt = true;
    folder->pooled = -1;
    folder->raw = true;
    add_layer(folder, head->dense, head->dense_bias, hidden, hidden, head->activation);
    add_layer(folder, head->classifier, head->classifier_bias, hidden, 1, DENSE_IDENTITY);
    return STATUS_OK;
}

enum status sequence_head_refuse(const char *folder, struct error *e) {
    struct weights *weights;
    struct error ignored;
    if (weights_open(&weights, folder, &ignored))
        return STATUS_OK; /* the model's own error says more */
    bool found = find_head(weights) != NULL;
    weights_close(weights);
    if (!found) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: a cross-encoder is no embedder; set retrieval.reranker to it", folder);
}
