/* retro/weights/gguf_rows.h: the rows that architectures of GGUF share, for the files that list
 * them.
 */
#pragma once

#include "retro/weights/gguf_architectures.h"

#define ROWS(a) a, ARRAY_COUNT(a)

/* llama.cpp's base of RoPE is 10000 where a file does not tell; families differ. */
#define SIZES(epsilon, epsilon_name) \
    {"block_count", "num_hidden_layers", KEY_LAYERS, 0}, \
        {"context_length", "max_position_embeddings", KEY_INT, 0}, \
        {"embedding_length", "hidden_size", KEY_INT, 0}, \
        {"feed_forward_length", "intermediate_size", KEY_INT, 0}, \
        {"attention.head_count", "num_attention_heads", KEY_INT, 0}, \
        {"attention.head_count_kv", "num_key_value_heads", KEY_INT, 0}, \
        {"attention.key_length", "head_dim", KEY_INT, 0}, \
        {"attention.value_length", NULL, KEY_HEAD, 0}, {epsilon, epsilon_name, KEY_FLOAT, 0}, { \
        "rope.freq_base", "rope_theta", KEY_FLOAT, 10000 \
    }
/* Of an encoder, whose tokens see those behind them. */
#define ENCODER_SIZES \
    {"block_count", "num_hidden_layers", KEY_INT, 0}, \
        {"context_length", "max_position_embeddings", KEY_INT, 0}, \
        {"embedding_length", "hidden_size", KEY_INT, 0}, \
        {"feed_forward_length", "intermediate_size", KEY_INT, 0}, \
        {"attention.head_count", "num_attention_heads", KEY_INT, 0}, { \
        "attention.causal", NULL, KEY_NEUTRAL, 0 \
    }
#define WHOLE_HEADS \
    { "rope.dimension_count", NULL, KEY_HEAD, 0 }
#define RMS_SIZES SIZES("attention.layer_norm_rms_epsilon", "rms_norm_eps")

#define EXPERTS(count) \
    {"expert_count", count, KEY_INT, 0}, { "expert_used_count", "num_experts_per_tok", KEY_INT, 0 }

#define TIED \
    { "tie_word_embeddings", "output.weight", .absent = true }

/* llama.cpp's converter adds the 1 to the weights of norms. */
#define AROUND_ONE \
    { "zero_centered_norms", "", false }
/* It also writes the decay of heads with states as the rate that it is. */
#define PLAIN_RATE \
    { "logarithmic_decay", "", false }

/* GGUF's and Hugging Face's name, keys, facts. */
#define ARCHITECTURE(kind, type, keys_of, facts_of) \
    .name = (kind), .model_type = (type), .keys = (keys_of), .n_keys = ARRAY_COUNT(keys_of), \
    .facts = (facts_of), .n_facts = ARRAY_COUNT(facts_of)
