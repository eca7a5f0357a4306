/* retrieval/milvus/client/wire.h: protobuf's encoding: a message is fields of a number and a value.
 * Only what Milvus' messages need: integers, bytes, messages, and packed arrays.
 *
 * https://protobuf.dev/programming-guides/encoding */
#pragma once

#include "config/base/buffer.h"

/* Writing. A zero and an empty string are what a reader takes an absent field for; they are left
 * out, but in lists. */
void wire_put_int(struct buffer *out, int field, int64_t value);
void wire_put_bytes(struct buffer *out, int field, struct text_span bytes);
void wire_put_string(struct buffer *out, int field, const char *text);
/* An item of a list, which may be empty. */
void wire_put_item(struct buffer *out, int field, struct text_span bytes);
/* A message, or a packed array, up to wire_end, which is given the result of wire_begin. */
size_t wire_begin(struct buffer *out, int field);
void wire_end(struct buffer *out, size_t begun);
/* An item of a packed array of integers. */
void wire_put_packed(struct buffer *out, int64_t value);

/* Reading. Nothing is believed: a field that reaches over the end of its message is broken. */
enum wire_kind { WIRE_INT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire_field {
    int number;
    enum wire_kind kind;
    int64_t value;          /* of WIRE_INT */
    struct text_span bytes; /* of all others; it points into the message */
};

enum wire_step { WIRE_FIELD, WIRE_END, WIRE_BROKEN };
/* The next field of a message, which is taken off `rest`. */
enum wire_step wire_next(struct text_span *rest, struct wire_field *out);
/* The next of a packed array of integers; false at its end and where it is broken, then *broken is
 * set. */
bool wire_next_packed(struct text_span *rest, int64_t *value, bool *broken);
