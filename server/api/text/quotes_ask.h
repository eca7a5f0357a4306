/* server/api/text/quotes_ask.h: answers that quote: when what a request says of quotes holds. */
#pragma once

#include "server/api/api.h"
#include "server/api/fields/writing_fields.h"

/* Behind retrieval_settle, once for a request: where quotes are wanted and nothing else says what
 * the answer must be, it is held to text with quotes. A request that asks for them itself is
 * refused where there can be none; the option retrieval.quotes says nothing there. `calls_tools`:
 * the answer may be a call. */
bool quotes_settle(const struct served_model *model, struct request_writing *writing,
                   bool calls_tools, struct failure *failure);
/* Of a request with a grammar: whether it reads what it is to quote, and has quotes where it asks
 * for them. */
bool quotes_check(const struct request_writing *writing, const struct sequence_request *asked,
                  struct failure *failure);
