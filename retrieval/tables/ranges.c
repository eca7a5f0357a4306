/* retrieval/tables/ranges.c: see ranges.h. */
#include "retrieval/tables/ranges.h"

#include <string.h>

#include "retrieval/marks.h"

/* A sheet's name is quoted unless it is one word of letters and digits. */
static void write_sheet(struct buffer *out, const char *sheet) {
    bool plain = true;
    for (const char *at = sheet; *at; at++)
        plain =
            plain && ((*at >= '0' && *at <= '9') || ((*at | 0x20) >= 'a' && (*at | 0x20) <= 'z') ||
                      *at == '_' || (*at & 0x80));
    if (sheet[0] == '\0') return;
    buffer_printf(out, plain ? "%s!" : "'%s'!", sheet);
}

static void write_range(struct range_writer *writer, struct buffer *out) {
    writer->n++;
    if (writer->n > writer->most) return;
    if (writer->n > 1) buffer_append_string(out, ", ");
    write_sheet(out, writer->sheet);
    marks_print_column(out, writer->column);
    buffer_printf(out, "%u", writer->first);
    if (writer->last == writer->first) return;
    buffer_append_string(out, ":");
    marks_print_column(out, writer->column);
    buffer_printf(out, "%u", writer->last);
}

void range_add(struct range_writer *writer, uint32_t row, struct buffer *out) {
    if (row == 0 || (writer->first > 0 && row >= writer->first && row <= writer->last)) return;
    if (writer->first > 0 && row == writer->last + 1) {
        writer->last = row;
        return;
    }
    if (writer->first > 0) write_range(writer, out);
    writer->first = writer->last = row;
}

void range_end(struct range_writer *writer, struct buffer *out) {
    if (writer->first > 0) write_range(writer, out);
    if (writer->n > writer->most) buffer_append_string(out, ", ...");
    writer->first = 0;
}
