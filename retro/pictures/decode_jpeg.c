/* retro/pictures/decode_jpeg.c: JPEG by libjpeg-turbo, which no other file knows. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "retro/pictures/decoders.h"

/* A progressive file of a few bytes a scan could keep the decoder busy for minutes. */
enum { MOST_SCANS = 100 };

/* All that lives across the library's jump back. */
struct jpeg_reading {
    struct jpeg_decompress_struct codec;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    uint8_t *row; /* of four channels */
    struct picture *out;
    const struct picture_rules *rules;
    int *orientation;
    enum status status;
    struct error *e;
};

static void jpeg_fail(j_common_ptr codec) {
    struct jpeg_reading *reading = codec->client_data;
    char words[JMSG_LENGTH_MAX];
    codec->err->format_message(codec, words);
    reading->status = error_set(reading->e, STATUS_INVALID, "%s", words);
    longjmp(reading->back, 1);
}

/* Warnings are kept silent but for the end of the file: the library would make the missing rows
 * grey. */
static void jpeg_warn(j_common_ptr codec, int level) {
    if (level < 0 && codec->err->msg_code == JWRN_JPEG_EOF) jpeg_fail(codec);
}

static void jpeg_count_scans(j_common_ptr codec) {
    struct jpeg_reading *reading = codec->client_data;
    if (reading->codec.input_scan_number <= MOST_SCANS) return;
    reading->status =
        error_set(reading->e, STATUS_TOO_LARGE, "the picture has more than %d scans", MOST_SCANS);
    longjmp(reading->back, 1);
}

static void jpeg_read_orientation(struct jpeg_reading *reading) {
    for (jpeg_saved_marker_ptr m = reading->codec.marker_list; m; m = m->next)
        if (m->data_length > 6 && memcmp(m->data, "Exif\0\0", 6) == 0) {
            *reading->orientation =
                exif_orientation((struct text_span){(const char *)m->data, m->data_length});
            return;
        }
}

/* One row of inverted CMYK, as Adobe writes it and Pillow assumes it, to RGB. */
static void cmyk_convert(uint8_t *out, const uint8_t *in, int width) {
    for (int x = 0; x < width; x++) {
        unsigned white = in[4 * x + 3];
        for (int channel = 0; channel < 3; channel++) {
            unsigned product = (255u - in[4 * x + channel]) * white + 128;
            unsigned ink = ((product >> 8) + product) >> 8;
            out[3 * x + channel] = (uint8_t)(white - ink);
        }
    }
}

static void jpeg_read_rows(struct jpeg_reading *reading) {
    size_t stride = (size_t)reading->out->width * 3;
    while (reading->codec.output_scanline < reading->codec.output_height) {
        uint8_t *out = reading->out->pixels + reading->codec.output_scanline * stride;
        JSAMPROW row = reading->row ? reading->row : out;
        jpeg_read_scanlines(&reading->codec, &row, 1);
        if (reading->row) cmyk_convert(out, reading->row, reading->out->width);
    }
}

static enum status jpeg_prepare(struct jpeg_reading *reading) {
    bool four = reading->codec.num_components == 4;
    enum status status = picture_check_size(reading->codec.image_width, reading->codec.image_height,
                                            reading->rules, reading->e);
    if (status == STATUS_OK)
        status = picture_take(reading->out, reading->codec.image_width, reading->codec.image_height,
                              reading->e);
    if (status) return status;
    reading->codec.out_color_space = four ? JCS_CMYK : JCS_RGB;
    reading->row = four ? malloc((size_t)reading->codec.image_width * 4) : NULL;
    if (four && reading->row == NULL)
        return error_set(reading->e, STATUS_NO_MEMORY, "no memory for a row of the picture");
    return STATUS_OK;
}

/* The library's failures come back to the first line. */
static enum status jpeg_run(struct jpeg_reading *reading, struct text_span bytes) {
    if (setjmp(reading->back)) return reading->status;
    jpeg_create_decompress(&reading->codec);
    reading->codec.progress = &reading->progress;
    jpeg_mem_src(&reading->codec, (const unsigned char *)bytes.text, bytes.size);
    jpeg_save_markers(&reading->codec, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&reading->codec, TRUE);
    jpeg_read_orientation(reading);

    reading->status = jpeg_prepare(reading);
    if (reading->status) return reading->status;
    jpeg_start_decompress(&reading->codec);
    jpeg_read_rows(reading);
    return STATUS_OK;
}

enum status picture_decode_jpeg(struct picture *out, struct text_span bytes,
                                const struct picture_rules *rules, int *orientation,
                                struct error *e) {
    struct jpeg_reading reading = {.out = out, .rules = rules, .orientation = orientation, .e = e};
    reading.codec.err = jpeg_std_error(&reading.errors);
    reading.codec.client_data = &reading;
    reading.errors.error_exit = jpeg_fail;
    reading.errors.emit_message = jpeg_warn;
    reading.progress.progress_monitor = jpeg_count_scans;

    enum status status = jpeg_run(&reading, bytes);
    jpeg_destroy_decompress(&reading.codec);
    free(reading.row);
    return status;
}
