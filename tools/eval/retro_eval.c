/* tools/eval/retro_eval.c: retro-eval, which measures models: bits per byte, multiple choice,
 * parity with a reference, retrieval, embeddings. Dispatch, and opening a model. */
#include <stdio.h>
#include <string.h>

#include "config/base/line.h"
#include "config/base/process.h"
#include "tools/eval/eval.h"

static const struct eval_command {
    struct usage usage;
    int (*run)(const struct usage *self, int argc, char **argv);
} commands[] = {
    {{"ppl", "[OPTION...] DOCUMENT...",
      "bits per byte of documents with retrieval on, off and random, and of a plain GPT"},
     eval_ppl},
    {{"lm", "[OPTION...] FILE.jsonl...",
      "accuracy on multiple choice records with retrieval on and off"},
     eval_lm},
    {{"parity", "[OPTION...] FOLDER...",
      "run the reference cases in FOLDER forward and incrementally, compare logits and tokens"},
     eval_parity},
    {{"retrieval", "[OPTION...] QUESTIONS.jsonl...",
      "recall, MRR and nDCG of searches by vectors, by words, by both and reranked, for questions "
      "with known\n"
      "documents"},
     eval_retrieval},
    {{"beir", "[OPTION...] FOLDER",
      "nDCG@10 and recall@100 of searches for the queries of a folder in the form of BEIR"},
     eval_beir},
    {{"quotes", "[OPTION...] QUESTIONS.jsonl...",
      "share of answers that quote, and of quotes that stand in a passage, and in a right "
      "document"},
     eval_quotes},
    {{"embed", "[OPTION...] FOLDER TEXT...",
      "print the embedding of each TEXT, one JSON array a line (TEXT - reads JSON lines)"},
     eval_embed},
    {{"rerank", "[OPTION...] FOLDER FILE.jsonl",
      "print what a cross-encoder thinks of the text of each line beside its query: {\"query\", "
      "\"text\"}"},
     eval_rerank},
    {{"support", "[OPTION...] QUESTIONS.jsonl...",
      "how well support tells sentences that the passages support from planted false ones"},
     eval_support},
    {{"chat", "[OPTION...] FOLDER REQUEST.json [--ids]",
      "print the text that a model reads for a chat request, by its chat template"},
     eval_chat},
    {{"picture", "[OPTION...] PICTURE [MODEL]",
      "print what a picture's file holds and what the processor of a model makes of it; MODEL is "
      "the model's\n"
      "folder, or a preprocessor_config.json"},
     eval_picture},
};

static int usage(FILE *out) {
    fprintf(out,
            "usage: retro-eval COMMAND ...; COMMAND --help says more\n"
            "retro-eval: measures models, embedders and searches, and compares them with a "
            "reference\n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++) usage_command(out, &commands[i].usage, 11);
    return out == stderr;
}

int main(int argc, char **argv) {
    bus_errors_explain();
    if (argc >= 2 && strcmp(argv[1], "--help") == 0) return process_end(usage(stdout));
    for (size_t i = 0; argc >= 2 && i < ARRAY_COUNT(commands); i++)
        if (strcmp(argv[1], commands[i].usage.name) == 0)
            return process_end(commands[i].run(&commands[i].usage, argc - 2, argv + 2));
    if (argc >= 2)
        line_print(stderr, "retro-eval: there is no command \"%s\"", argv[1]);
    else
        line_print(stderr, "retro-eval: a command is missing");
    return process_end(usage(stderr));
}
