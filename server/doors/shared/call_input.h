/* server/doors/shared/call_input.h: arguments of a call as a value of an answer, not as a text. */
#pragma once

#include "config/json/json_writer.h"

/* The object that they are, as the model spelt it; a string where they are none. */
void put_call_input(struct json_writer *w, const struct buffer *arguments);
