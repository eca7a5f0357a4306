/* tests/unit/test_gguf_tower.c: the file of a vision tower beside a model's: which file it is, what
 * the folder is that both stand for, and pairs that are refused. */
#include "retro/weights/gguf_tower.h"

#include "config/base/text.h"
#include "config/json/json_value.h"
#include "retro/pictures/preprocessor.h"
#include "retro/text/open/tokenizer_gguf.h"
#include "retro/weights/weights.h"
#include "tests/unit/gguf_build.h"

static char folder[FOLDER_SIZE];

static int make_folder(void **state) {
    (void)state;
    folder_make(folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    folder_remove(folder);
    return 0;
}

static void expect_words(const struct error *e, const char *words) {
    if (strstr(e->text, words) == NULL) fail_msg("expected \"%s\" in: %s", words, e->text);
}

/* A model of rows of 32; of `named` tokens the last one stands for a picture. */
static void draft_model(struct gguf_draft *d, const char *architecture, const char *last) {
    static const char *const sizes[] = {"block_count", "feed_forward_length",
                                        "attention.head_count"};
    char key[80];
    draft_word(d, "general.architecture", architecture);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, sizes[i]);
        draft_u32(d, key, 2);
    }
    snprintf(key, sizeof key, "%s.embedding_length", architecture);
    draft_u32(d, key, 32);
    draft_word(d, "tokenizer.ggml.model", "gpt2");
    draft_list(d, "tokenizer.ggml.merges", GGUF_TEXT, 0);
    draft_list(d, "tokenizer.ggml.tokens", GGUF_TEXT, 3);
    draft_text(&d->keys, "a");
    draft_text(&d->keys, "b");
    draft_text(&d->keys, last);
    draft_tensor(d, "token_embd.weight", 0, 3, 32, 3 * 32 * 4);
}

static void draft_floats(struct gguf_draft *d, const char *key, int n) {
    uint32_t half = 0x3f000000;
    draft_list(d, key, GGUF_F32, (uint64_t)n);
    for (int i = 0; i < n; i++) draft_number(&d->keys, half, 4);
}

static void draft_tower(struct gguf_draft *d, const char *projector) {
    draft_word(d, "general.architecture", "clip");
    draft_word(d, "clip.projector_type", projector);
    draft_u32(d, "clip.vision.block_count", 2);
    draft_u32(d, "clip.vision.embedding_length", 16);
    draft_u32(d, "clip.vision.feed_forward_length", 24);
    draft_u32(d, "clip.vision.attention.head_count", 2);
    draft_u32(d, "clip.vision.image_size", 32);
    draft_u32(d, "clip.vision.patch_size", 4);
    draft_floats(d, "clip.vision.image_mean", 3);
    draft_floats(d, "clip.vision.image_std", 3);
}

static void draft_gemma(struct gguf_draft *d) {
    draft_tower(d, "gemma3");
    draft_u32(d, "clip.vision.projector.scale_factor", 2);
    draft_tensor(d, "mm.input_projection.weight", 0, 16, 32, 16 * 32 * 4);
}

/* Layers `first` and `second` of three add rows. */
static void draft_qwen3(struct gguf_draft *d) {
    draft_tower(d, "qwen3vl_merger");
    draft_list(d, "clip.vision.is_deepstack_layers", GGUF_BOOL, 3);
    draft_number(&d->keys, 1, 1);
    draft_number(&d->keys, 0, 1);
    draft_number(&d->keys, 1, 1);
    draft_tensor(d, "mm.2.weight", 0, 32, 64, 32 * 64 * 4);
    draft_tensor(d, "v.position_embd.weight", 0, 64, 16, 64 * 16 * 4);
}

static void write_draft(struct gguf_draft *d, const char *name) {
    draft_build(d);
    folder_write(folder, name, d->file.data, d->file.size);
    draft_free(d);
}

static enum status open_pair(struct gguf **out, struct error *e) {
    char path[FOLDER_PATH_SIZE];
    folder_path(path, folder, "model.gguf");
    return gguf_open_model(out, path, e);
}

static void open_drafts(struct gguf **out, struct gguf_draft *model, struct gguf_draft *tower) {
    struct error e = {0};
    write_draft(model, "model.gguf");
    write_draft(tower, "mmproj-x.gguf");
    if (open_pair(out, &e)) fail_msg("%s", e.text);
}

static void refuse_drafts(struct gguf_draft *model, struct gguf_draft *tower, const char *words) {
    struct gguf *gguf = (struct gguf *)&words;
    struct error e = {0};
    write_draft(model, "model.gguf");
    write_draft(tower, "mmproj-x.gguf");
    assert_int_not_equal(open_pair(&gguf, &e), STATUS_OK);
    assert_null(gguf);
    expect_words(&e, words);
}

static struct json *parse(const struct buffer *text) {
    struct json *json;
    struct error e = {0};
    if (json_parse(&json, (struct text_span){text->data, text->size}, "text", &e))
        fail_msg("%s", e.text);
    return json;
}

static void test_gemma(void **state) {
    (void)state;
    struct gguf_draft model = {0}, tower = {0};
    struct gguf *gguf;
    struct buffer text = {0}, processor = {0};
    struct error e = {0};
    draft_model(&model, "gemma3", "<image_soft_token>");
    draft_gemma(&tower);
    open_drafts(&gguf, &model, &tower);
    assert_int_equal(gguf_write_config(gguf, &text, &e), STATUS_OK);
    struct json *config = parse(&text);
    assert_true(json_text_is(json_member(config, "model_type"), "gemma3"));
    assert_int_equal(json_int(json_member(config, "image_token_id")), 2);
    assert_int_equal(json_int(json_member(config, "mm_tokens_per_image")), 16);
    const struct json *inner = json_member(config, "text_config");
    assert_int_equal(json_int(json_member(inner, "hidden_size")), 32);
    assert_false(json_bool(json_member(inner, "zero_centered_norms")));
    const struct json *vision = json_member(config, "vision_config");
    assert_true(json_text_is(json_member(vision, "model_type"), "siglip_vision_model"));
    assert_int_equal(json_int(json_member(vision, "num_hidden_layers")), 2);
    json_close(config);

    assert_int_equal(gguf_write_processor(gguf, &processor, &e), STATUS_OK);
    config = parse(&processor);
    assert_true(json_text_is(json_member(config, "processor_class"), "Gemma3Processor"));
    assert_int_equal(json_int(json_member(json_member(config, "size"), "width")), 32);
    json_close(config);
    buffer_free(&text);
    buffer_free(&processor);
    gguf_close(gguf);
}

static void test_qwen3(void **state) {
    (void)state;
    struct gguf_draft model = {0}, tower = {0};
    struct gguf *gguf;
    struct buffer text = {0}, processor = {0};
    struct error e = {0};
    draft_model(&model, "qwen3vl", "<|image_pad|>");
    draft_u32(&model, "qwen3vl.n_deepstack_layers", 2);
    draft_qwen3(&tower);
    draft_u32(&tower, "clip.vision.image_max_pixels", 5000);
    open_drafts(&gguf, &model, &tower);
    assert_int_equal(gguf_write_config(gguf, &text, &e), STATUS_OK);
    struct json *config = parse(&text);
    assert_true(json_text_is(json_member(config, "model_type"), "qwen3_vl"));
    const struct json *vision = json_member(config, "vision_config"),
                      *layers = json_member(vision, "deepstack_visual_indexes");
    assert_int_equal(json_count(layers), 2);
    assert_int_equal(json_int(json_item(layers, 1)), 2);
    assert_int_equal(json_int(json_member(vision, "num_position_embeddings")), 64);
    assert_int_equal(json_int(json_member(vision, "out_hidden_size")), 32);
    json_close(config);
    assert_int_equal(gguf_write_processor(gguf, &processor, &e), STATUS_OK);
    config = parse(&processor);
    assert_int_equal(json_int(json_member(config, "min_pixels")), 1 << 16);
    assert_int_equal(json_int(json_member(config, "max_pixels")), 5000);
    json_close(config);
    buffer_free(&text);
    buffer_free(&processor);
    gguf_close(gguf);
}

/* Rows of a head that lie in pairs, and a projector of 16 columns to 32. */
static void draft_pixtral(struct gguf_draft *d, bool merges) {
    draft_tower(d, "pixtral");
    draft_tensor(d, "v.blk.1.attn_k.weight", 0, 16, 16, 16 * 16 * 4);
    draft_tensor(d, "v.token_embd.img_break", 0, 0, 32, 32 * 4);
    draft_tensor(d, "mm.2.weight", 0, 32, 32, 32 * 32 * 4);
    if (!merges) return;
    draft_u32(d, "clip.vision.spatial_merge_size", 2);
    draft_tensor(d, "mm.patch_merger.weight", 0, 64, 16, 64 * 16 * 4);
}

/* The merger tells Mistral Small from Pixtral 12B, whatever the decoder is called. */
static void check_pixtral(const char *architecture, bool merges) {
    struct gguf_draft model = {0}, tower = {0};
    struct gguf *gguf;
    struct weights *weights;
    struct preprocessor processor;
    struct buffer text = {0};
    struct error e = {0};
    char path[FOLDER_PATH_SIZE];
    draft_model(&model, architecture, "[IMG]");
    draft_pixtral(&tower, merges);
    open_drafts(&gguf, &model, &tower);
    assert_int_equal(gguf_write_config(gguf, &text, &e), STATUS_OK);
    struct json *config = parse(&text);
    assert_true(json_text_is(json_member(config, "model_type"), merges ? "mistral3" : "llava"));
    assert_int_equal(json_int(json_member(config, "image_token_id")), 2);
    assert_int_equal(json_int(json_member(config, "vision_feature_layer")), -1);
    assert_false(json_bool(json_member(config, "multimodal_projector_bias")));
    const struct json *vision = json_member(config, "vision_config");
    assert_true(json_text_is(json_member(vision, "model_type"), "pixtral"));
    json_close(config);
    buffer_free(&text);
    gguf_close(gguf);

    folder_path(path, folder, "model.gguf");
    if (preprocessor_open(&processor, path, &e)) fail_msg("%s", e.text);
    assert_int_equal(processor.kind, PREPROCESSOR_PIXTRAL);
    assert_int_equal(processor.size.width, 32);
    assert_int_equal(processor.patch, 4);
    assert_int_equal(processor.merge, merges ? 2 : 1);

    if (weights_open(&weights, folder, &e)) fail_msg("%s", e.text);
    const struct stored_tensor *keys =
        weights_find(weights, "vision_tower.transformer.layers.1.attention.k_proj.weight");
    assert_non_null(keys);
    assert_int_equal(keys->paired, 8);
    assert_int_equal(weights_find(weights, "multi_modal_projector.linear_2.weight")->paired, 0);
    assert_int_equal(weights_count(weights), merges ? 4 : 3);
    weights_close(weights);
}

static void test_pixtral(void **state) {
    (void)state;
    check_pixtral("llama", true);
    check_pixtral("mistral3", true);
    check_pixtral("llama", false);
}

static void refuse_pixtral(const char *key, uint32_t number, bool is_float) {
    struct gguf_draft model = {0}, tower = {0};
    struct gguf *gguf;
    struct buffer text = {0};
    struct error e = {0};
    draft_model(&model, "llama", "[IMG]");
    draft_pixtral(&tower, false);
    if (is_float)
        draft_f32(&tower, key, (float)number);
    else
        draft_u32(&tower, key, number);
    open_drafts(&gguf, &model, &tower);
    assert_int_equal(gguf_write_config(gguf, &text, &e), STATUS_UNSUPPORTED);
    expect_words(&e, key);
    buffer_free(&text);
    gguf_close(gguf);
}

static void test_other_pixtrals(void **state) {
    (void)state;
    struct gguf_draft model = {0}, tower = {0};
    refuse_pixtral("clip.vision.spatial_merge_size", 2, false);
    refuse_pixtral("clip.vision.attention.layer_norm_epsilon", 1, true);
    draft_model(&model, "llama", "[IMG]");
    draft_pixtral(&tower, false);
    draft_f32(&tower, "clip.rope.freq_base", 500);
    refuse_drafts(&model, &tower, "clip.rope.freq_base");
    model = tower = (struct gguf_draft){0};
    draft_model(&model, "gemma3", "[IMG]");
    draft_pixtral(&tower, true);
    refuse_drafts(&model, &tower, "a tower (pixtral) that does not go with");
}

/* Without a tower's file the model reads texts, and no processor is there. */
static void test_alone(void **state) {
    (void)state;
    struct gguf_draft model = {0};
    struct gguf *gguf;
    struct preprocessor processor;
    struct error e = {0};
    char path[FOLDER_PATH_SIZE];
    draft_model(&model, "qwen3vl", "<|image_pad|>");
    write_draft(&model, "model.gguf");
    assert_int_equal(open_pair(&gguf, &e), STATUS_OK);
    assert_null(gguf_joined(gguf));
    struct buffer text = {0};
    assert_int_equal(gguf_write_config(gguf, &text, &e), STATUS_OK);
    struct json *config = parse(&text);
    assert_true(json_text_is(json_member(config, "model_type"), "qwen3_vl"));
    assert_true(json_is_absent(json_member(config, "vision_config")));
    json_close(config);
    buffer_free(&text);
    gguf_close(gguf);
    folder_path(path, folder, "model.gguf");
    assert_int_equal(preprocessor_open(&processor, path, &e), STATUS_NOT_FOUND);
    expect_words(&e, "no file of a vision tower, *mmproj*.gguf");
}

/* A vocabulary that lacks the token of a picture gets it behind its last one. */
static void test_added_token(void **state) {
    (void)state;
    struct gguf_draft model = {0}, tower = {0};
    struct gguf *gguf;
    struct tokenizer *tokenizer;
    struct tokens ids = {0};
    struct buffer text = {0};
    struct error e = {0};
    static const char word[] = "a<image_soft_token>b";
    draft_model(&model, "gemma3", "c");
    draft_gemma(&tower);
    open_drafts(&gguf, &model, &tower);
    assert_int_equal(gguf_write_config(gguf, &text, &e), STATUS_OK);
    struct json *config = parse(&text);
    assert_int_equal(json_int(json_member(config, "image_token_id")), 3);
    json_close(config);
    buffer_free(&text);
    if (tokenizer_open_gguf(&tokenizer, gguf, &e)) fail_msg("%s", e.text);
    if (tokenizer_encode(tokenizer, word, sizeof word - 1, TOKENIZER_PARSE_SPECIAL, &ids, &e))
        fail_msg("%s", e.text);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.ids[1], 3);
    tokens_free(&ids);
    tokenizer_close(tokenizer);
    gguf_close(gguf);
}

static enum status open_weights(struct weights **weights, struct gguf_draft *model,
                                struct gguf_draft *tower, struct error *e) {
    write_draft(model, "model.gguf");
    write_draft(tower, "mmproj-x.gguf");
    return weights_open(weights, folder, e);
}

/* A tensor [2, 3, 4, 4] of numbers of one byte's bits from `first` on. */
static void draft_patches(struct gguf_draft *d, const char *name, uint64_t rows) {
    const uint64_t dims[] = {4, 4, 3, rows};
    d->n_tensors++;
    draft_text(&d->tensors, name);
    draft_number(&d->tensors, 4, 4);
    for (int i = 0; i < 4; i++) draft_number(&d->tensors, dims[i], 8);
    draft_data(d, 0, (size_t)(rows * 3 * 16) * sizeof(float));
}

static void draft_qwen_pair(struct gguf_draft *model, struct gguf_draft *tower) {
    *model = *tower = (struct gguf_draft){0};
    draft_model(model, "qwen3vl", "<|image_pad|>");
    draft_u32(model, "qwen3vl.n_deepstack_layers", 2);
    draft_qwen3(tower);
}

static void test_names(void **state) {
    (void)state;
    struct gguf_draft model, tower;
    struct weights *weights;
    struct error e = {0};
    draft_qwen_pair(&model, &tower);
    draft_patches(&tower, "v.patch_embd.weight", 2);
    draft_patches(&tower, "v.patch_embd.weight.1", 2);
    draft_tensor(&tower, "v.blk.1.attn_qkv.bias", 0, 0, 48, 192);
    draft_tensor(&tower, "v.deepstack.2.fc1.weight", 0, 64, 64, 64 * 64 * 4);
    if (open_weights(&weights, &model, &tower, &e)) fail_msg("%s", e.text);
    assert_non_null(weights_find(weights, "model.embed_tokens.weight"));
    assert_non_null(weights_find(weights, "visual.blocks.1.attn.qkv.bias"));
    assert_non_null(weights_find(weights, "visual.deepstack_merger_list.1.linear_fc1.weight"));
    const struct stored_tensor *patch = weights_find(weights, "visual.patch_embed.proj.weight");
    assert_non_null(patch);
    assert_int_equal(patch->n_dims, 5);
    assert_int_equal(patch->shape[2], 2);
    assert_int_equal(patch->elements, 2 * 3 * 2 * 16);
    const uint8_t *bytes = patch->data;
    for (int piece = 0; piece < 2 * 3 * 2; piece++) /* of a colour and a frame */
        assert_memory_equal(bytes + piece * 64, bytes + piece / 2 * 2 * 64, 64);
    assert_int_equal(bytes[64 * 2], 64);
    weights_close(weights);
}

/* Old converters wrote the products of an MLP under each other's names. */
static void test_exchanged_names(void **state) {
    (void)state;
    struct gguf_draft model = {0}, tower = {0};
    struct weights *weights;
    struct error e = {0};
    draft_model(&model, "gemma3", "<image_soft_token>");
    draft_gemma(&tower);
    draft_tensor(&tower, "v.blk.0.ln1.weight", 0, 0, 16, 64);
    draft_tensor(&tower, "v.blk.0.ffn_down.weight", 0, 24, 16, 24 * 64);
    draft_tensor(&tower, "v.blk.0.ffn_up.weight", 0, 16, 24, 24 * 64);
    if (open_weights(&weights, &model, &tower, &e)) fail_msg("%s", e.text);
    const struct stored_tensor *first =
        weights_find(weights, "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight");
    assert_non_null(first);
    assert_int_equal(first->shape[0], 24);
    weights_close(weights);
}

/* The first files of Qwen2-VL: products under each other's names, and a table without numbers. */
static void test_first_files(void **state) {
    (void)state;
    struct gguf_draft model = {0}, tower = {0};
    struct weights *weights;
    struct gguf *gguf;
    struct buffer text = {0};
    struct error e = {0};
    draft_model(&model, "qwen2vl", "<|image_pad|>");
    draft_tower(&tower, "qwen2vl_merger");
    draft_tensor(&tower, "mm.2.weight", 0, 32, 64, 32 * 64 * 4);
    draft_tensor(&tower, "v.position_embd.weight", 0, 10, 10, 400);
    draft_tensor(&tower, "v.blk.0.ln1.weight", 0, 0, 16, 64);
    draft_tensor(&tower, "v.blk.0.ffn_down.weight", 0, 48, 16, 48 * 64);
    draft_tensor(&tower, "v.blk.0.ffn_up.weight", 0, 16, 48, 48 * 64);
    if (open_weights(&weights, &model, &tower, &e)) fail_msg("%s", e.text);
    assert_int_equal(weights_count(weights), 5);
    assert_int_equal(weights_find(weights, "visual.blocks.0.mlp.fc1.weight")->shape[0], 48);
    weights_close(weights);
    assert_int_equal(open_pair(&gguf, &e), STATUS_OK);
    assert_int_equal(gguf_write_config(gguf, &text, &e), STATUS_OK);
    struct json *config = parse(&text);
    const struct json *vision = json_member(config, "vision_config");
    assert_int_equal(json_int(json_member(vision, "mlp_ratio")), 3);
    assert_int_equal(json_int(json_member(vision, "embed_dim")), 16);
    assert_int_equal(json_int(json_member(vision, "hidden_size")), 32);
    json_close(config);
    buffer_free(&text);
    gguf_close(gguf);
}

static void refuse_weights(struct gguf_draft *model, struct gguf_draft *tower, const char *words) {
    struct weights *weights;
    struct error e = {0};
    assert_int_not_equal(open_weights(&weights, model, tower, &e), STATUS_OK);
    expect_words(&e, words);
}

static void test_tensors_without_a_place(void **state) {
    (void)state;
    struct gguf_draft model, tower;
    static const char *const names[] = {"v.blk.x.ln1.weight", "v.blk.0.attn_q_norm.weight",
                                        "v.blk.0.ln1.scale", "v.class_embd",
                                        "v.blk.99999999.ln1.bias"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        draft_qwen_pair(&model, &tower);
        draft_tensor(&tower, names[i], 0, 0, 16, 64);
        refuse_weights(&model, &tower, "has no place in a tower of qwen3vl_merger");
    }
    draft_qwen_pair(&model, &tower);
    draft_patches(&tower, "v.patch_embd.weight", 2);
    refuse_weights(&model, &tower, "tensor v.patch_embd.weight.1 is missing");
    draft_qwen_pair(&model, &tower);
    draft_patches(&tower, "v.patch_embd.weight", 2);
    draft_patches(&tower, "v.patch_embd.weight.1", 1);
    refuse_weights(&model, &tower, "are no products of patches of one shape and type");
}

/* Fills both drafts; the tower's last words are the caller's. */
static void draft_pair(struct gguf_draft *model, struct gguf_draft *tower) {
    *model = *tower = (struct gguf_draft){0};
    draft_model(model, "gemma3", "<image_soft_token>");
    draft_gemma(tower);
}

/* A tensor of the dimensions, outermost first. */
static void draft_shape(struct gguf_draft *d, const char *name, int n, const uint64_t *dims) {
    size_t numbers = 1;
    d->n_tensors++;
    draft_text(&d->tensors, name);
    draft_number(&d->tensors, (uint64_t)n, 4);
    for (int i = n; i-- > 0;) {
        draft_number(&d->tensors, dims[i], 8);
        numbers *= dims[i];
    }
    draft_data(d, 0, numbers * sizeof(float));
}

/* A model of Gemma 4 with two layers, of which one has a window. */
static void draft_gemma4_model(struct gguf_draft *d, uint32_t layer_inputs) {
    draft_model(d, "gemma4", "<|image|>");
    draft_u32(d, "gemma4.attention.head_count_kv", 1);
    draft_u32(d, "gemma4.attention.key_length", 16);
    draft_u32(d, "gemma4.attention.key_length_swa", 8);
    draft_u32(d, "gemma4.attention.sliding_window", 8);
    draft_u32(d, "gemma4.embedding_length_per_layer_input", layer_inputs);
    draft_u32(d, "tokenizer.ggml.padding_token_id", 1);
    draft_list(d, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, 2);
    draft_number(&d->keys, 1, 1);
    draft_number(&d->keys, 0, 1);
}

/* Two heads of 8 with one of keys, and tables of 40 columns and lines. */
static void draft_gemma4(struct gguf_draft *d, uint64_t tables, uint64_t key_rows) {
    const uint64_t patch[] = {16, 3, 4, 4}, table[] = {tables, 40, 16}, one[] = {1};
    draft_tower(d, "gemma4v");
    draft_shape(d, "v.patch_embd.weight", 4, patch);
    draft_shape(d, "v.position_embd.weight", 3, table);
    draft_tensor(d, "v.blk.0.attn_q.weight", 0, 16, 16, 16 * 64);
    draft_tensor(d, "v.blk.0.attn_k.weight", 0, key_rows, 16, key_rows * 64);
    draft_shape(d, "v.blk.0.attn_q.input_max", 1, one);
    draft_tensor(d, "mm.input_projection.weight", 0, 32, 16, 32 * 64);
}

static void draft_gemma4_pair(struct gguf_draft *model, struct gguf_draft *tower) {
    *model = *tower = (struct gguf_draft){0};
    draft_gemma4_model(model, 0);
    draft_gemma4(tower, 2, 8);
}

/* The files of the small models have a tower of sound, too. */
static void draft_sound(struct gguf_draft *d) {
    draft_key(d, "clip.has_audio_encoder", GGUF_BOOL);
    draft_number(&d->keys, 1, 1);
    draft_word(d, "clip.audio.projector_type", "gemma4a");
    draft_u32(d, "clip.audio.block_count", 12);
    draft_tensor(d, "a.blk.0.attn_q.weight", 0, 16, 16, 16 * 64);
    draft_tensor(d, "mm.a.input_projection.weight", 0, 32, 16, 32 * 64);
}

static void check_gemma4_config(const struct gguf *gguf, bool linked) {
    struct buffer text = {0};
    struct error e = {0};
    if (gguf_write_config(gguf, &text, &e)) fail_msg("%s", e.text);
    struct json *config = parse(&text);
    const struct json *vision = json_member(config, "vision_config"),
                      *inner = json_member(config, "text_config");
    assert_true(json_text_is(json_member(config, "model_type"), "gemma4"));
    assert_int_equal(json_int(json_member(config, "image_token_id")), 2);
    assert_int_equal(json_int(json_member(inner, "pad_token_id")), 1);
    assert_true(linked ==
                json_text_is(json_member(inner, "use_bidirectional_attention"), "vision"));
    assert_int_equal(json_int(json_member(vision, "head_dim")), 8);
    assert_int_equal(json_int(json_member(vision, "num_key_value_heads")), 1);
    assert_int_equal(json_int(json_member(vision, "position_embedding_size")), 40);
    assert_int_equal(json_int(json_member(vision, "pooling_kernel_size")), 3);
    assert_true(json_bool(json_member(vision, "use_clipped_linears")));
    assert_false(json_bool(json_member(vision, "standardize")));
    json_close(config);
    buffer_free(&text);
}

static void test_gemma4(void **state) {
    (void)state;
    for (uint32_t layer_inputs = 0; layer_inputs <= 8; layer_inputs += 8) {
        struct gguf_draft model = {0}, tower = {0};
        struct gguf *gguf;
        draft_gemma4_model(&model, layer_inputs);
        draft_gemma4(&tower, 2, 8);
        draft_sound(&tower);
        open_drafts(&gguf, &model, &tower);
        check_gemma4_config(gguf, layer_inputs == 0);
        gguf_close(gguf);
    }
}

/* Pixels with their colours, where the file has planes of colours; a bound is one number. */
static void test_gemma4_tensors(void **state) {
    (void)state;
    struct gguf_draft model, tower;
    struct weights *weights;
    struct error e = {0};
    draft_gemma4_pair(&model, &tower);
    draft_sound(&tower);
    if (open_weights(&weights, &model, &tower, &e)) fail_msg("%s", e.text);
    assert_int_equal(weights_count(weights), 7);
    const struct stored_tensor *patch =
        weights_find(weights, "model.vision_tower.patch_embedder.input_proj.weight");
    assert_non_null(patch);
    assert_int_equal(patch->n_dims, 2);
    assert_int_equal(patch->shape[1], 48);
    const uint8_t *bytes = patch->data;
    for (int i = 0; i < 16 * 48; i++) {
        int row = i / 48, color = i % 3, pixel = i % 48 / 3;
        assert_int_equal(bytes[4 * i], (uint8_t)(4 * (48 * row + 16 * color + pixel)));
    }
    const struct stored_tensor *bound =
        weights_find(weights, "model.vision_tower.encoder.layers.0.self_attn.q_proj.input_max");
    assert_non_null(bound);
    assert_int_equal(bound->n_dims, 0);
    weights_close(weights);
}

static void test_gemma4_processor(void **state) {
    (void)state;
    struct gguf_draft model, tower;
    struct preprocessor processor;
    struct error e = {0};
    char path[FOLDER_PATH_SIZE];
    folder_path(path, folder, "model.gguf");
    draft_gemma4_pair(&model, &tower);
    write_draft(&model, "model.gguf");
    write_draft(&tower, "mmproj-x.gguf");
    if (preprocessor_open(&processor, path, &e)) fail_msg("%s", e.text);
    assert_int_equal(processor.kind, PREPROCESSOR_GEMMA4);
    assert_int_equal(processor.most_tokens, 280);
    assert_true(processor.normalize); /* colours of another mean than 0 */

    draft_gemma4_pair(&model, &tower);
    draft_free(&model);
    draft_u32(&tower, "clip.vision.image_max_pixels", 70 * 12 * 12 + 1);
    write_draft(&tower, "mmproj-x.gguf");
    if (preprocessor_open(&processor, path, &e)) fail_msg("%s", e.text);
    assert_int_equal(processor.most_tokens, 70);

    draft_gemma4_pair(&model, &tower);
    draft_free(&model);
    draft_u32(&tower, "clip.vision.image_max_pixels", 0);
    write_draft(&tower, "mmproj-x.gguf");
    assert_int_not_equal(preprocessor_open(&processor, path, &e), STATUS_OK);
    expect_words(&e, "\"clip.vision.image_max_pixels\" is no number of pixels");
}

static void refuse_gemma4(struct gguf_draft *tower, const char *words) {
    struct gguf_draft model = {0};
    struct gguf *gguf;
    struct buffer text = {0};
    struct error e = {0};
    draft_gemma4_model(&model, 0);
    open_drafts(&gguf, &model, tower);
    assert_int_not_equal(gguf_write_config(gguf, &text, &e), STATUS_OK);
    expect_words(&e, words);
    buffer_free(&text);
    gguf_close(gguf);
}

static void test_other_gemma4s(void **state) {
    (void)state;
    struct gguf_draft model, tower = {0};
    draft_gemma4(&tower, 3, 8);
    refuse_gemma4(&tower, "v.position_embd.weight is missing, or not one table of columns");
    tower = (struct gguf_draft){0};
    draft_gemma4(&tower, 2, 12);
    refuse_gemma4(&tower, "queries of 16 rows and keys of 12 in 2 heads");
    tower = (struct gguf_draft){0};
    draft_tower(&tower, "gemma4v");
    draft_tensor(&tower, "mm.input_projection.weight", 0, 32, 16, 32 * 64);
    refuse_gemma4(&tower, "tensor v.blk.0.attn_q.weight is missing or no matrix");

    model = tower = (struct gguf_draft){0};
    draft_gemma4_model(&model, 0);
    draft_tower(&tower, "gemma4v");
    draft_tensor(&tower, "v.patch_embd.weight", 0, 16, 48, 16 * 48 * 4);
    draft_tensor(&tower, "mm.input_projection.weight", 0, 32, 16, 32 * 64);
    refuse_weights(&model, &tower, "\"v.patch_embd.weight\" is no product of patches");
    draft_gemma4_pair(&model, &tower);
    draft_tensor(&tower, "v.blk.0.attn_q.input_mid", 0, 0, 1, 4);
    refuse_weights(&model, &tower, "\"v.blk.0.attn_q.input_mid\" has no place in a tower");
    draft_pair(&model, &tower);
    draft_tensor(&tower, "a.blk.0.attn_q.weight", 0, 16, 16, 16 * 64);
    refuse_weights(&model, &tower, "\"a.blk.0.attn_q.weight\" has no place in a tower of gemma3");
}

/* LLaVA 1.6: `n` numbers of pinpoints, each of them `side`. */
static void draft_llava_next(struct gguf_draft *d, uint64_t n, uint32_t side) {
    draft_tower(d, "mlp");
    draft_list(d, "clip.vision.image_grid_pinpoints", GGUF_I32, n);
    for (uint64_t i = 0; i < n; i++) draft_number(&d->keys, side, 4);
    draft_tensor(d, "mm.2.weight", 0, 32, 32, 32 * 32 * 4);
}

static void test_llava_next(void **state) {
    (void)state;
    static const char *const names[] = {"model.image_newline", "v.image_newline"};
    char path[FOLDER_PATH_SIZE];
    folder_path(path, folder, "model.gguf");
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct gguf_draft model = {0}, tower = {0};
        struct weights *weights;
        struct preprocessor processor;
        struct error e = {0};
        draft_model(&model, "llama", "<image>");
        draft_llava_next(&tower, 4, 64);
        draft_word(&tower, "clip.vision.image_aspect_ratio", "anyres");
        draft_word(&tower, "clip.vision.mm_patch_merge_type", "spatial_unpad");
        draft_tensor(&tower, names[i], 0, 0, 32, 32 * 4);
        if (open_weights(&weights, &model, &tower, &e)) fail_msg("%s", e.text);
        assert_non_null(weights_find(weights, "image_newline"));
        weights_close(weights);
        if (preprocessor_open(&processor, path, &e)) fail_msg("%s", e.text);
        assert_int_equal(processor.kind, PREPROCESSOR_LLAVA_NEXT);
        assert_int_equal(processor.grid_count, 2);
        assert_int_equal(processor.grids[1].width, 64);
    }
}

static void refuse_grids(uint64_t n, uint32_t side, const char *words) {
    struct gguf_draft model = {0}, tower = {0};
    struct preprocessor processor;
    struct error e = {0};
    char path[FOLDER_PATH_SIZE];
    folder_path(path, folder, "model.gguf");
    draft_model(&model, "llama", "<image>");
    draft_llava_next(&tower, n, side);
    write_draft(&model, "model.gguf");
    write_draft(&tower, "mmproj-x.gguf");
    assert_int_not_equal(preprocessor_open(&processor, path, &e), STATUS_OK);
    expect_words(&e, words);
}

static void refuse_next(const char *key, const char *word) {
    struct gguf_draft model = {0}, tower = {0};
    draft_model(&model, "llama", "<image>");
    draft_llava_next(&tower, 4, 64);
    draft_word(&tower, key, word);
    refuse_drafts(&model, &tower, key);
}

static void test_other_llava_nexts(void **state) {
    (void)state;
    refuse_next("clip.vision.image_aspect_ratio", "anyres_max_9");
    refuse_next("clip.vision.mm_patch_merge_type", "flat");
    refuse_next("clip.vision.mm_projector_type", "ldp");
    refuse_grids(3, 64, "is no list of some pairs of sides");
    refuse_grids(0, 64, "is no list of some pairs of sides");
    refuse_grids(4096, 64, "is no list of some pairs of sides");
    refuse_grids(4, 0, "image_grid_pinpoints");
    refuse_grids(4, UINT32_MAX, "image_grid_pinpoints");
    refuse_grids(4, 48, "no multiple of the tile");
}

static void test_refused_pairs(void **state) {
    (void)state;
    struct gguf_draft model, tower;
    draft_pair(&model, &tower);
    draft_u32(&tower, "clip.vision.new_idea", 1);
    refuse_drafts(&model, &tower,
                  "\"clip.vision.new_idea\" is not known for gemma3, and may change results");
    draft_pair(&model, &tower);
    draft_u32(&tower, "clip.new_idea", 1);
    refuse_drafts(&model, &tower, "\"clip.new_idea\" is not known");
    draft_pair(&model, &tower);
    draft_u32(&tower, "clip.has_audio_encoder", 1);
    refuse_drafts(&model, &tower, "\"clip.has_audio_encoder\" has a value that is not supported");

    draft_pair(&model, &tower);
    draft_free(&tower);
    tower = (struct gguf_draft){0};
    draft_tower(&tower, "resampler");
    refuse_drafts(&model, &tower,
                  "clip.projector_type \"resampler\" is missing or unknown; known: gemma3");
    draft_pair(&model, &tower);
    draft_free(&tower);
    tower = (struct gguf_draft){0};
    draft_tower(&tower, "gemma3");
    draft_tensor(&tower, "mm.input_projection.weight", 0, 16, 48, 16 * 48 * 4);
    refuse_drafts(&model, &tower, "makes rows of 48 numbers, ");
    draft_pair(&model, &tower);
    draft_free(&tower);
    tower = (struct gguf_draft){0};
    draft_tower(&tower, "gemma3");
    refuse_drafts(&model, &tower, "tensor mm.input_projection.weight is missing or no matrix");
    draft_pair(&model, &tower);
    draft_free(&tower);
    tower = (struct gguf_draft){0};
    draft_word(&tower, "general.architecture", "clip");
    draft_word(&tower, "clip.projector_type", "gemma3");
    refuse_drafts(&model, &tower, "is absent or no size");

    draft_pair(&model, &tower);
    draft_free(&model);
    model = (struct gguf_draft){0};
    draft_model(&model, "llama", "c");
    refuse_drafts(&model, &tower, "is a tower (gemma3) that does not go with ");
    draft_qwen_pair(&model, &tower);
    draft_free(&model);
    model = (struct gguf_draft){0};
    draft_model(&model, "qwen3vl", "c");
    draft_u32(&model, "qwen3vl.n_deepstack_layers", 3);
    refuse_drafts(&model, &tower, "adds rows behind 2 layers, ");
    draft_pair(&model, &tower);
    draft_free(&tower);
    tower = (struct gguf_draft){0};
    draft_model(&tower, "gemma3", "c");
    refuse_drafts(&model, &tower, "general.architecture is not \"clip\": this is no vision tower");
}

static void test_several_towers(void **state) {
    (void)state;
    struct gguf_draft model, tower, other = {0};
    draft_pair(&model, &tower);
    draft_gemma(&other);
    write_draft(&other, "model-mmproj-a.gguf");
    refuse_drafts(
        &model, &tower,
        "2 files could be the vision tower of model.gguf: mmproj-x.gguf, model-mmproj-a.gguf");
}

/* Gemma's tower with a matrix of the type. */
static void write_tower(const char *name, uint32_t type, size_t bytes) {
    struct gguf_draft tower = {0};
    draft_tower(&tower, "gemma3");
    draft_u32(&tower, "clip.vision.projector.scale_factor", 2);
    draft_tensor(&tower, "mm.input_projection.weight", type, 16, 32, bytes);
    write_draft(&tower, name);
}

static void expect_tower(const char *name, int left) {
    struct gguf *gguf;
    struct error e = {0};
    if (open_pair(&gguf, &e)) fail_msg("%s", e.text);
    assert_non_null(gguf_joined(gguf));
    assert_true(ends_with(gguf_name(gguf_joined(gguf)), name));
    assert_int_equal(gguf_left_towers(gguf), left);
    gguf_close(gguf);
}

/* Of one tower in several precisions it is the one that loses least, whatever its name. */
static void test_precisions(void **state) {
    (void)state;
    enum { NUMBERS = 16 * 32, F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };
    struct gguf_draft model = {0};
    struct gguf *gguf;
    struct error e = {0};
    draft_model(&model, "gemma3", "<image_soft_token>");
    write_draft(&model, "model.gguf");
    write_tower("model.mmproj-Q8_0.gguf", Q8_0, NUMBERS / 32 * 34);
    expect_tower("Q8_0.gguf", 0);
    write_tower("model.mmproj-BF16.gguf", BF16, NUMBERS * 2);
    expect_tower("BF16.gguf", 1);
    write_tower("model.mmproj-fp16.gguf", F16, NUMBERS * 2);
    expect_tower("fp16.gguf", 2);
    write_tower("model.mmproj-IQ4_NL.gguf", F32, NUMBERS * 4);
    expect_tower("IQ4_NL.gguf", 3);
    write_tower("model.mmproj-F16b.gguf", F16, NUMBERS * 2);
    assert_int_equal(open_pair(&gguf, &e), STATUS_INVALID);
    expect_words(&e, "5 files could be the vision tower of model.gguf");
}

/* Of two towers one goes with the model; where none does and another model is there, it has none.
 */
static void test_towers_of_others(void **state) {
    (void)state;
    struct gguf_draft model, tower, other = {0};
    struct gguf *gguf;
    struct error e = {0};
    draft_pair(&model, &tower);
    draft_qwen3(&other);
    write_draft(&other, "mmproj-other.gguf");
    open_drafts(&gguf, &model, &tower);
    assert_non_null(gguf_joined(gguf));
    assert_int_equal(gguf_left_towers(gguf), 0);
    gguf_close(gguf);

    model = other = (struct gguf_draft){0};
    draft_model(&model, "llama", "c");
    write_draft(&model, "model.gguf");
    assert_int_not_equal(open_pair(&gguf, &e), STATUS_OK);
    expect_words(&e, "does not go with");
    draft_model(&other, "llama", "c");
    write_draft(&other, "another-00001-of-00002.gguf");
    e = (struct error){0};
    if (open_pair(&gguf, &e)) fail_msg("%s", e.text);
    assert_null(gguf_joined(gguf));
    assert_int_equal(gguf_left_towers(gguf), 2);
    gguf_close(gguf);
}

static void test_an_empty_file(void **state) {
    (void)state;
    struct gguf_draft model, tower;
    struct gguf *gguf;
    struct error e = {0};
    draft_pair(&model, &tower);
    write_draft(&model, "model.gguf");
    draft_free(&tower);
    folder_write(folder, "mmproj.gguf", "", 0);
    assert_int_equal(open_pair(&gguf, &e), STATUS_CORRUPT);
    expect_words(&e, "mmproj.gguf: an empty file is no GGUF file");
}

static void test_a_tower_as_the_model(void **state) {
    (void)state;
    struct gguf_draft tower = {0};
    struct gguf *gguf;
    struct error e = {0};
    draft_gemma(&tower);
    write_draft(&tower, "model.gguf");
    assert_int_equal(open_pair(&gguf, &e), STATUS_INVALID);
    expect_words(&e, "is the file of a vision tower: name that of the model");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_gemma),
        TEST(test_qwen3),
        TEST(test_pixtral),
        TEST(test_other_pixtrals),
        TEST(test_alone),
        TEST(test_added_token),
        TEST(test_names),
        TEST(test_exchanged_names),
        TEST(test_gemma4),
        TEST(test_gemma4_tensors),
        TEST(test_gemma4_processor),
        TEST(test_other_gemma4s),
        TEST(test_llava_next),
        TEST(test_other_llava_nexts),
        TEST(test_refused_pairs),
        TEST(test_tensors_without_a_place),
        TEST(test_several_towers),
        TEST(test_precisions),
        TEST(test_a_tower_as_the_model),
        TEST(test_first_files),
        TEST(test_an_empty_file),
        TEST(test_towers_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
