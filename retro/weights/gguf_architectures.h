/* retro/weights/gguf_architectures.h: the architectures of GGUF in Hugging Face's words: rows of
 * keys. Files are read (gguf_folder.c) and written (tools/convert) by the same rows. */
#pragma once

#include "retro/weights/gguf.h"

enum key_kind {
    KEY_INT,     /* a number, or a list of one number for each layer, which must be equal; where the
                    key is absent, `number`, and nothing where that is 0 */
    KEY_COUNT,   /* likewise; 0 where the key is absent */
    KEY_UNEVEN,  /* a number, or a list of one number for each layer, equal where it is not 0 */
    KEY_LAYERS,  /* a number of layers, without those that foretell tokens */
    KEY_FLOAT,   /* a number; where the key is absent, `number`, and nothing where that is 0 */
    KEY_BOOL,    /* a truth value; where the key is absent, `number` */
    KEY_WORD,    /* a text; nothing where the key is absent */
    KEY_SHARE,   /* a number of dimensions of a head, as a share of it */
    KEY_OR_NULL, /* a number; null where the key is absent, and where it is 0 */
    KEY_PATTERN, /* which layers have the window: a period, which is `number` where the key is
                    absent, or a list */
    KEY_SECTIONS, /* how many pairs of a head turn by each position of a row: in rope_scaling,
                     beside the kind */
    KEY_STATES,   /* which layers have states in place of attention: a list of truth values; nothing
                     where the key is absent */
    KEY_PER_HEAD, /* of all heads with states: divided by the number of these */
    KEY_DIFFERS,  /* a number, of which config.json has whether it is another than `number` */
    KEY_TURNS,    /* a truth value: whether queries and keys turn; true where the key is absent */
    KEY_MSCALE,   /* of yarn: `number` times mscale_all_dim; mscale is the same where there is a
                     name, else 1 */
    KEY_IGNORED,  /* means nothing here and is harmless */
    KEY_WRITTEN,  /* likewise, for other readers of what we write */
    KEY_NEUTRAL,  /* not supported: must be `number`, where it changes nothing */
    KEY_HEAD      /* not supported: must be the size of a head */
};

/* "ARCHITECTURE.key" of the metadata. */
struct key_row {
    const char *key, *name; /* of config.json */
    enum key_kind kind;
    double number;
};

/* A key of config.json that the tensors tell: whether there is one of that name, or none. '#' in it
 * stands for any layer. */
struct fact_row {
    const char *name, *tensor;
    bool absent;
};

struct architecture {
    const char *name, *model_type;
    const char *told_by; /* a tensor that tells it from another of the same name, as in fact_row; */
    const char *told_key; /* or a key that is not 0. NULL: no other, or the last of them */
    const struct key_row *keys;
    size_t n_keys;
    const struct fact_row *facts;
    size_t n_facts;
    const struct key_row *scaling; /* its own keys of rope_scaling */
    size_t n_scaling;
    const char *whole; /* the model_type of a family that reads pictures, and these keys in a
                          text_config, also without a tower; NULL: they are all of config.json */
    const char
        *named_as;    /* the model_type of the family whose rows name its tensors; NULL: its own */
    bool paired;      /* RoPE turns rows 2i and 2i + 1 of a head, in the folder i and i + half */
    bool untruncated; /* the folder's yarn ends between dimensions, which no key says */
    const char *mlp_norm;   /* its name for the norm before the MLP; NULL: ffn_norm */
    const char *activation; /* hidden_act, where neither the file nor the family tells; else NULL */
    /* The key of config.json for the root of what scores are divided by. The file does not tell: it
     * is the size of a head, but in the model of `divided_layers` layers the hidden size over the
     * heads. NULL: none. */
    const char *divisor;
    int divided_layers;
    /* Layers without key/value heads keep states, or have an MLP alone where feed_forward_length
     * lists it: the key of config.json that says so, and its words. NULL: no such layers. */
    const char *kinds_key, *state_kind, *mlp_kind;
    bool wide;   /* layers without a window have wide heads, of which some pairs turn, and the last
                    layers may have a wide MLP (gguf_layers.c) */
    bool latent; /* attention over latents, whose sizes several keys tell (gguf_layers.c) */
    bool headed; /* tensors may stand behind the rows (gguf_is_head) */
    bool tiled;  /* value heads with states lie as struct head_order says */
};

/* STATUS_UNSUPPORTED names the known ones. */
enum status architecture_find(const struct gguf *gguf, const struct architecture **out,
                              struct error *e);

/* The architectures whose layers are of several kinds (gguf_hybrids.c). */
extern const struct architecture architecture_hybrids[];
extern const size_t architecture_n_hybrids;

/* The layers that '#' in a tensor's name may stand for. */
enum { ARCHITECTURE_LAYERS = 512 };
/* Whether the file has a tensor of this name, or of one that '#' in it stands for. */
bool architecture_has_tensor(const struct gguf *gguf, const char *tensor);
/* The value of "ARCHITECTURE.key"; NULL: absent. */
const struct gguf_value *architecture_value(const struct gguf *gguf,
                                            const struct architecture *architecture,
                                            const char *key);

/* Of the folders with this model_type; NULL: there is none. */
const struct architecture *architecture_of_type(const char *model_type);
/* The rows of a key of config.json; NULL: the architecture has no word for it. */
const struct key_row *architecture_key(const struct architecture *architecture, const char *name);
const struct fact_row *architecture_fact(const struct architecture *architecture, const char *name);

/* The keys of all architectures, and those of rope_scaling. An architecture's own rows win. */
extern const struct key_row architecture_common_keys[], architecture_scaling_keys[];
extern const size_t architecture_n_common, architecture_n_scaling;
