/* tools/convert/retro_convert.c: retro-convert: a model folder in another type of weights: quantised, narrower or wider
 * floats, or packed as the CPU backend keeps them (docs/quantisation.md), or of a checkpoint of Megatron's or NeMo's
 * (docs/import.md). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/line.h"
#include "config/base/process.h"
#include "retro/weights/gguf_folder.h"
#include "tools/convert/convert_calibrate.h"
#include "tools/convert/sink/sink.h"

static const char usage[] =
    "usage: retro-convert MODEL OUT_DIR --to int8|int4|bf16|f16|f32|packed|gguf [--calibrate FILE] [--keep "
    "PATTERN]...\n"
    "       retro-convert --from CHECKPOINT --out OUT_DIR [--tokenizer FILE] [--as retro|gpt] [--gate X] [--to TYPE]\n"
    "                     [--retro-args FILE] [--config FILE] [--resume]\n"
    "       retro-convert --inspect CHECKPOINT\n"
    "retro-convert: makes a model folder of another one or of a checkpoint, in another type of weights\n"
    "\n"
    "MODEL is a folder or a GGUF file. CHECKPOINT is what Megatron-LM, Megatron-Core or NeMo wrote: a folder with "
    "torch\n"
    "files of any number of ranks and stages, with torch_dist, torch_dcp or zarr, or a .nemo file. OUT_DIR must be "
    "new\n"
    "or empty; it appears when it is complete.\n"
    "\n"
    "  --to TYPE         of the matrices; norms, biases and positions stay as they are. A checkpoint keeps its types\n"
    "                    where none is given\n"
    "  --calibrate FILE  a text like those the model will see: int4 then spends its precision on what it uses\n"
    "  --keep PATTERN    tensors that stay as they are, by name (* and ? as in a shell); may be repeated\n"
    "\n"
    "of a checkpoint:\n"
    "  --from CHECKPOINT names it; the first argument without an option does the same\n"
    "  --out OUT_DIR     names what is written; the second one does the same\n"
    "  --inspect         says what it is, what its model will be and what is missing; reads no weights, writes "
    "nothing\n"
    "  --tokenizer FILE  tokenizer.json, vocab.txt, a SentencePiece .model, or a folder of these; else the one beside\n"
    "                    the checkpoint\n"
    "  --gate X          how much a Retro takes from neighbours: 1 for base models, 0 for NVIDIA's instruct models\n"
    "  --as gpt          the GPT that a Retro with gate 0 computes, without what it does not use\n"
    "  --retro-args FILE JSON of Megatron's arguments for retrieval (args.json or config.json of the Retro project)\n"
    "  --config FILE     JSON of keys of config.json; they win over what the checkpoint says. Of a vision model: all "
    "of\n"
    "                    config.json\n"
    "  --resume          goes on from the files that an earlier run of the same import completed before it was "
    "killed,\n"
    "                    and keeps those of this run when it is interrupted or fails\n"
    "\n"
    "exit code: 0 all fine, 1 failed, 2 wrong arguments, 130 interrupted\n";

/* The command line. */
struct convert_command {
    struct convert_options convert;
    struct import_options import;
    const char *type; /* --to, or NULL */
    bool checkpoint;  /* `from` is one */
};

static const struct option long_options[] = {{"to", required_argument, NULL, 't'},
                                             {"calibrate", required_argument, NULL, 'c'},
                                             {"keep", required_argument, NULL, 'k'},
                                             {"from", required_argument, NULL, 'f'},
                                             {"out", required_argument, NULL, 'o'},
                                             {"tokenizer", required_argument, NULL, 'T'},
                                             {"as", required_argument, NULL, 'a'},
                                             {"gate", required_argument, NULL, 'g'},
                                             {"retro-args", required_argument, NULL, 'r'},
                                             {"config", required_argument, NULL, 'C'},
                                             {"resume", no_argument, NULL, 'R'},
                                             {"inspect", no_argument, NULL, 'i'},
                                             {NULL, 0, NULL, 0}};

static void take_option(struct convert_command *c, int option, const char **keep) {
    switch (option) {
        case 't': c->type = optarg; break;
        case 'c': c->convert.calibrate = optarg; break;
        case 'f': c->convert.from = optarg; break;
        case 'o': c->convert.to = optarg; break;
        case 'T': c->import.tokenizer = optarg; break;
        case 'a': c->import.as = optarg; break;
        case 'g': c->import.gate = optarg; break;
        case 'r': c->import.retro_args = optarg; break;
        case 'C': c->import.config = optarg; break;
        case 'i': c->import.inspect = true; break;
        case 'R': c->convert.resume = true; break;
        case 'k':
            keep[c->convert.n_keep] = optarg;
            c->convert.n_keep++;
            break;
        default: break;
    }
}

/* Paths may stand without their options, in this order. */
static bool take_paths(struct convert_command *c, int argc, char **argv) {
    const char **places[] = {&c->convert.from, &c->convert.to};
    for (size_t i = 0; i < ARRAY_COUNT(places) && optind < argc; i++) {
        if (*places[i]) continue;
        *places[i] = argv[optind];
        optind++;
    }
    bool complete = c->convert.from && (c->convert.to || c->import.inspect);
    return complete && optind == argc;
}

/* Options that only one of the two kinds of input has. */
static bool check_kind(const struct convert_command *c) {
    const struct import_options *o = &c->import;
    bool of_checkpoint =
        o->tokenizer || o->as || o->gate || o->retro_args || o->config || o->inspect || c->convert.resume;
    if (o->as && strcmp(o->as, "gpt") != 0 && strcmp(o->as, "retro") != 0) {
        line_print(stderr, "retro-convert: --as %s: expected retro or gpt", o->as);
        return false;
    }
    if (c->checkpoint || (c->type && !of_checkpoint)) return true;
    if (of_checkpoint)
        line_print(stderr,
                   "retro-convert: %s is no checkpoint of Megatron's or NeMo's, which --inspect, --tokenizer, --as, "
                   "--gate, --retro-args, --config and --resume are for",
                   c->convert.from);
    else
        fprintf(stderr, "retro-convert: expected MODEL_DIR, OUT_DIR and --to TYPE; --help says more\n");
    return false;
}

/* Reads --to. */
static bool read_type(struct convert_options *o, const char *to) {
    static const struct written_format *const formats[] = {&format_packed, &format_gguf};
    for (size_t i = 0; i < ARRAY_COUNT(formats); i++)
        if (strcmp(to, formats[i]->name) == 0) o->format = formats[i];
    bool typed = o->format == NULL;
    if (typed && !dtype_parse(&o->dtype, to)) {
        line_print(stderr, "retro-convert: --to %s: expected int8, int4, bf16, f16, f32, packed or gguf", to);
        return false;
    }
    if (o->format == &format_gguf && o->from_gguf) {
        line_print(stderr, "retro-convert: %s is a GGUF file already", o->from);
        return false;
    }
    if (!typed && o->n_keep > 0) {
        fprintf(stderr, "retro-convert: --keep: %s changes no type\n", o->format->doing);
        return false;
    }
    if (o->calibrate && (!typed || o->dtype != DTYPE_INT4)) {
        fprintf(stderr, "retro-convert: --calibrate: only int4 makes use of it\n");
        return false;
    }
    return true;
}

/* Returns false after saying what is wrong. */
static bool parse(int argc, char **argv, struct convert_command *c, const char **keep) {
    c->convert.keep = keep;
    for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (option == '?') return false;
        take_option(c, option, keep);
    }
    if (!take_paths(c, argc, argv)) {
        fprintf(stderr, "retro-convert: expected MODEL_DIR, OUT_DIR and --to TYPE; --help says more\n");
        return false;
    }
    struct buffer gguf = {0};
    c->convert.from_gguf = gguf_find_file(c->convert.from, &gguf);
    buffer_free(&gguf);
    c->import.from = c->convert.from;
    c->import.to = c->convert.to;
    c->checkpoint = !c->convert.from_gguf && checkpoint_detect(c->convert.from);
    if (!check_kind(c)) return false;
    if (c->type == NULL && (c->convert.calibrate || c->convert.n_keep > 0)) {
        fprintf(stderr, "retro-convert: --calibrate and --keep need --to\n");
        return false;
    }
    return c->type == NULL || read_type(&c->convert, c->type);
}

static void describe(struct buffer *note, const struct convert_options *o, const struct calibration *c) {
    buffer_printf(note, "\n## Conversion\n\nThe weights of this folder were converted by retro-convert %s to %s",
                  RETRO_VERSION, o->format ? o->format->described : dtype_name(o->dtype));
    if (o->dtype == DTYPE_INT4 && o->format == NULL) buffer_printf(note, " (word table and output matrix: int8)");
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
    enum status status =
        o->format ? o->format->write(p, o->from, out->partial, e) : conversion_write(p, out->partial, e);
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
    if (status == STATUS_OK && !(o->format && o->format->whole))
        status =
            o->from_gguf ? output_copy_gguf(&out, o->from, note.data, e) : output_copy(&out, o->from, note.data, e);
    if (status == STATUS_OK) status = verify(p, out.partial, e);
    if (status == STATUS_OK) status = output_finish(&out, e);
    output_discard(&out);
    buffer_free(&note);
    return status;
}

static enum status run_conversion(const struct convert_options *o, struct error *e) {
    struct conversion p;
    enum status status = conversion_open(&p, o, e);
    if (status == STATUS_OK) status = convert(&p, o, e);
    if (status == STATUS_OK) conversion_print(&p);
    conversion_close(&p);
    return status;
}

/* The imported folder opens as a model. */
static enum status verify_import(const char *folder, struct error *e) {
    struct conversion p = {0};
    enum status status = backend_open(&p.backend, "cpu", &(struct backend_options){0}, e);
    if (status == STATUS_OK) status = comm_open_single(&p.comm, e);
    if (status == STATUS_OK) status = verify(&p, folder, e);
    conversion_close(&p);
    return status;
}

/* Whether an imported folder holds what --to asks for. */
static bool has_type(const struct import_plan *p, const struct convert_command *c) {
    const char *type = settings_text(&p->config, "torch_dtype");
    if (c->type == NULL) return true;
    return type && c->convert.n_keep == 0 &&
           ((strcmp(c->type, "bf16") == 0 && strcmp(type, "bfloat16") == 0) ||
            (strcmp(c->type, "f16") == 0 && strcmp(type, "float16") == 0) ||
            (strcmp(c->type, "f32") == 0 && strcmp(type, "float32") == 0));
}

/* Whether types change as the weights are written. A vision model's matrices are known when its folder is opened; a
 * model has to be whole to be calibrated, packed or written as GGUF. */
static bool converts_at_once(const struct convert_command *c) {
    return c->type && c->convert.format == NULL && c->convert.calibrate == NULL;
}

/* Imports into a folder beside the target, which takes its name, or is converted into it. */
static enum status import_into(const struct import_plan *p, const struct convert_command *c, struct error *e) {
    struct output out;
    struct buffer identity = {0};
    struct convert_options o = c->convert;
    bool complete = has_type(p, c) || (converts_at_once(c) && !p->pictures);
    import_identify(&identity, p);
    o.identity = identity.data;
    enum status status = output_open(&out, &o, e);
    buffer_free(&identity);
    if (status) return status;
    status = import_run(p, &c->import, &out, e);
    if (status == STATUS_OK) out.keep = false;
    if (status == STATUS_OK) status = verify_import(out.partial, e);
    if (status == STATUS_OK && !complete) {
        struct convert_options step = c->convert;
        step.from = out.partial;
        step.resume = false;
        status = run_conversion(&step, e);
    } else if (status == STATUS_OK) {
        status = output_finish(&out, e);
    }
    output_discard(&out);
    return status;
}

static enum status run_import(struct convert_command *c, struct error *e) {
    struct import_plan p;
    struct buffer note = {0};
    if (converts_at_once(c)) {
        describe(&note, &c->convert, NULL);
        c->import.types = &c->convert;
        c->import.note = note.data;
    }
    enum status status = import_open(&p, &c->import, e);
    if (status == STATUS_OK) {
        if (!c->import.inspect) status = import_into(&p, c, e);
        import_close(&p);
    }
    buffer_free(&note);
    return status;
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) return true;
    return false;
}

int main(int argc, char **argv) {
    struct convert_command c = {.type = NULL};
    struct error e = {0};
    standard_streams_open();
    if (asks_for_help(argc, argv)) {
        fputs(usage, stdout);
        return process_end(0);
    }
    const char **keep = xcalloc((size_t)argc, sizeof *keep);
    bool parsed = parse(argc, argv, &c, keep);
    enum status status = STATUS_INVALID;
    if (parsed) {
        status = c.checkpoint ? run_import(&c, &e) : run_conversion(&c.convert, &e);
        if (status) line_print(stderr, "retro-convert: %s", e.text);
    }
    free(keep);
    if (!parsed) return process_end(2);
    return process_end(status == STATUS_CANCELLED ? EXIT_INTERRUPTED : status != STATUS_OK);
}
