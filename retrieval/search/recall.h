/* retrieval/search/recall.h: passages that were found before, looked up by their documents. */
#pragma once

#include "retrieval/retriever.h"

/* retriever_recall of a collection on a disk. */
void recall_from(struct collection *collection, const struct recall *recall);
