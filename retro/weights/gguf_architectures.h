/* retro/weights/gguf_architectures.h: the architectures of GGUF in Hugging Face's words: rows of
 * keys. Files are read (gguf_folder.c) and written (tools/convert) by the same rows. */
#pragma once

#include "retro/weights/gguf.h"

enum key_kind {
    KEY_INT,      /* a number, or a list of one number for each layer, which must be equal */
    KEY_FLOAT,    /* a number; where the key is absent, `number`, and nothing where that is 0 */
    KEY_BOOL,     /* a truth value; where the key is absent, `number` */
    KEY_SHARE,    /* a number of dimensions of a head, as a share of it */
    KEY_WINDOW,   /* a number of tokens; null without, and where it is 0 */
    KEY_PATTERN,  /* which layers have the window: a period, which is `number` where the key is
                     absent, or a list */
    KEY_SECTIONS, /* how many pairs of a head turn by each position of a row: in rope_scaling,
                     beside the kind */
    KEY_STATES,   /* which layers have states in place of attention: a list of truth values; nothing
                     where the key is absent */
    KEY_PER_HEAD, /* of all heads with states: divided by the number of these */
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

/* A key of config.json that the tensors tell: whether there is one of that name, or none. */
struct fact_row {
    const char *name, *tensor;
    bool absent;
};

struct architecture {
    const char *name, *model_type;
    const char *told_by; /* a tensor that tells it from another of the same name; NULL: no other, or
                            the last of them */
    const struct key_row *keys;
    size_t n_keys;
    const struct fact_row *facts;
    size_t n_facts;
    const char
        *named_as;    /* the model_type of the family whose rows name its tensors; NULL: its own */
    bool paired;      /* RoPE turns rows 2i and 2i + 1 of a head, in the folder i and i + half */
    bool untruncated; /* the folder's yarn ends between dimensions, which no key says */
    const char *activation; /* hidden_act, where neither the file nor the family tells; else NULL */
    /* The key of config.json for the root of what scores are divided by. The file does not tell: it
     * is the size of a head, but in the model of `divided_layers` layers the hidden size over the
     * heads. NULL: none. */
    const char *divisor;
    int divided_layers;
};

/* STATUS_UNSUPPORTED names the known ones. */
enum status architecture_find(const struct gguf *gguf, const struct architecture **out,
                              struct error *e);

/* Of the folders with this model_type; NULL: there is none. */
const struct architecture *architecture_of_type(const char *model_type);
/* The rows of a key of config.json; NULL: the architecture has no word for it. */
const struct key_row *architecture_key(const struct architecture *architecture, const char *name);
const struct fact_row *architecture_fact(const struct architecture *architecture, const char *name);

/* The keys of all architectures, and those of rope_scaling. An architecture's own rows win. */
extern const struct key_row architecture_common_keys[], architecture_scaling_keys[];
extern const size_t architecture_n_common, architecture_n_scaling;
