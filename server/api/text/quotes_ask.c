/* server/api/text/quotes_ask.c: see quotes_ask.h. */
#include "server/api/text/quotes_ask.h"

#include <string.h>

#include "server/api/text/retrieval_ask.h"

static const char field[] = "retrieval.quotes";

static bool fail_unread(const char *name, struct failure *failure) {
    return failure_set(failure, 400, "no_retrieval", name,
                       "%s: quotes are taken from passages that are read, and this request reads "
                       "none",
                       name);
}

bool quotes_settle(const struct served_model *model, struct request_writing *writing,
                   bool calls_tools, struct failure *failure) {
    const struct request_retrieval *retrieval = &writing->retrieval;
    bool reads = retrieval_reads(model, retrieval);
    bool said = choice_says(&retrieval->choice, CHOICE_QUOTES);
    bool possible = reads && !calls_tools && !model->info->reads_source;
    if (!retrieval->choice.quotes || writing->guide.kind != GUIDE_NONE) return true;
    if (!possible && !said) return true;
    if (!reads) return fail_unread(field, failure);
    writing->guide.kind = GUIDE_QUOTES;
    strcpy(writing->guide.field, field);
    return true;
}

bool quotes_check(const struct request_writing *writing, const struct sequence_request *asked,
                  struct failure *failure) {
    const struct retrieval_choice *choice = &writing->retrieval.choice;
    const char *name = writing->guide.field;
    bool reads =
        sequence_searches(asked) || sequence_reads_passages(asked) || asked->neighbors.given_k > 0;
    if (!grammar_quotes(asked->grammar)) {
        if (!choice->quotes || !choice_says(choice, CHOICE_QUOTES)) return true;
        return failure_set(failure, 400, "invalid_value", field,
                           "%s: %s says what the answer must be, and no part of it is a quote: "
                           "write <quote> in a grammar, or \"format\": \"quote\" for a string of a "
                           "schema",
                           field, name);
    }
    return reads || fail_unread(name, failure);
}
