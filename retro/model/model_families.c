/* retro/model/model_families.c: the list of all families; a folder is of one of them (spec.h). */
#include <string.h>

#include "retro/model/spec.h"

const struct family *const model_families[] = {&family_retro,
                                               &family_gpt,
                                               &family_bert,
                                               &family_megatron_t5,
                                               &family_t5,
                                               &family_gpt2,
                                               &family_gpt_neox,
                                               &family_llama,
                                               &family_mistral,
                                               &family_qwen2,
                                               &family_qwen3,
                                               &family_phi3,
                                               &family_gemma2,
                                               &family_gemma3_text,
                                               &family_olmo2,
                                               &family_olmo3,
                                               &family_glm,
                                               &family_glm4,
                                               &family_seed_oss,
                                               &family_ministral3,
                                               &family_hunyuan_dense,
                                               &family_ernie,
                                               &family_ernie_moe,
                                               &family_glm4_moe,
                                               &family_minimax_m2,
                                               &family_gpt_oss,
                                               &family_cohere2,
                                               &family_granite,
                                               &family_smollm3,
                                               &family_starcoder2,
                                               &family_mixtral,
                                               &family_qwen2_moe,
                                               &family_qwen3_moe,
                                               &family_qwen3_next,
                                               &family_qwen3_5,
                                               &family_qwen3_5_text,
                                               &family_qwen3_5_moe,
                                               &family_qwen3_5_moe_text,
                                               &family_lfm2,
                                               &family_lfm2_moe,
                                               &family_granite_hybrid,
                                               &family_nemotron_h,
                                               &family_modernbert,
                                               &family_nomic_bert,
                                               &family_roberta,
                                               &family_xlm_roberta,
                                               &family_mpnet,
                                               &family_distilbert,
                                               &family_clip_vit,
                                               &family_radio_vit,
                                               &family_radio_hub,
                                               &family_projector,
                                               &family_llava_mcore,
                                               &family_clip_vision,
                                               &family_siglip_vision,
                                               &family_qwen2_vl_vision,
                                               &family_qwen2_5_vl_vision,
                                               &family_llava,
                                               &family_llava_next,
                                               &family_qwen2_vl,
                                               &family_qwen2_5_vl,
                                               &family_clip,
                                               &family_siglip,
                                               &family_megatron_bert,
                                               &family_megatron_bert_hf};
const size_t model_family_count = ARRAY_COUNT(model_families);

const struct family *family_of_type(const char *model_type) {
    for (size_t i = 0; i < model_family_count; i++) {
        const char *type = model_families[i]->model_type;
        if (model_type && type && strcmp(type, model_type) == 0) return model_families[i];
    }
    return NULL;
}
