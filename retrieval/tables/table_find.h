/* retrieval/tables/table_find.h: the tables of a collection, by the document that holds them. */
#pragma once

#include "retrieval/collection.h"
#include "retrieval/tables/data_table.h"

struct table_search {
    struct collection *collection;
    const struct filter *filter; /* documents that may be seen; NULL: all */
    double deadline;             /* of time_now; 0: none */
};
/* The tables of a document, by its id or path; those of a file of records ("prices.csv") are one
 * table, whose path is the file's. *id and *path are owned by the caller. STATUS_NOT_FOUND: there
 * is no such document, or it has no table. */
enum status tables_find(const struct table_search *search, const char *name,
                        struct data_tables *tables, char **id, char **path, struct error *e);
/* One of a document's tables by its number from 1, its name, or its sheet's; NULL takes the only
 * one. */
const struct data_table *tables_choose(const struct data_tables *tables, const char *name,
                                       struct error *e);

/* Calls `take` for each table of the collection, in order of documents, until it says no. The
 * tables of records come last, and have the path of their file. */
typedef bool table_taker(void *context, const char *id, const char *path, int number,
                         const struct data_table *table);
enum status tables_walk(const struct table_search *search, const char *after, table_taker *take,
                        void *context, struct error *e);
