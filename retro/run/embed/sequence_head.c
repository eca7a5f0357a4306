/* retro/run/embed/sequence_head.c: see sequence_head.h. The heads are told apart by the names of
 * their tensors. */
#include "retro/run/embed/sequence_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_table.h"
#include "retro/model/spec.h"
#include "retro/weights/weights.h"

/* A head's keys in config.json. */
struct head_keys {
    int activation, pooling;
    float epsilon;
};
static const struct json_choice activations[] = {{"gelu", DENSE_GELU},
                                                 {"relu", DENSE_RELU},
                                                 {"silu", DENSE_SILU},
                                                 {"tanh", DENSE_TANH},
                                                 {NULL, 0}};
static const struct json_choice poolings[] = {
    {"cls", POOLING_CLS}, {"mean", POOLING_MEAN}, {NULL, 0}};
static const struct json_field modernbert_fields[] = {
    {"classifier_activation", JSON_CHOICE, JSON_AT(struct head_keys, activation),
     .choices = activations, .fallback = DENSE_GELU},
    {"classifier_pooling", JSON_CHOICE, JSON_AT(struct head_keys, pooling), .choices = poolings,
     .fallback = POOLING_CLS},
    {"norm_eps", JSON_FLOAT, JSON_AT(struct head_keys, epsilon), .fallback = 1e-5},
};
static const struct json_table modernbert_keys = JSON_TABLE(modernbert_fields, .open = true);
static const struct json_field deberta_fields[] = {
    {"pooler_hidden_act", JSON_CHOICE, JSON_AT(struct head_keys, activation),
     .choices = activations, .fallback = DENSE_GELU},
};
static const struct json_table deberta_keys = JSON_TABLE(deberta_fields, .open = true);

/* A head: norm(activation(x W^T + b)), then the classifier. `keys`: those of config.json that it
 * has; NULL: none. */
static const struct sequence_head {
    const char *dense, *dense_bias, *classifier, *classifier_bias;
    enum dense_activation activation;
    const char *norm, *norm_bias;
    const struct json_table *keys;
} heads[] = {
    {.dense = "bert.pooler.dense.weight",
     .dense_bias = "bert.pooler.dense.bias",
     .classifier = "classifier.weight",
     .classifier_bias = "classifier.bias",
     .activation = DENSE_TANH},
    {.dense = "classifier.dense.weight",
     .dense_bias = "classifier.dense.bias",
     .classifier = "classifier.out_proj.weight",
     .classifier_bias = "classifier.out_proj.bias",
     .activation = DENSE_TANH},
    {.dense = "cls.weight", /* of GGUF files of RoBERTa's kinds */
     .dense_bias = "cls.bias",
     .classifier = "cls.output.weight",
     .classifier_bias = "cls.output.bias",
     .activation = DENSE_TANH},
    {.dense = "pre_classifier.weight",
     .dense_bias = "pre_classifier.bias",
     .classifier = "classifier.weight",
     .classifier_bias = "classifier.bias",
     .activation = DENSE_RELU},
    {.dense = "head.dense.weight",
     .dense_bias = "head.dense.bias",
     .classifier = "classifier.weight",
     .classifier_bias = "classifier.bias",
     .norm = "head.norm.weight",
     .norm_bias = "head.norm.bias",
     .keys = &modernbert_keys},
    {.dense = "pooler.dense.weight",
     .dense_bias = "pooler.dense.bias",
     .classifier = "classifier.weight",
     .classifier_bias = "classifier.bias",
     .keys = &deberta_keys},
};

static const struct sequence_head *find_head(const struct weights *weights) {
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++)
        if (weights_find(weights, heads[i].dense) && weights_find(weights, heads[i].classifier))
            return &heads[i];
    return NULL;
}

static struct encoder_module *add_layer(struct encoder_folder *folder, const char *weight,
                                        const char *bias, int n_in, int n_out) {
    struct encoder_module *module = &folder->modules[folder->n_modules];
    *module = (struct encoder_module){.n_in = n_in,
                                      .n_out = n_out,
                                      .bias = bias != NULL,
                                      .folder = xstrdup(folder->model),
                                      .weight_name = weight,
                                      .bias_name = bias};
    folder->n_modules++;
    return module;
}

static enum status read_head_keys(const struct encoder_folder *folder,
                                  const struct json_table *table, struct head_keys *keys,
                                  struct error *e) {
    char path[4096];
    struct json *root;
    snprintf(path, sizeof path, "%s/config.json", folder->model);
    if (json_parse_file(&root, path, e)) return e->status;
    enum status status = spec_read(root, table, keys, e);
    json_close(root);
    return status;
}

/* A bias that no tensor has is none. */
static const char *bias_there(const struct weights *weights, const char *name) {
    return weights_find(weights, name) ? name : NULL;
}

static enum status add_head(struct encoder_folder *folder, const struct sequence_head *head,
                            const struct weights *weights, int hidden, struct error *e) {
    struct head_keys keys = {.activation = (int)head->activation, .pooling = POOLING_CLS};
    if (head->keys && read_head_keys(folder, head->keys, &keys, e)) return e->status;
    folder->modes[0] = (enum pooling_mode)keys.pooling;
    folder->n_modes = 1;
    folder->include_prompt = true;
    folder->pooled = -1;
    folder->raw = true;

    const char *bias = bias_there(weights, head->dense_bias);
    struct encoder_module *dense = add_layer(folder, head->dense, bias, hidden, hidden);
    dense->activation = keys.activation;
    dense->norm_name = head->norm;
    if (head->norm) dense->norm_bias_name = bias_there(weights, head->norm_bias);
    dense->epsilon = keys.epsilon;
    add_layer(folder, head->classifier, bias_there(weights, head->classifier_bias), hidden, 1);
    return STATUS_OK;
}

enum status sequence_head_read(struct encoder_folder *folder, int hidden, struct error *e) {
    struct weights *weights;
    if (weights_open(&weights, folder->model, e)) return e->status;
    const struct sequence_head *head = find_head(weights);
    const struct stored_tensor *labels = head ? weights_find(weights, head->classifier) : NULL;
    int64_t n_labels = labels && labels->n_dims == 2 ? labels->shape[0] : 0;
    enum status status;
    if (head == NULL)
        status =
            error_set(e, STATUS_UNSUPPORTED,
                      "%s: no head that scores a text: a reranker is a BERT, RoBERTa, XLM-RoBERTa, "
                      "DistilBERT, ModernBERT or DeBERTa-v2 \"ForSequenceClassification\"",
                      folder->model);
    else if (n_labels != 1)
        status = error_set(e, STATUS_UNSUPPORTED, "%s: %s has %lld labels; a reranker has one",
                           folder->model, head->classifier, (long long)n_labels);
    else
        status = add_head(folder, head, weights, hidden, e);
    weights_close(weights);
    return status;
}

/* The output matrix, or the word table of a tied one. */
static const char *find_output(const struct weights *weights) {
    static const char *const names[] = {"lm_head.weight", "model.embed_tokens.weight",
                                        "embed_tokens.weight"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (weights_find(weights, names[i])) return names[i];
    return NULL;
}

enum status sequence_head_read_answer(struct encoder_folder *folder, int hidden, int yes, int no,
                                      struct error *e) {
    struct weights *weights;
    if (weights_open(&weights, folder->model, e)) return e->status;
    bool scored = weights_find(weights, "score.weight") != NULL;
    /* A GGUF file has the two rows alone, yes first. */
    bool answers = weights_find(weights, "cls.output.weight") != NULL;
    const char *name = scored    ? "score.weight"
                       : answers ? "cls.output.weight"
                                 : find_output(weights);
    weights_close(weights);
    if (name == NULL)
        return error_set(e, STATUS_UNSUPPORTED, "%s: no matrix that says yes or no", folder->model);
    folder->modes[0] = POOLING_LAST;
    folder->n_modes = 1;
    folder->include_prompt = true;
    folder->pooled = -1;
    folder->raw = true;
    struct encoder_module *module = add_layer(folder, name, NULL, hidden, 1);
    module->contrast = !scored;
    module->row[0] = answers ? 0 : yes;
    module->row[1] = answers ? 1 : no;
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
