/* server/api/text/tokens.c: POST /tokenize, POST /detokenize and GET /tokenizer_info: what the models' tokenizers do,
 * in the shapes of vLLM and llama.cpp; lm-eval's remote tokenizer reads all three. */
#include "config/json/json_writer.h"
#include "server/api/api.h"
#include "server/api/fields/token_fields.h"

static const struct request_limits *choose_tokenizer(void *context, const char *name, struct failure *f) {
    struct served_tokenizer t;
    return api_tokenizer(context, name, &t, f) ? t.limits : NULL;
}

static void put_piece(struct json_writer *w, const struct tokenizer *t, int32_t id) {
    struct buffer piece = {0};
    tokenizer_piece(t, id, &piece);
    put_string_n(w, piece.data ? piece.data : "", piece.size);
    buffer_free(&piece);
}

static void write_tokens(struct json_writer *w, const struct tokenize_request *r, const struct tokenizer *t,
                         const struct tokens *ids) {
    put_key_array(w, "tokens");
    for (int i = 0; i < ids->n; i++) {
        if (!r->with_pieces) {
            put_int(w, ids->ids[i]);
            continue;
        }
        put_object(w);
        put_key_int(w, "id", ids->ids[i]);
        put_key(w, "piece");
        put_piece(w, t, ids->ids[i]);
        put_object_end(w);
    }
    put_array_end(w);
    if (!r->return_strings) {
        put_key_null(w, "token_strs");
        return;
    }
    put_key_array(w, "token_strs");
    for (int i = 0; i < ids->n; i++) put_piece(w, t, ids->ids[i]);
    put_array_end(w);
}

static struct answer *answer_tokens(const struct tokenize_request *r, const struct served_tokenizer *t,
                                    struct failure *f) {
    bool add = r->add_special >= 0 ? r->add_special : r->has_prompt;
    int flags = (add ? TOKENIZER_ADD_SPECIAL : 0) | (r->parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
    struct tokens ids = {0};
    struct buffer body = {0};
    struct json_writer w;
    struct error e;
    if (tokenizer_encode(t->tokenizer, r->prompt.text, r->prompt.size, flags, &ids, &e)) {
        tokens_free(&ids);
        failure_from_error(f, &e);
        return NULL;
    }
    put_begin(&w, &body);
    put_object(&w);
    put_key_int(&w, "count", ids.n);
    put_key_int(&w, "max_model_len", t->limits->context);
    write_tokens(&w, r, t->tokenizer, &ids);
    put_object_end(&w);
    tokens_free(&ids);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *tokenize_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    const struct request_models models = {choose_tokenizer, a, &a->largest};
    struct tokenize_request request;
    struct served_tokenizer t;
    struct answer *answer = NULL;
    (void)waker;
    if (tokenize_request_parse(&request, r->body, r->size, &models, f) && api_tokenizer(a, request.model, &t, f))
        answer = answer_tokens(&request, &t, f);
    tokenize_request_free(&request);
    return answer;
}

static struct answer *answer_text_of(const struct detokenize_request *r, const struct served_tokenizer *t) {
    struct buffer text = {0}, body = {0};
    struct json_writer w;
    tokenizer_decode(t->tokenizer, r->tokens.ids, r->tokens.n, false, &text);
    put_begin(&w, &body);
    put_object(&w);
    put_key_string_n(&w, "prompt", text.data ? text.data : "", text.size);
    put_key_string_n(&w, "content", text.data ? text.data : "", text.size);
    put_object_end(&w);
    buffer_free(&text);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *detokenize_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    const struct request_models models = {choose_tokenizer, a, &a->largest};
    struct detokenize_request request;
    struct served_tokenizer t;
    struct answer *answer = NULL;
    (void)waker;
    if (detokenize_request_parse(&request, r->body, r->size, &models, f) && api_tokenizer(a, request.model, &t, f))
        answer = answer_text_of(&request, &t);
    detokenize_request_free(&request);
    return answer;
}

/* "eos_token": its text, "eos_token_id": its number; null where there is none. */
static void put_special(struct json_writer *w, const struct tokenizer *t, const char *name, int id) {
    struct buffer key = {0}, text = {0};
    buffer_printf(&key, "%s_id", name);
    if (id >= 0) tokenizer_decode(t, (const int32_t[]){id}, 1, false, &text);
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

struct answer *tokenizer_info(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct served_tokenizer t;
    struct buffer body = {0};
    struct json_writer w;
    (void)waker;
    if (!api_tokenizer(a, api_argument(r, "model"), &t, f)) return NULL;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "model", t.id);
    put_special(&w, t.tokenizer, "eos_token", t.eod);
    put_special(&w, t.tokenizer, "bos_token", tokenizer_bos(t.tokenizer));
    put_special(&w, t.tokenizer, "pad_token", tokenizer_pad(t.tokenizer));
    put_key_int(&w, "vocab_size", tokenizer_vocab_size(t.tokenizer));
    put_key_int(&w, "model_max_length", t.limits->context);
    put_chat_template(&w, t.chat);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}
