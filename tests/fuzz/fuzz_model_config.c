/* tests/fuzz/fuzz_model_config.c: any bytes as the config.json of every family: what is accepted
 * has the sizes that loading trusts, and a layer of each number. */
#include "retro/model/model_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_stack(const struct family *f, const struct model_spec *s, enum stack_id id) {
    const struct dims *d = &s->stacks[id];
    if (d->n_layers == 0) return;
    CHECK(d->n_layers <= MAX_LAYERS && d->heads > 0 && d->kv_heads > 0 &&
          d->heads % d->kv_heads == 0);
    CHECK(d->head_dim > 0 && d->head_dim <= ATTENTION_MAX_HEAD && d->rotated >= 0 &&
          d->rotated <= d->head_dim);
    CHECK(d->wide_head_dim >= 0 && d->wide_head_dim % 2 == 0 &&
          d->wide_head_dim <= ATTENTION_MAX_HEAD);
    CHECK(d->wide_head_dim == 0 || (d->wide_kv_heads > 0 && d->heads % d->wide_kv_heads == 0));
    CHECK(d->layer_input == 0 || s->input_vocab == 0 || s->input_vocab >= s->vocab);
    CHECK(d->rotated % 2 == 0 && d->epsilon > 0 && d->hidden > 0 && d->ffn > 0);
    for (int i = 0; i < d->rotated / 2; i++)
        CHECK(d->rope_sections == 0 || d->rope_section[i] < d->rope_sections);
    for (int i = 0; i < d->n_layers; i++) {
        const struct family *of = s->parts[id].family ? s->parts[id].family : f;
        struct layer_spec l = of->layer(s, id, i);
        CHECK(l.window >= 0 && l.chunk >= 0 && (int)l.frequencies < ROPE_COUNT);
        CHECK(!l.reuses || (l.source >= 0 && l.source < i && !of->layer(s, id, l.source).reuses));
        CHECK(!l.wide_heads || d->wide_head_dim > 0);
        CHECK(!l.wide_mlp || d->wide_ffn > 0);
    }
}

static void check_tower(const struct model_spec *s) {
    const struct tower_spec *t = &s->tower;
    const struct projector_spec *p = &s->projector;
    if (s->stacks[STACK_TOWER].n_layers == 0) return;
    const struct dims *d = &s->stacks[STACK_TOWER];
    bool table = t->table_h > 0 && t->table_w > 0;
    CHECK(t->patch > 0 && t->patch <= LIMIT_PATCH && t->class_tokens >= 0 &&
          (table || d->rope_sections == 2));
    CHECK(t->attended >= 0 && t->attended % 2 == 0 && (t->attended == 0 || t->oblong));
    CHECK(t->image_h % t->patch == 0 && t->image_w % t->patch == 0 && t->layers >= 0);
    CHECK(t->layers <= s->stacks[STACK_TOWER].n_layers && (p->out == 0 || p->in > 0));
    CHECK(t->n_deepstack >= 0 && t->n_deepstack <= MAX_DEEPSTACK && (!t->stretches || table));
    for (int i = 0; i < t->n_deepstack; i++)
        CHECK(t->deepstack[i] >= 0 && t->deepstack[i] < s->stacks[STACK_TOWER].n_layers);
}

static void check(const struct family *f, const struct json *config) {
    struct model_spec s = model_spec_default();
    struct error e = {0};
    enum status status = f->read(config, &s, &e);
    if (status) {
        CHECK(e.status == status && e.text[0] != '\0');
        return;
    }
    CHECK((s.vocab > 0 || s.stacks[STACK_DECODER].n_layers == 0) && s.padded_vocab >= s.vocab &&
          s.window >= 0);
    check_tower(&s);
    for (int id = 0; id < STACK_COUNT; id++) check_stack(f, &s, (enum stack_id)id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json *config = NULL;
    struct error e = {0};
    if (json_parse(&config, (struct text_span){(const char *)data, size}, "config.json", &e))
        return 0;
    for (size_t i = 0; i < model_family_count; i++) check(model_families[i], config);
    json_close(config);
    return 0;
}
