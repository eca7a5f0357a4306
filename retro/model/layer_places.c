/* retro/model/layer_places.c: the weights that a layer has by its shape. See layer_places.h. */
#include "retro/model/layer_places.h"

#include "retro/model/tensor_shapes.h"

static bool is_cross(size_t place) {
    return place == offsetof(struct layer, norm_cross) ||
           place == offsetof(struct layer, cross_q) || place == offsetof(struct layer, cross_kv) ||
           place == offsetof(struct layer, cross_proj);
}

static bool is_expert(size_t place) {
    return place == offsetof(struct layer, router) || place == offsetof(struct layer, expert_fc1) ||
           place == offsetof(struct layer, expert_fc2);
}

static bool is_around_experts(size_t place) {
    return place == offsetof(struct layer, experts_in) ||
           place == offsetof(struct layer, experts_out);
}

static bool is_shared_expert(size_t place) {
    return place == offsetof(struct layer, shared_gate) ||
           place == offsetof(struct layer, shared_fc1) ||
           place == offsetof(struct layer, shared_fc2);
}

/* Whether mixers that keep states have the place. */
static bool state_has_place(const struct state_dims *state, size_t place) {
    if (place == offsetof(struct layer, state_gates)) return state->mixer == MIXER_DELTA;
    if (place == offsetof(struct layer, state_skip)) return state->mixer == MIXER_SPACE;
    if (place == offsetof(struct layer, state_filter_bias)) return state->filter_bias;
    bool heads = state->mixer != MIXER_CONVOLUTION;
    if (place == offsetof(struct layer, state_rate)) return heads;
    if (place == offsetof(struct layer, state_bias)) return heads;
    return heads || place != offsetof(struct layer, state_norm);
}

static bool is_state(size_t place) {
    static const size_t places[] = {
        offsetof(struct layer, state_in),   offsetof(struct layer, state_gates),
        offsetof(struct layer, state_out),  offsetof(struct layer, state_filter),
        offsetof(struct layer, state_rate), offsetof(struct layer, state_filter_bias),
        offsetof(struct layer, state_bias), offsetof(struct layer, state_skip),
        offsetof(struct layer, state_norm)};
    for (size_t i = 0; i < ARRAY_COUNT(places); i++)
        if (places[i] == place) return true;
    return false;
}

static bool is_latent(size_t place) {
    return place == offsetof(struct layer, latent_in) ||
           place == offsetof(struct layer, norm_latent) ||
           place == offsetof(struct layer, latent_query) ||
           place == offsetof(struct layer, latent_keys) ||
           place == offsetof(struct layer, latent_values);
}

static bool is_latent_query_in(size_t place) {
    return place == offsetof(struct layer, latent_query_in) ||
           place == offsetof(struct layer, norm_latent_query);
}

static bool attends_latents(const struct layer *layer) {
    return layer->spec.latent && layer->spec.mixer == MIXER_ATTENTION;
}

/* A place of self attention, which a layer with another mixer lacks. */
static bool is_attention(size_t place) {
    return place == offsetof(struct layer, qkv) || place == offsetof(struct layer, proj) ||
           place == offsetof(struct layer, norm_q) || place == offsetof(struct layer, norm_k) ||
           place == offsetof(struct layer, sinks);
}

static bool is_beside(size_t place) {
    return place == offsetof(struct layer, norm_router) ||
           place == offsetof(struct layer, norm_experts) ||
           place == offsetof(struct layer, norm_experts_out) ||
           place == offsetof(struct layer, norm_dense_out);
}

static bool is_xielu(size_t place) {
    return place == offsetof(struct layer, xielu_positive) ||
           place == offsetof(struct layer, xielu_negative) ||
           place == offsetof(struct layer, xielu_slope) ||
           place == offsetof(struct layer, xielu_least);
}

/* A place of the layer's MLP. */
static bool is_mlp(size_t place) {
    return place == offsetof(struct layer, norm_mlp) || place == offsetof(struct layer, norm_out) ||
           place == offsetof(struct layer, fc1) || place == offsetof(struct layer, fc2) ||
           place == offsetof(struct layer, router_bias) ||
           place == offsetof(struct layer, router_scale) || is_expert(place) ||
           is_around_experts(place) || is_shared_expert(place) || is_beside(place) ||
           is_xielu(place);
}

static bool mlp_has_place(const struct layer *layer, const struct dims *dims, size_t place) {
    if (layer->spec.without_mlp) return false;
    if (place == offsetof(struct layer, norm_out)) return !layer->spec.leaves_bare;
    if (place == offsetof(struct layer, norm_mlp)) return !layer->spec.reads_bare;
    if (is_xielu(place)) return dims->xielu && !layer->spec.experts;
    if (is_expert(place)) return layer->spec.experts;
    if (is_around_experts(place)) return layer->spec.experts && dims->expert_width > 0;
    if (place == offsetof(struct layer, router_bias))
        return layer->spec.experts && dims->router_bias;
    if (place == offsetof(struct layer, router_scale))
        return layer->spec.experts && dims->experts_scaled;
    if (is_beside(place)) return layer->spec.experts && dims->experts_beside;
    if (place == offsetof(struct layer, shared_gate) && !dims->shared_gated) return false;
    if (is_shared_expert(place)) return layer->spec.experts && dims->shared_ffn > 0;
    if (place == offsetof(struct layer, fc1) || place == offsetof(struct layer, fc2))
        return !layer->spec.experts || dims->experts_beside;
    return true;
}

static bool is_input(size_t place) {
    return place == offsetof(struct layer, input_gate) ||
           place == offsetof(struct layer, input_proj) ||
           place == offsetof(struct layer, norm_input);
}

static bool is_apart(size_t place) {
    return place == offsetof(struct layer, keys) || place == offsetof(struct layer, values) ||
           place == offsetof(struct layer, up) || layer_place_is_clip(place);
}

bool layer_has_place(const struct layer *layer, const struct dims *dims, size_t place) {
    enum mixer mixer = layer->spec.mixer;
    if (is_mlp(place)) return mlp_has_place(layer, dims, place);
    if (is_input(place)) return dims->layer_input > 0;
    if (is_apart(place)) return layer->spec.clipped;
    if (place == offsetof(struct layer, scale)) return dims->layer_scaled;
    if (place == offsetof(struct layer, norm_k) && layer->spec.reuses) return false;
    if (is_attention(place) && mixer != MIXER_ATTENTION) return false;
    if (is_latent(place)) return attends_latents(layer);
    if (is_latent_query_in(place)) return attends_latents(layer) && dims->latent.query_rank > 0;
    if (place == offsetof(struct layer, qkv)) return !layer->spec.latent;
    if (is_state(place)) return mixer_keeps_state(mixer) && state_has_place(&dims->state, place);
    if (place == offsetof(struct layer, norm_q) || place == offsetof(struct layer, norm_k))
        return dims->qk_norm != QK_NORM_NONE;
    if (place == offsetof(struct layer, norm_in))
        return mixer != MIXER_NONE && !layer->spec.enters_bare && !layer->spec.reads_bare;
    if (place == offsetof(struct layer, norm_attention)) return !layer->spec.leaves_bare;
    if (place == offsetof(struct layer, sinks)) return dims->sinks;
    return layer->spec.cross || !is_cross(place);
}
