/* tools/eval/eval_chat.c: retro-eval chat. Prints the text that a model reads for a chat request,
 * or its token ids, by the folder's chat template and tokenizer. The model's weights are not
 * needed. */
#include <stdio.h>
#include <string.h>

#include "retro/chat/chat.h"
#include "tools/eval/eval.h"

static enum status print_ids(const struct chat *chat, const struct chat_input *in,
                             const char *folder, const struct template_output *text,
                             struct error *e) {
    struct tokenizer *tokenizer = NULL;
    struct tokens ids = {0};
    const struct template *template;
    enum status status = chat_pick(chat, in, &template, e);
    if (status == STATUS_OK) status = tokenizer_open(&tokenizer, folder, e);
    if (status == STATUS_OK) status = chat_encode(template, tokenizer, text, &ids, e);
    if (status == STATUS_OK) {
        for (int i = 0; i < ids.n; i++) printf("%s%d", i ? " " : "", ids.ids[i]);
        printf("\n");
    }
    tokens_free(&ids);
    tokenizer_close(tokenizer);
    return status;
}

static enum status run(const char *folder, const char *request, bool ids, struct error *e) {
    struct json *json = NULL;
    struct chat *chat = NULL;
    struct chat_input in;
    struct template_output text = {0};
    enum status status = json_parse_file(&json, request, e);
    if (status == STATUS_OK && chat_input_read(&in, json, e))
        status = error_prefix(e, "%s", request);
    if (status == STATUS_OK) status = chat_open(&chat, folder, e);
    if (status == STATUS_OK) status = chat_render(chat, &in, &text, e);
    if (status == STATUS_OK && ids) status = print_ids(chat, &in, folder, &text, e);
    if (status == STATUS_OK && !ids && text.text.size > 0)
        fwrite(text.text.data, 1, text.text.size, stdout);
    template_output_free(&text);
    chat_close(chat);
    json_close(json);
    return status;
}

int eval_chat(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    bool ids = false;
    const struct eval_option options[] = {
        {"--ids", NULL, "print token ids, as the server would send them to the model",
         EVAL_OPTION_FLAG, &ids},
        {0}};
    config_init(&config);
    int first = eval_parse(self, argc, argv, options, &config, &e);
    int last = argc;
    if (first >= 0 && last - first == 3 && strcmp(argv[last - 1], "--ids") == 0) {
        ids = true;
        last--;
    }
    if (first >= 0 && last - first != 2)
        error_set(&e, STATUS_INVALID, "expected FOLDER and REQUEST.json");
    bool failed = first != EVAL_HELPED &&
                  (first < 0 || last - first != 2 || run(argv[first], argv[first + 1], ids, &e));
    if (failed) line_print(stderr, "retro-eval chat: %s", e.text);
    config_free(&config);
    return failed;
}
