/* retrieval/milvus/client/wire.c: see wire.h. */
#include "retrieval/milvus/client/wire.h"

#include <string.h>

/* The longest form of 64 bits, seven in a byte; and the form that wire_begin leaves room for. */
enum { VARINT_BYTES = 10, LENGTH_BYTES = 5 };

static void append_varint(struct buffer *out, uint64_t value) {
    uint8_t bytes[VARINT_BYTES];
    size_t n = 0;
    while (value >= 0x80) {
        bytes[n] = (uint8_t)(value | 0x80);
        value >>= 7;
        n++;
    }
    bytes[n] = (uint8_t)value;
    buffer_append(out, bytes, n + 1);
}

static void append_tag(struct buffer *out, int field, enum wire_kind kind) {
    append_varint(out, ((uint64_t)field << 3) | (uint64_t)kind);
}

void wire_put_int(struct buffer *out, int field, int64_t value) {
    if (value == 0) return;
    append_tag(out, field, WIRE_INT);
    append_varint(out, (uint64_t)value);
}

void wire_put_item(struct buffer *out, int field, struct text_span bytes) {
    append_tag(out, field, WIRE_BYTES);
    append_varint(out, bytes.size);
    buffer_append(out, bytes.text, bytes.size);
}

void wire_put_bytes(struct buffer *out, int field, struct text_span bytes) {
    if (bytes.size > 0) wire_put_item(out, field, bytes);
}

void wire_put_string(struct buffer *out, int field, const char *text) {
    wire_put_bytes(out, field, (struct text_span){text, strlen(text)});
}

void wire_put_packed(struct buffer *out, int64_t value) { append_varint(out, (uint64_t)value); }

size_t wire_begin(struct buffer *out, int field) {
    static const uint8_t room[LENGTH_BYTES] = {0};
    append_tag(out, field, WIRE_BYTES);
    buffer_append(out, room, sizeof room);
    return out->size;
}

/* The length takes all the bytes that were left for it: the first four say that more follow. */
void wire_end(struct buffer *out, size_t begun) {
    uint64_t size = out->size - begun;
    CHECK(size < (uint64_t)1 << (7 * LENGTH_BYTES));
    for (size_t i = 0; i < LENGTH_BYTES; i++) {
        uint8_t more = i + 1 < LENGTH_BYTES ? 0x80 : 0;
        out->data[begun - LENGTH_BYTES + i] = (char)(((size >> (7 * i)) & 0x7f) | more);
    }
}

/* Reading. */

static bool take_varint(struct text_span *rest, uint64_t *out) {
    uint64_t value = 0;
    for (size_t i = 0; i < VARINT_BYTES && i < rest->size; i++) {
        uint8_t byte = (uint8_t)rest->text[i];
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte >= 0x80) continue;
        rest->text += i + 1;
        rest->size -= i + 1;
        *out = value;
        return true;
    }
    return false;
}

static bool take_bytes(struct text_span *rest, uint64_t size, struct text_span *out) {
    if (size > rest->size) return false;
    *out = (struct text_span){rest->text, (size_t)size};
    rest->text += size;
    rest->size -= (size_t)size;
    return true;
}

static bool take_value(struct text_span *rest, struct wire_field *out) {
    uint64_t value;
    switch (out->kind) {
        case WIRE_INT:
            if (!take_varint(rest, &value)) return false;
            out->value = (int64_t)value;
            return true;
        case WIRE_BYTES: return take_varint(rest, &value) && take_bytes(rest, value, &out->bytes);
        case WIRE_FIXED64: return take_bytes(rest, 8, &out->bytes);
        case WIRE_FIXED32: return take_bytes(rest, 4, &out->bytes);
    }
    return false;
}

enum wire_step wire_next(struct text_span *rest, struct wire_field *out) {
    uint64_t tag;
    if (rest->size == 0) return WIRE_END;
    if (!take_varint(rest, &tag) || (tag >> 3) < 1 || (tag >> 3) > INT32_MAX) return WIRE_BROKEN;
    *out = (struct wire_field){.number = (int)(tag >> 3), .kind = (enum wire_kind)(tag & 7)};
    return take_value(rest, out) ? WIRE_FIELD : WIRE_BROKEN;
}

bool wire_next_packed(struct text_span *rest, int64_t *value, bool *broken) {
    uint64_t taken;
    if (rest->size == 0) return false;
    if (!take_varint(rest, &taken)) {
        *broken = true;
        return false;
    }
    *value = (int64_t)taken;
    return true;
}
