/* tools/convert/retro_convert.c: retro-convert: a model folder in another type of weights:
 * quantised, narrower or wider floats, or packed as the CPU backend keeps them
 * (docs/quantisation.md), or of a checkpoint of Megatron's or NeMo's (docs/import.md). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/line.h"
#include "config/base/process.h"
#include "retro/weights/gguf_folder.h"
#include "tools/convert/convert_calibrate.h"
#include "tools/convert/convert_sparse_head.h"
#include "tools/convert/sink/sink.h"

static const char usage[] =
    "usage: retro-convert MODEL OUT_DIR --to int8|int4|bf16|f16|f32|packed|gguf [--calibrate FILE] "
    "[--keep "
    "PATTERN]...\n"
    "       retro-convert --from CHECKPOINT --out OUT_DIR [--tokenizer FILE] [--as retro|gpt] "
    "[--gate X] [--to TYPE]\n"
    "                     [--retro-args FILE] [--config FILE] [--resume]\n"
    "       retro-convert --inspect CHECKPOINT\n"
    "       retro-convert --sparse-head MODEL\n"
    "retro-convert: makes a model folder of another one or of a checkpoint, in another type of "
    "weights\n"
    "\n"
    "MODEL is a folder or a GGUF file. CHECKPOINT is what Megatron-LM, Megatron-Core or NeMo "
    "wrote: a folder with "
    "torch\n"
    "files of any number of ranks and stages, with torch_dist, torch_dcp or zarr, or a .nemo file. "
    "OUT_DIR must be "
    "new\n"
    "or empty; it appears when it is complete.\n"
    "\n"
    "  --to TYPE         of the matrices; norms, biases and positions stay as they are. A "
    "checkpoint keeps its types\n"
    "                    where none is given\n"
    "  --calibrate FILE  a text like those the model will see: int4 then spends its precision on "
    "what it uses\n"
    "  --keep PATTERN    tensors that stay as they are, by name (* and ? as in a shell); may be "
    "repeated\n"
    "\n"
    "  --sparse-head MODEL\n"
    "                    makes sparse_linear.safetensors of bge-m3's sparse_linear.pt, in the "
    "folder "
    "itself\n"
    "\n"
    "of a checkpoint:\n"
    "  --from CHECKPOINT names it; the first argument without an option does the same\n"
    "  --out OUT_DIR     names what is written; the second one does the same\n"
    "  --inspect         says what it is, what its model will be and what is missing; reads no "
    "weights, writes "
    "nothing\n"
    "  --tokenizer FILE  tokenizer.json, vocab.txt, a SentencePiece .model, or a folder of these; "
    "else the one beside\n"
    "                    the checkpoint\n"
    "  --gate X          how much a Retro takes from neighbours: 1 for base models, 0 for NVIDIA's "
    "instruct models\n"
    "  --as gpt          the GPT that a Retro with gate 0 computes, without what it does not use\n"
    "  --retro-args FILE JSON of Megatron's arguments for retrieval (args.json or config.json of "
    "the Retro project)\n"
    "  --config FILE     JSON of keys of config.json; they win over what the checkpoint says. Of a "
    "vision model: all "
    "of\n"
    "                    config.json\n"
    "  --resume          goes on from the files that an earlier run of the same import completed "
    "before it was "
    "killed,\n"
    "                    and keeps those of this run when it is interrupted or fails\n"
    "\n"
    "exit code: 0 all fine, 1 failed or wrong arguments, 130 interrupted\n";

/* The command line. */
struct convert_command {
    struct convert_options convert;
    struct import_options import;
    const char *type;        /* --to, or NULL */
    const char *sparse_head; /* the folder of --sparse-head, or NULL */
    bool checkpoint;         /* `from` is one */
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
                                             {"sparse-head", required_argument, NULL, 's'},
                                             {NULL, 0, NULL, 0}};

static void take_option(struct convert_command *command, int option, const char **keep) {
    switch (option) {
        case 't': command->type = optarg; break;
        case 'c': command->convert.calibrate = optarg; break;
        case 'f': command->convert.from = optarg; break;
        case 'o': command->convert.to = optarg; break;
        case 'T': command->import.tokenizer = optarg; break;
        case 'a': command->import.as = optarg; break;
        case 'g': command->import.gate = optarg; break;
        case 'r': command->import.retro_args = optarg; break;
        case 'C': command->import.config = optarg; break;
        case 'i': command->import.inspect = true; break;
        case 's': command->sparse_head = optarg; break;
        case 'R': command->convert.resume = true; break;
        case 'k':
            keep[command->convert.n_keep] = optarg;
            command->convert.n_keep++;
            break;
        default: break;
    }
}

/* Paths may stand without their options, in this order. */
static bool take_paths(struct convert_command *command, int argc, char **argv) {
    const char **places[] = {&command->convert.from, &command->convert.to};
    for (size_t i = 0; i < ARRAY_COUNT(places) && optind < argc; i++) {
        if (*places[i]) continue;
        *places[i] = argv[optind];
        optind++;
    }
    bool complete = command->convert.from && (command->convert.to || command->import.inspect);
    return complete && optind == argc;
}

/* Options that only one of the two kinds of input has. */
static bool check_kind(const struct convert_command *command) {
    const struct import_options *options = &command->import;
    bool of_checkpoint = options->tokenizer || options->as || options->gate ||
                         options->retro_args || options->config || options->inspect ||
                         command->convert.resume;
    if (options->as && strcmp(options->as, "gpt") != 0 && strcmp(options->as, "retro") != 0) {
        line_print(stderr, "retro-convert: --as %s: expected retro or gpt", options->as);
        return false;
    }
    if (command->checkpoint || (command->type && !of_checkpoint)) return true;
    if (of_checkpoint)
        line_print(stderr,
                   "retro-convert: %s is no checkpoint of Megatron's or NeMo's, which --inspect, "
                   "--tokenizer, --as, "
                   "--gate, --retro-args, --config and --resume are for",
                   command->convert.from);
    else
        fprintf(stderr,
                "retro-convert: expected MODEL_DIR, OUT_DIR and --to TYPE; --help says more\n");
    return false;
}

/* Reads --to. */
static bool read_type(struct convert_options *options, const char *to) {
    static const struct written_format *const formats[] = {&format_packed, &format_gguf};
    for (size_t i = 0; i < ARRAY_COUNT(formats); i++)
        if (strcmp(to, formats[i]->name) == 0) options->format = formats[i];
    bool typed = options->format == NULL;
    if (typed && !dtype_parse(&options->dtype, to)) {
        line_print(stderr,
                   "retro-convert: --to %s: expected int8, int4, bf16, f16, f32, packed or gguf",
                   to);
        return false;
    }
    if (options->format == &format_gguf && options->from_gguf) {
        line_print(stderr, "retro-convert: %s is a GGUF file already", options->from);
        return false;
    }
    if (!typed && options->n_keep > 0) {
        fprintf(stderr, "retro-convert: --keep: %s changes no type\n", options->format->doing);
        return false;
    }
    if (options->calibrate && (!typed || options->dtype != DTYPE_INT4)) {
        fprintf(stderr, "retro-convert: --calibrate: only int4 makes use of it\n");
        return false;
    }
    return true;
}

/* Returns false after saying what is wrong. */
static bool parse(int argc, char **argv, struct convert_command *command, const char **keep) {
    command->convert.keep = keep;
    for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (option == '?') return false;
        take_option(command, option, keep);
    }
    if (command->sparse_head && argc == 3) return true;
    if (command->sparse_head) {
        fprintf(stderr, "retro-convert: --sparse-head MODEL stands alone\n");
        return false;
    }
    if (!take_paths(command, argc, argv)) {
        fprintf(stderr,
                "retro-convert: expected MODEL_DIR, OUT_DIR and --to TYPE; --help says more\n");
        return false;
    }
    struct buffer gguf = {0};
    command->convert.from_gguf = gguf_find_file(command->convert.from, &gguf);
    buffer_free(&gguf);
    command->import.from = command->convert.from;
    command->import.to = command->convert.to;
    command->checkpoint = !command->convert.from_gguf && checkpoint_detect(command->convert.from);
    if (!check_kind(command)) return false;
    if (command->type == NULL && (command->convert.calibrate || command->convert.n_keep > 0)) {
        fprintf(stderr, "retro-convert: --calibrate and --keep need --to\n");
        return false;
    }
    return command->type == NULL || read_type(&command->convert, command->type);
}

static void describe(struct buffer *note, const struct convert_options *options,
                     const struct calibration *calibration) {
    buffer_printf(
        note,
        "\n## Conversion\n\nThe weights of this folder were converted by retro-convert %s to %s",
        RETRO_VERSION, options->format ? options->format->described : dtype_name(options->dtype));
    if (options->dtype == DTYPE_INT4 && options->format == NULL)
        buffer_printf(note, " (word table and output matrix: int8)");
    if (calibration)
        buffer_printf(note, ", calibrated on %d tokens of text", calibration_tokens(calibration));
    for (int i = 0; i < options->n_keep; i++)
        buffer_printf(note, "%s %s", i ? "," : "; kept as they were:", options->keep[i]);
    buffer_append_string(note, ". The figures above hold for the weights before.\n");
}

static enum status write_weights(struct conversion *conversion,
                                 const struct convert_options *options, const struct output *out,
                                 struct buffer *note, struct error *e) {
    struct calibration *calibration = NULL;
    if (options->calibrate && calibration_run(&calibration, conversion, options, e))
        return error_prefix(e, "--calibrate");
    for (int i = 0; calibration && i < conversion->n; i++)
        conversion->changes[i].importance =
            calibration_importance(calibration, conversion->changes[i].weight);
    describe(note, options, calibration);
    enum status status = options->format
                             ? options->format->write(conversion, options->from, out->partial, e)
                             : conversion_write(conversion, out->partial, e);
    calibration_close(calibration);
    return status;
}

/* The written folder opens as a model before it gets its name. */
static enum status verify(const struct conversion *conversion, const char *folder,
                          struct error *e) {
    struct model *model;
    struct model_options options = {.check_only = true};
    if (model_open(&model, folder, conversion->backend, conversion->comm, &options, e))
        return error_prefix(e, "what was written");
    model_close(model);
    return STATUS_OK;
}

static enum status convert(struct conversion *conversion, const struct convert_options *options,
                           struct error *e) {
    struct output out;
    struct buffer note = {0};
    if (output_open(&out, options, e)) return e->status;
    enum status status = write_weights(conversion, options, &out, &note, e);
    if (status == STATUS_OK && !(options->format && options->format->whole))
        status = options->from_gguf ? output_copy_gguf(&out, options->from, note.data, e)
                                    : output_copy(&out, options->from, note.data, e);
    if (status == STATUS_OK) status = verify(conversion, out.partial, e);
    if (status == STATUS_OK) status = output_finish(&out, e);
    output_discard(&out);
    buffer_free(&note);
    return status;
}

static enum status run_conversion(const struct convert_options *options, struct error *e) {
    struct conversion conversion;
    enum status status = conversion_open(&conversion, options, e);
    if (status == STATUS_OK) status = convert(&conversion, options, e);
    if (status == STATUS_OK) conversion_print(&conversion);
    conversion_close(&conversion);
    return status;
}

/* The imported folder opens as a model. */
static enum status verify_import(const char *folder, struct error *e) {
    struct conversion conversion = {0};
    enum status status = backend_open(&conversion.backend, "cpu", &(struct backend_options){0}, e);
    if (status == STATUS_OK) status = comm_open_single(&conversion.comm, e);
    if (status == STATUS_OK) status = verify(&conversion, folder, e);
    conversion_close(&conversion);
    return status;
}

/* Whether an imported folder holds what --to asks for. */
static bool has_type(const struct import_plan *plan, const struct convert_command *command) {
    const char *type = settings_text(&plan->config, "torch_dtype");
    if (command->type == NULL) return true;
    return type && command->convert.n_keep == 0 &&
           ((strcmp(command->type, "bf16") == 0 && strcmp(type, "bfloat16") == 0) ||
            (strcmp(command->type, "f16") == 0 && strcmp(type, "float16") == 0) ||
            (strcmp(command->type, "f32") == 0 && strcmp(type, "float32") == 0));
}

/* Whether types change as the weights are written. A vision model's matrices are known when its
 * folder is opened; a model has to be whole to be calibrated, packed or written as GGUF. */
static bool converts_at_once(const struct convert_command *command) {
    return command->type && command->convert.format == NULL && command->convert.calibrate == NULL;
}

/* Imports into a folder beside the target, which takes its name, or is converted into it. */
static enum status import_into(const struct import_plan *plan,
                               const struct convert_command *command, struct error *e) {
    struct output out;
    struct buffer identity = {0};
    struct convert_options options = command->convert;
    bool complete = has_type(plan, command) || (converts_at_once(command) && !plan->pictures);
    import_identify(&identity, plan);
    options.identity = identity.data;
    enum status status = output_open(&out, &options, e);
    buffer_free(&identity);
    if (status) return status;
    status = import_run(plan, &command->import, &out, e);
    if (status == STATUS_OK) out.keep = false;
    if (status == STATUS_OK) status = verify_import(out.partial, e);
    if (status == STATUS_OK && !complete) {
        struct convert_options step = command->convert;
        step.from = out.partial;
        step.resume = false;
        status = run_conversion(&step, e);
    } else if (status == STATUS_OK) {
        status = output_finish(&out, e);
    }
    output_discard(&out);
    return status;
}

static enum status run_import(struct convert_command *command, struct error *e) {
    struct import_plan plan;
    struct buffer note = {0};
    if (converts_at_once(command)) {
        describe(&note, &command->convert, NULL);
        command->import.types = &command->convert;
        command->import.note = note.data;
    }
    enum status status = import_open(&plan, &command->import, e);
    if (status == STATUS_OK) {
        if (!command->import.inspect) status = import_into(&plan, command, e);
        import_close(&plan);
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
    struct convert_command command = {.type = NULL};
    struct error e = {0};
    standard_streams_open();
    bus_errors_explain();
    if (asks_for_help(argc, argv)) {
        fputs(usage, stdout);
        return process_end(0);
    }
    const char **keep = xcalloc((size_t)argc, sizeof *keep);
    bool parsed = parse(argc, argv, &command, keep);
    enum status status = STATUS_INVALID;
    if (parsed) {
        status = command.sparse_head  ? sparse_head_convert(command.sparse_head, &e)
                 : command.checkpoint ? run_import(&command, &e)
                                      : run_conversion(&command.convert, &e);
        if (status) line_print(stderr, "retro-convert: %s", e.text);
    }
    free(keep);
    return process_end(status == STATUS_CANCELLED ? EXIT_INTERRUPTED : status != STATUS_OK);
}
