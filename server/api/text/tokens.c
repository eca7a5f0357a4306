/* server/api/text/tokens.c: POST /tokenize, POST /detokenize and GET /tokenizer_info: what the
 * models' tokenizers do, in the shapes of vLLM and llama.cpp; lm-eval's remote tokenizer reads all
 * three. */
#include "config/json/json_writer.h"
#include "server/api/api.h"
#include "server/api/fields/token_fields.h"

static const struct request_limits *choose_tokenizer(void *context, const char *name,
                                                     struct failure *failure) {
    struct served_tokenizer tokenizer;
    return api_tokenizer(context, name, &tokenizer, failure) ? tokenizer.limits : NULL;
}

static void put_piece(struct json_writer *w, const struct tokenizer *tokenizer, int32_t id) {
    struct buffer piece = {0};
    tokenizer_piece(tokenizer, id, &piece);
    put_string_n(w, piece.data ? piece.data : "", piece.size);
    buffer_free(&piece);
}

static void write_tokens(struct json_writer *w, const struct tokenize_request *request,
                         const struct tokenizer *tokenizer, const struct tokens *ids) {
    put_key_array(w, "tokens");
    for (int i = 0; i < ids->n; i++) {
        if (!request->with_pieces) {
            put_int(w, ids->ids[i]);
            continue;
        }
        put_object(w);
        put_key_int(w, "id", ids->ids[i]);
        put_key(w, "piece");
        put_piece(w, tokenizer, ids->ids[i]);
        put_object_end(w);
    }
    put_array_end(w);
    if (!request->return_strings) {
        put_key_null(w, "token_strs");
        return;
    }
    put_key_array(w, "token_strs");
    for (int i = 0; i < ids->n; i++) put_piece(w, tokenizer, ids->ids[i]);
    put_array_end(w);
}

static struct answer *answer_tokens(const struct tokenize_request *request,
                                    const struct served_tokenizer *tokenizer,
                                    struct failure *failure) {
    bool add = request->add_special >= 0 ? request->add_special : request->has_prompt;
    int flags =
        (add ? TOKENIZER_ADD_SPECIAL : 0) | (request->parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
    struct tokens ids = {0};
    struct buffer body = {0};
    struct json_writer w;
    struct error e;
    if (tokenizer_encode(tokenizer->tokenizer, request->prompt.text, request->prompt.size, flags,
                         &ids, &e)) {
        tokens_free(&ids);
        failure_from_error(failure, &e);
        return NULL;
    }
    put_begin(&w, &body);
    put_object(&w);
    put_key_int(&w, "count", ids.n);
    put_key_int(&w, "max_model_len", tokenizer->limits->context);
    write_tokens(&w, request, tokenizer->tokenizer, &ids);
    put_object_end(&w);
    tokens_free(&ids);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *tokenize_open(struct api *api, const struct api_request *api_request,
                             struct waker waker, struct failure *failure) {
    const struct request_models models = {choose_tokenizer, api, &api->largest};
    struct tokenize_request request;
    struct served_tokenizer tokenizer;
    struct answer *answer = NULL;
    (void)waker;
    if (tokenize_request_parse(&request, api_request->body, api_request->size, &models, failure) &&
        api_tokenizer(api, request.model, &tokenizer, failure))
        answer = answer_tokens(&request, &tokenizer, failure);
    tokenize_request_free(&request);
    return answer;
}

static struct answer *answer_text_of(const struct detokenize_request *request,
                                     const struct served_tokenizer *tokenizer) {
    struct buffer text = {0}, body = {0};
    struct json_writer w;
    tokenizer_decode(tokenizer->tokenizer, request->tokens.ids, request->tokens.n, false, &text);
    put_begin(&w, &body);
    put_object(&w);
    put_key_string_n(&w, "prompt", text.data ? text.data : "", text.size);
    put_key_string_n(&w, "content", text.data ? text.data : "", text.size);
    put_object_end(&w);
    buffer_free(&text);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *detokenize_open(struct api *api, const struct api_request *api_request,
                               struct waker waker, struct failure *failure) {
    const struct request_models models = {choose_tokenizer, api, &api->largest};
    struct detokenize_request request;
    struct served_tokenizer tokenizer;
    struct answer *answer = NULL;
    (void)waker;
    if (detokenize_request_parse(&request, api_request->body, api_request->size, &models,
                                 failure) &&
        api_tokenizer(api, request.model, &tokenizer, failure))
        answer = answer_text_of(&request, &tokenizer);
    detokenize_request_free(&request);
    return answer;
}

/* "eos_token": its text, "eos_token_id": its number; null where there is none. */
static void put_special(struct json_writer *w, const struct tokenizer *tokenizer, const char *name,
                        int id) {
    struct buffer key = {0}, text = {0};
    buffer_printf(&key, "%s_id", name);
    if (id >= 0) tokenizer_decode(tokenizer, (const int32_t[]){id}, 1, false, &text);
    put_key(w, name);
    if (id >= 0)
        put_string_n(w, text.data, text.size);
    else
        put_null(w);
    put_key(w, key.data);
    if (id >= 0)
        put_int(w, id);
    else
        put_null(w);
    buffer_free(&key);
    buffer_free(&text);
}

void put_chat_template(struct json_writer *w, const struct chat *chat) {
    struct text_span template = chat ? chat_source(chat) : (struct text_span){0};
    if (template.text)
        put_key_string_n(w, "chat_template", template.text, template.size);
    else
        put_key_null(w, "chat_template");
}

struct answer *tokenizer_info(struct api *api, const struct api_request *request,
                              struct waker waker, struct failure *failure) {
    struct served_tokenizer tokenizer;
    struct buffer body = {0};
    struct json_writer w;
    (void)waker;
    if (!api_tokenizer(api, api_argument(request, "model"), &tokenizer, failure)) return NULL;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "model", tokenizer.id);
    put_special(&w, tokenizer.tokenizer, "eos_token", tokenizer.eod);
    put_special(&w, tokenizer.tokenizer, "bos_token", tokenizer_bos(tokenizer.tokenizer));
    put_special(&w, tokenizer.tokenizer, "pad_token", tokenizer_pad(tokenizer.tokenizer));
    put_key_int(&w, "vocab_size", tokenizer_vocab_size(tokenizer.tokenizer));
    put_key_int(&w, "model_max_length", tokenizer.limits->context);
    put_chat_template(&w, tokenizer.chat);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}
