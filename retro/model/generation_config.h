/* retro/model/generation_config.h: generation_config.json of a Hugging Face folder: the ids that
 * end a text, and how its authors mean tokens to be drawn. GGUF files have the latter as keys. */
#pragma once

#include "config/base/buffer.h"

enum { MAX_END_IDS = 16 };

/* The ids that end a text, each once. */
struct end_ids {
    int32_t ids[MAX_END_IDS];
    int n;
};
bool end_ids_have(const struct end_ids *ends, int32_t id);
/* Adds an id that is not there yet. STATUS_UNSUPPORTED when there are MAX_END_IDS. */
enum status end_ids_add(struct end_ids *ends, int32_t id, struct error *e);

/* Values for requests that name none; -1 where the file has no number either. */
struct sampling_defaults {
    double temperature; /* 0: greedy, which is what do_sample false says */
    double top_p, min_p;
    int top_k;
    double repetition_penalty; /* 1: none */
    int no_repeat_ngram_size;  /* 0: none */
};

struct generation_config {
    bool found;     /* the folder has the file */
    bool from_keys; /* its numbers are those of a GGUF file */
    struct end_ids ends;
    struct sampling_defaults sampling;
};

/* Says nothing: no file. */
struct generation_config generation_config_none(void);
/* Reads the file of a model's folder where it has one, else the keys of the GGUF file that the path
 * stands for. Keys that are not named here are ignored. A wrong type or a value out of range is
 * STATUS_INVALID, or STATUS_UNSUPPORTED in a GGUF file. */
enum status generation_config_read(const char *path, struct generation_config *out,
                                   struct error *e);
/* Appends "temperature 0.6, top_p 0.9", or nothing. */
void sampling_defaults_print(const struct sampling_defaults *defaults, struct buffer *out);
