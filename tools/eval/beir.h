/* tools/eval/beir.h: a folder in the form of BEIR (Thakur et al. 2021): corpus.jsonl and
 * queries.jsonl, whose lines have "_id" and "text", and qrels/SPLIT.tsv, lines of a query, a
 * document and a grade behind a line of names. */
#pragma once

#include "config/base/lookup.h"

/* Names, numbered in the order in which they were met. */
struct beir_names {
    char **names; /* [n] */
    int n, capacity;
    struct lookup_table lookup;
};

struct beir_grade {
    int document; /* index into beir_set.documents */
    int grade;    /* above 0 */
};

struct beir_query {
    char *text;
    struct beir_grade *grades; /* [n] */
    int n, capacity;
    int own; /* the document of the query's own name, which BEIR takes out of answers */
};

struct beir_set {
    struct beir_names documents, names; /* names: the queries' */
    struct beir_query *queries;         /* [names.n] */
    int capacity;
    long long *lines; /* [documents.n]: line of corpus.jsonl, from 1; 0: it is not there */
};

/* Fills *set, zeroed before, with the queries that have a grade. Errors name file and line.
 * beir_free frees what there is, after an error too. */
enum status beir_read(struct beir_set *set, const char *folder, const char *split, struct error *e);
void beir_free(struct beir_set *set);
