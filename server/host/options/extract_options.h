/* server/host/options/extract_options.h: the options of what reads the pages of files. */
#pragma once

#include "config/options/options.h"
#include "retrieval/extract/extract.h"

/* Pages are read by the readers of their kinds, or by a model with pictures. */
enum page_reader { PAGES_BY_KIND, PAGES_BY_MODEL };

struct extract_settings {
    int reader;           /* enum page_reader */
    char *model_url;      /* of an API as OpenAI's */
    char *model;          /* its name there */
    char *model_key_file; /* whose first line is sent as the key; empty: none */
    char *model_prompt;   /* with each page; empty: the one that is built in */
    char *model_cache;    /* folder of pages that were read; empty: none are kept */
    int model_seconds, model_tokens;
};
extern const struct option_section extract_section;

/* Checks that a model has an address and a name, which no single row says. */
enum status extract_settings_check(const struct extract_settings *settings, struct error *e);

/* The model that reads pages. Strings are the settings' and the key's. */
struct opened_reader {
    struct extract_model model;
    struct buffer key; /* a secret */
    bool is_model;     /* false: there is none */
};
/* Reads the key's file, and makes the folder of kept pages where it is missing. */
enum status opened_reader_open(struct opened_reader *reader,
                               const struct extract_settings *settings, struct error *e);
void opened_reader_close(struct opened_reader *reader);
/* NULL: pages are read without a model. */
static inline const struct extract_model *opened_reader_model(const struct opened_reader *reader) {
    return reader->is_model ? &reader->model : NULL;
}
