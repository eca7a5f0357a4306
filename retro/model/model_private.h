/* retro/model/model_private.h: what a loaded model is, for the files of this folder that compute with it. */
#pragma once

#include "retro/model/model.h"
#include "retro/model/spec.h"

/* What one rank keeps of something: n from `first` on. */
struct portion {
    int first, n;
};

struct model {
    struct model_info info;
    struct dims dims;
    const struct family *family;
    struct backend *backend;
    struct comm *comm;
    /* This rank's heads, key/value heads, MLP columns and logit columns. */
    struct {
        struct portion heads, kv_heads, ffn, vocab;
    } local;
    /* Its stage's layers. The neighbour encoder is on the stage of the first retro layer; stages from there to that of
     * the last one have neighbours' keys and values. encodes and reads are -1 without retro layers. */
    int first_layer, end_layer;
    int encodes, reads;
    struct weight word;                         /* [V, d], whole on every rank: it embeds */
    struct weight output;                       /* [local V, d]; data is word's when tied on one rank, NULL for BERT */
    struct tensor position, type;               /* f32 tables; data NULL when the family has none */
    struct norm_weights embed_norm, final_norm; /* gamma NULL when absent */
    float *inv_freq;                            /* host, [rotated / 2] */
    struct weights *mapped;                     /* owns the data of all matrices when they lie in model.packed */
    int n_encoder;
    struct layer *layers, *encoder; /* [dims.n_layers], [n_encoder] */
};

/* loader.c: fills m->layers and everything else that holds weights from w, or with random numbers when w is NULL. */
enum status model_load_weights(struct model *m, const struct weights *w, const struct model_options *o,
                               struct error *e);
void model_release_weights(struct model *m);
