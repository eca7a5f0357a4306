/* tests/arm/peer_counts.c: what step_counts.c does, by llama.cpp on a GGUF file:
 * `peer_counts FILE PROMPT`; and with `peer_counts FILE embed TEXTS` a vector of each line of
 * TEXTS. docs/kernels.md says how it is built; nothing else of this project needs llama.cpp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llama.h>

enum { BEFORE = 16, MOST = 512, TOGETHER = 8, LINE = 4096 };

/* See step_counts.c. */
static void mark(void) {
#ifdef __aarch64__
    __asm__ volatile("hint #63" ::: "memory");
#endif
}

/* `prompt` tokens at once, then `steps` one by one, of a sequence of its own. */
static int generate(struct llama_context *context, int vocab, int prompt, int steps) {
    llama_token tokens[MOST];
    for (int i = 0; i < prompt; i++) tokens[i] = (i * 7 + 1) % vocab;
    llama_memory_clear(llama_get_memory(context), true);
    int status = llama_decode(context, llama_batch_get_one(tokens, prompt));
    for (int i = 0; i < steps && status == 0; i++)
        status = llama_decode(context, llama_batch_get_one(tokens, 1));
    mark();
    return status;
}

static int count_steps(struct llama_context *context, const struct llama_model *model, int prompt) {
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    mark();
    return generate(context, vocab, prompt, 0) || generate(context, vocab, BEFORE, 1) ||
           generate(context, vocab, BEFORE, 2);
}

/* Adds the text's tokens as sequence `sequence`. */
static void batch_add(struct llama_batch *batch, const struct llama_vocab *vocab, const char *text,
                      int sequence) {
    llama_token tokens[MOST];
    const int n = llama_tokenize(vocab, text, (int)strcspn(text, "\n"), tokens,
                                 MOST - batch->n_tokens, true, true);
    for (int i = 0; i < n; i++, batch->n_tokens++) {
        batch->token[batch->n_tokens] = tokens[i];
        batch->pos[batch->n_tokens] = i;
        batch->n_seq_id[batch->n_tokens] = 1;
        batch->seq_id[batch->n_tokens][0] = sequence;
        batch->logits[batch->n_tokens] = 1;
    }
}

/* Some texts at a time: the attention of a batch is over all of it. */
static int count_vectors(struct llama_context *context, const struct llama_model *model,
                         const char *path) {
    FILE *file = fopen(path, "r");
    char line[LINE];
    int status = file == NULL, tokens = 0;
    struct llama_batch batch = llama_batch_init(MOST, 0, 1);
    mark();
    for (int more = 1; more && status == 0;) {
        batch.n_tokens = 0;
        for (int i = 0; i < TOGETHER && (more = fgets(line, sizeof line, file) != NULL); i++)
            batch_add(&batch, llama_model_get_vocab(model), line, i);
        if (batch.n_tokens > 0) status = llama_encode(context, batch);
        tokens += batch.n_tokens;
    }
    mark();
    printf("%d tokens\n", tokens);
    llama_batch_free(batch);
    if (file != NULL) fclose(file);
    return status;
}

int main(int argc, char **argv) {
    const int embed = argc == 4 && strcmp(argv[2], "embed") == 0;
    if (argc != 3 && !embed) {
        fprintf(stderr, "usage: peer_counts FILE PROMPT | peer_counts FILE embed TEXTS\n");
        return 2;
    }
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == NULL) return 1;
    const int prompt = embed ? MOST : atoi(argv[2]);
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)prompt + 2;
    params.n_batch = params.n_ubatch = (uint32_t)prompt;
    params.n_threads = params.n_threads_batch = 1;
    params.embeddings = embed;
    params.n_seq_max = embed ? TOGETHER : 1;
    struct llama_context *context = llama_init_from_model(model, params);
    if (context == NULL || prompt > MOST) return 1;
    int status =
        embed ? count_vectors(context, model, argv[3]) : count_steps(context, model, prompt);
    llama_free(context);
    llama_model_free(model);
    return status ? 1 : 0;
}
