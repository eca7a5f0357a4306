/* tests/reference/llama_reference.cc: llama.cpp's own answers, for make_gguf_golden.py, which
 * compiles this against a build of it. Usage: llama_reference MODEL.gguf [plain], with commands on
 * standard input:
 *
 *     logits OUT ID...        writes the logits of all rows, f32, to OUT
 *     text ADD PARSE HEX      prints the ids of a text; ADD: with its own special tokens, PARSE:
 * "<s>" becomes an id
 *
 * f32 keys and values, no flash attention; "plain" keeps the weights as they lie in the file,
 * without repacking. */
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <llama.h>

static void write_logits(llama_model *model, const std::string &out, std::vector<llama_token> ids) {
    llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = 512;
    p.n_threads = p.n_threads_batch = 1;
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *c = llama_init_from_model(model, p);
    llama_batch b = llama_batch_init((int32_t)ids.size(), 0, 1);
    for (size_t i = 0; i < ids.size(); i++) {
        b.token[i] = ids[i];
        b.pos[i] = (llama_pos)i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    b.n_tokens = (int32_t)ids.size();
    if (c == nullptr || llama_decode(c, b) != 0) exit(1);
    const size_t vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::ofstream file(out, std::ios::binary);
    file.write((const char *)llama_get_logits(c),
               (std::streamsize)(ids.size() * vocab * sizeof(float)));
    llama_batch_free(b);
    llama_free(c);
}

static std::string read_hex(const std::string &hex) {
    std::string text;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
        text += (char)std::stoi(hex.substr(i, 2), nullptr, 16);
    return text;
}

static void print_ids(llama_model *model, const std::string &text, bool add, bool parse) {
    std::vector<llama_token> ids(text.size() + 16);
    int n = llama_tokenize(llama_model_get_vocab(model), text.data(), (int32_t)text.size(),
                           ids.data(), (int32_t)ids.size(), add, parse);
    for (int i = 0; i < n; i++) std::printf("%s%d", i ? " " : "", ids[(size_t)i]);
    std::printf("\n");
    std::fflush(stdout);
}

int main(int argc, char **argv) {
    llama_log_set(
        [](ggml_log_level level, const char *text, void *) {
            if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    llama_backend_init();
    llama_model_params p = llama_model_default_params();
    p.use_extra_bufts = argc < 3;
    llama_model *model = llama_model_load_from_file(argv[1], p);
    if (model == nullptr) return 1;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command, argument;
        words >> command;
        if (command == "logits") {
            words >> argument;
            std::vector<llama_token> ids;
            for (llama_token id; words >> id;) ids.push_back(id);
            write_logits(model, argument, ids);
            std::printf("written\n");
            std::fflush(stdout);
        } else {
            bool add, parse;
            words >> add >> parse >> argument;
            print_ids(model, read_hex(argument), add, parse);
        }
    }
    llama_model_free(model);
    return 0;
}
