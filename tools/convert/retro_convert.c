/* tools/convert/retro_convert.c: retro-convert: a model folder in another type of weights: quantised, narrower or wider
 * floats, or packed as the CPU backend keeps them. docs/quantisation.md is its manual. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/line.h"
#include "config/base/process.h"
#include "retro/weights/gguf_folder.h"
#include "tools/convert/convert.h"

static const char usage[] =
    "usage: retro-convert MODEL OUT_DIR --to int8|int4|bf16|f16|f32|packed|gguf [--calibrate FILE] [--keep "
    "PATTERN]...\n"
    "\n"
    "MODEL is a folder or a GGUF file. OUT_DIR must be new or empty; it appears when it is complete.\n"
    "\n"
    "  --to TYPE         of the matrices; norms, biases and positions stay as they are\n"
    "  --calibrate FILE  a text like those the model will see: int4 then spends its precision on what it uses\n"
    "  --keep PATTERN    tensors that stay as they are, by name (* and ? as in a shell); may be repeated\n"
    "\n"
    "exit code: 0 all fine, 1 failed, 2 wrong arguments, 130 interrupted\n";

/* Returns false after saying what is wrong. */
static bool parse(int argc, char **argv, struct convert_options *o, const char **keep) {
    static const struct option options[] = {{"to", required_argument, NULL, 't'},
                                            {"calibrate", required_argument, NULL, 'c'},
                                            {"keep", required_argument, NULL, 'k'},
                                            {NULL, 0, NULL, 0}};
    const char *to = NULL;
    o->keep = keep;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 't') to = optarg;
        if (c == 'c') o->calibrate = optarg;
        if (c == 'k') {
            keep[o->n_keep] = optarg;
            o->n_keep++;
        }
        if (c == '?') return false;
    }
    if (argc - optind != 2 || to == NULL) {
        fprintf(stderr, "retro-convert: expected MODEL_DIR, OUT_DIR and --to TYPE; --help says more\n");
        return false;
    }
    o->from = argv[optind];
    o->to = argv[optind + 1];
    struct buffer gguf = {0};
    o->from_gguf = gguf_find_file(o->from, &gguf);
    buffer_free(&gguf);
    o->packed = strcmp(to, "packed") == 0;
    o->gguf = strcmp(to, "gguf") == 0;
    bool typed = !o->packed && !o->gguf;
    if (typed && !dtype_parse(&o->dtype, to)) {
        line_print(stderr, "retro-convert: --to %s: expected int8, int4, bf16, f16, f32, packed or gguf", to);
        return false;
    }
    if (o->gguf && o->from_gguf) {
        line_print(stderr, "retro-convert: %s is a GGUF file already", o->from);
        return false;
    }
    if (!typed && o->n_keep > 0) {
        fprintf(stderr, "retro-convert: --keep: %s changes no type\n", o->packed ? "packing" : "writing GGUF");
        return false;
    }
    if (o->calibrate && (!typed || o->dtype != DTYPE_INT4)) {
        fprintf(stderr, "retro-convert: --calibrate: only int4 makes use of it\n");
        return false;
    }
    return true;
}

static void describe(struct buffer *note, const struct convert_options *o, const struct calibration *c) {
    buffer_printf(note, "\n## Conversion\n\nThe weights of this folder were converted by retro-convert %s to %s",
                  RETRO_VERSION,
                  o->packed ? "the packed layout of the CPU backend"
                  : o->gguf ? "a GGUF file, each in its type"
                            : dtype_name(o->dtype));
    if (o->dtype == DTYPE_INT4 && !o->packed && !o->gguf) buffer_printf(note, " (word table and output matrix: int8)");
    if (c) buffer_printf(note, ", calibrated on %d tokens of text", calibration_tokens(c));
    for (int i = 0; i < o->n_keep; i++) buffer_printf(note, "%s %s", i ? "," : "; kept as they were:", o->keep[i]);
    buffer_append_string(note, ". The figures above hold for the weights before.\n");
}

static enum status write_weights(struct conversion *p, const struct convert_options *o, const struct output *out,
                                 struct buffer *note, struct error *e) {
    struct calibration *c = NULL;
    if (o->calibrate && calibration_run(&c, p, o, e)) return error_prefix(e, "--calibrate");
    for (int i = 0; c && i < p->n; i++) p->changes[i].importance = calibration_importance(c, p->changes[i].weight);
    describe(note, o, c);
    enum status status = o->packed ? packed_write(p, out->partial, e)
                         : o->gguf ? gguf_write(p, o->from, out->partial, e)
                                   : conversion_write(p, out->partial, e);
    calibration_close(c);
    return status;
}

/* The written folder opens as a model before it gets its name. */
static enum status verify(const struct conversion *p, const char *folder, struct error *e) {
    struct model *m;
    struct model_options options = {.check_only = true};
    if (model_open(&m, folder, p->backend, p->comm, &options, e)) return error_prefix(e, "what was written");
    model_close(m);
    return STATUS_OK;
}

static enum status convert(struct conversion *p, const struct convert_options *o, struct error *e) {
    struct output out;
    struct buffer note = {0};
    if (output_open(&out, o, e)) return e->status;
    enum status status = write_weights(p, o, &out, &note, e);
    if (status == STATUS_OK && !o->gguf)
        status =
            o->from_gguf ? output_copy_gguf(&out, o->from, note.data, e) : output_copy(&out, o->from, note.data, e);
    if (status == STATUS_OK) status = verify(p, out.partial, e);
    if (status == STATUS_OK) status = output_finish(&out, e);
    output_discard(&out);
    buffer_free(&note);
    return status;
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) return true;
    return false;
}

int main(int argc, char **argv) {
    struct convert_options o = {0};
    struct conversion p;
    struct error e;
    standard_streams_open();
    if (asks_for_help(argc, argv)) {
        fputs(usage, stdout);
        return process_end(0);
    }
    const char **keep = xcalloc((size_t)argc, sizeof *keep);
    bool parsed = parse(argc, argv, &o, keep);
    enum status status = STATUS_INVALID;
    if (parsed) {
        status = conversion_open(&p, &o, &e);
        if (status == STATUS_OK) status = convert(&p, &o, &e);
        if (status)
            line_print(stderr, "retro-convert: %s", e.text);
        else
            conversion_print(&p);
        conversion_close(&p);
    }
    free(keep);
    if (!parsed) return process_end(2);
    return process_end(status == STATUS_CANCELLED ? EXIT_INTERRUPTED : status != STATUS_OK);
}
