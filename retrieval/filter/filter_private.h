/* retrieval/filter/filter_private.h: how a filter lies in memory. */
#pragma once

#include "retrieval/filter/filter.h"

enum filter_kind { FILTER_IN, FILTER_RANGE, FILTER_PREFIX, FILTER_AND, FILTER_OR, FILTER_NOT };

/* A value that a condition compares with. */
struct filter_value {
    struct fact fact; /* without a name; its text is owned */
    int64_t date;     /* of FILTER_RANGE, where the text is one */
};

/* An end of a range. */
struct filter_bound {
    bool given, inclusive;
    struct filter_value value;
};

struct filter {
    atomic_int holders;
    enum filter_kind kind;
    char *text; /* as JSON */
    bool owned; /* made by filter_owned, of `base`, which is held */
    struct filter *base;
    /* Of conditions. */
    char *key;
    size_t key_size;
    struct filter_value *values; /* [n_values]; of FILTER_PREFIX one, a text */
    int n_values, values_capacity;
    const struct fact *
        *sorted; /* [n_values] the values in an order of their own, owned; NULL: of one value */
    struct filter_bound low, high;
    /* Of operators, [n_parts], each held. */
    struct filter **parts;
    int n_parts, parts_capacity;
};

/* Held once, without a text. */
struct filter *filter_make(enum filter_kind kind);
void filter_add_part(struct filter *filter, struct filter *part); /* takes over the hold of part */
/* Of a condition whose values are all there: what finds one among them. */
void filter_sort_values(struct filter *filter);
/* Writes its text, once it is whole. */
void filter_finish(struct filter *filter);
