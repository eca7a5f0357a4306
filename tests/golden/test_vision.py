"""Towers, projectors and LLaVA against Megatron-Core's rows and logits, through retro-eval parity."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from cpu_variants import find_variants
from stored_tensors import keep_tensors, rename_tensors, turn_tensors

EVAL = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-eval"
CONVERT = EVAL.with_name("retro-convert")
GOLDEN = ROOT / "tests/golden/vision"
FOLDERS = sorted(p.parent for p in GOLDEN.glob("*/config.json"))
LLAVA = [f for f in FOLDERS if f.name.startswith("llava")]
QWEN = [GOLDEN / name for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")]
# Rows that were rounded choose other experts, or are products of products behind norms. Measured: 3.3, 0.84, 0.21, 1.1, 0.50.
WIDER = {("qwen3_vl_moe", "int8"): 4, ("qwen3_5", "int8"): 2, ("qwen3_5", "bf16"): 0.5, ("qwen3_5_moe", "int8"): 4,
         ("qwen3_5_moe", "bf16"): 2, ("gemma4_a", "int8"): 1, ("gemma4_a", "bf16"): 1, ("gemma4_b", "int8"): 4,
         ("gemma4_b", "bf16"): 4}
GEMMA = [GOLDEN / "gemma3_a", GOLDEN / "gemma3_b"]
MISTRAL = [GOLDEN / "mistral3", GOLDEN / "ministral3_vl", GOLDEN / "mistral4_vl", GOLDEN / "pixtral"]
GEMMA_4 = [GOLDEN / "gemma4_a", GOLDEN / "gemma4_b"]
VARIANTS = find_variants(EVAL, ROOT / "tests/golden/retro/case_a")


def parity(*arguments, cpu=None):
    environment = dict(os.environ, **({"RETRO_CPU": cpu} if cpu else {}))
    return subprocess.run([EVAL, "parity", *map(str, arguments)], env=environment, capture_output=True, text=True)


def worst_of(done):
    return max(float(word.split("=")[1]) for word in done.stdout.split() if word.startswith("max_abs="))


@pytest.mark.parametrize("cpu", VARIANTS)
def test_reference(cpu):
    done = parity(*FOLDERS, cpu=cpu)
    assert done.returncode == 0 and done.stdout.count("max_abs") > 40, done.stdout + done.stderr
    assert len(FOLDERS) == 40 and "differ" not in done.stdout


def test_two_ranks():
    """The tower's heads and MLP are shared, as the decoder's; its rows come to rank 0."""
    done = parity("--tolerance", "2e-4", "--set", "parallel.tensor=2", "--set", "parallel.comm=threads", *LLAVA, *QWEN, *GEMMA,
                  *MISTRAL, *GEMMA_4)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("tensor", [1, 2])
def test_two_stages(tensor):
    """The tower is on the first stage. gemma4_a is not cut into stages: its layers read others. Of the rows that Qwen3-VL's tower adds behind layers, some are added on the second."""
    done = parity("--tolerance", "2e-4", "--set", "parallel.pipeline=2", "--set", f"parallel.tensor={tensor}", "--set",
                  "parallel.comm=threads", *LLAVA, *QWEN, *GEMMA, *MISTRAL, GEMMA_4[1])
    assert done.returncode == 0, done.stdout + done.stderr


def test_bf16_stays_near():
    """In gemma4_b a row that was rounded chooses other experts."""
    done = parity("--tolerance", "0.5", "--set", "model.dtype=bf16", *[f for f in FOLDERS if f.name != "gemma4_b"])
    assert done.returncode == 0 and 1e-3 < worst_of(done) < 0.5, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["llava_a", "llava_hf_clip", "clip_a", "radio_b", "radio_hub_a", "hf_qwen2_vl", "hf_qwen2_5_vl",
                                  "hf_qwen3_vl", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe",
                                  "gemma3_a", "gemma3_b", "gemma4_a", "gemma4_b", "mistral3", "ministral3_vl", "mistral4_vl", "pixtral",
                                  "hf_pixtral"])
@pytest.mark.parametrize("to, tolerance", [("int8", 0.7), ("bf16", 0.2), ("packed", 1e-4)])
def test_converted_folders(tmp_path, name, to, tolerance):
    """Measured: int8 0.56, bf16 0.12, and more in WIDER. The product of the patches and the positions stay as they are."""
    tolerance = WIDER.get((name, to), tolerance)
    folder = tmp_path / name
    done = subprocess.run([CONVERT, GOLDEN / name, folder, "--to", to], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for file in GOLDEN.glob(f"{name}/[cg]*.safetensors"):
        shutil.copy(file, folder)
    done = parity("--tolerance", tolerance, folder)
    assert done.returncode == 0 and (to == "packed" or worst_of(done) > 1e-3), done.stdout + done.stderr


def test_other_pipelines_are_refused():
    done = parity("--set", "parallel.pipeline=2", "--set", "parallel.comm=threads", GOLDEN / "clip_a")
    assert done.returncode == 1 and "is not cut into stages" in done.stderr


def test_a_tower_alone_has_one_rank():
    done = parity("--set", "parallel.tensor=2", "--set", "parallel.comm=threads", GOLDEN / "clip_a")
    assert done.returncode == 1 and "set parallel.tensor to 1" in done.stderr


@pytest.mark.parametrize("name, part, key, value, words", [
    ("clip_a", None, "img_h", 30, "no whole patches of 14"),
    ("clip_a", None, "patch_dim", 0, "patch_dim"),
    ("clip_a", None, "model_subtype", "dino", "allowed is"),
    ("clip_a", None, "class_token_len", 2, "is [1, 1, 32], config.json makes it [2, 32]"),
    ("clip_a", None, "activation", "gelu", "activation"),
    ("clip_c_siglip", None, "add_class_token", True, "tensor class_token is missing"),
    ("radio_a", None, "max_img_h", 128, "position_embeddings"),
    ("radio_hub_a", None, "architectures", ["ERADIO"], "architectures \"ERADIO\" is unknown"),
    ("radio_hub_a", None, "patch_size", 14, "_patch14_224 are supported"),
    ("radio_hub_a", None, "vitdet_window_size", 8, "vitdet_window_size"),
    ("radio_hub_a", "args", "model", "vit_huge_patch16_224_mlpnorm", "vit_huge with _patch16_224"),
    ("radio_hub_a", "args", "model_kwargs", {"init_values": 1e-5}, "init_values"),
    ("radio_hub_a", "args", "model_kwargs", {"mlp_ratio": 0.001}, "mlp_ratio"),
    ("radio_hub_a", "args", "spectral_reparam", True, "spectral_reparam"),
    ("radio_hub_a", "args", "cpe_max_size", None, "cpe_max_size"),
    ("radio_hub_a", "args", "teachers", [], "0 \"teachers\""),
    ("radio_hub_a", "args", "register_multiple", 16, "cls_token.token is [8, 32], config.json makes it [16, 32]"),
    ("radio_hub_a", "args", "model_norm", True, "norm.weight is missing"),
    ("hf_qwen2_vl", None, "spatial_merge_size", 3, "spatial_merge_size"),
    ("hf_qwen2_vl", None, "in_channels", 1, "in_channels"),
    ("hf_qwen2_vl", None, "num_heads", 16, "attention heads of 2; multiples of 4"),
    ("hf_qwen2_vl", None, "rope_parameters", {"rope_type": "yarn"}, "rope_parameters"),
    ("hf_qwen2_vl", None, "mlp_ratio", 3, "mlp.fc1.weight"),
    ("hf_qwen2_vl", None, "temporal_patch_size", 1, "patch_embed.proj.weight is [32, 3, 2, 4, 4]"),
    ("hf_qwen2_vl", None, "model_type", "qwen9_vl_vision", "qwen9_vl_vision"),
    ("hf_qwen3_vl", None, "spatial_merge_size", 3, "spatial_merge_size"),
    ("hf_qwen3_vl", None, "patch_size", 8, "patch_embed.proj.weight is [32, 3, 2, 4, 4]"),
    ("hf_qwen3_vl", None, "num_position_embeddings", 50, "\"num_position_embeddings\" is 50, must be a square"),
    ("hf_qwen3_vl", None, "num_position_embeddings", 36, "pos_embed.weight is [49, 32]"),
    ("hf_qwen3_vl", None, "deepstack_visual_indexes", [1, 0], "has 0, must be layers of 3 in rising order"),
    ("hf_qwen3_vl", None, "deepstack_visual_indexes", [1, 1], "rising order"),
    ("hf_qwen3_vl", None, "deepstack_visual_indexes", [0, 3], "has 3, must be layers of 3"),
    ("hf_qwen3_vl", None, "deepstack_visual_indexes", [-1], "deepstack_visual_indexes"),
    ("hf_qwen3_vl", None, "deepstack_visual_indexes", list(range(9)), "deepstack_visual_indexes"),
    ("hf_qwen3_vl", None, "deepstack_visual_indexes", [0, 1, 2], "deepstack_merger_list.2.norm.weight is missing"),
    ("hf_qwen3_vl", None, "deepstack_visual_indexes", [0], "tensor deepstack_merger_list.1"),
    ("hf_qwen3_vl", None, "deepstack_visual_indexes", None, "has 8, must be layers of 3"),
    ("hf_qwen2_5_vl", None, "deepstack_visual_indexes", [1], "deepstack_visual_indexes"),
    ("hf_qwen2_5_vl", None, "window_size", 7, "window_size"),
    ("hf_qwen2_5_vl", None, "fullatt_block_indexes", [-1], "fullatt_block_indexes"),
    ("qwen2_vl", "rope_scaling", "mrope_section", [2, 3, 4], "\"mrope_section\" is 2, 3 and 4 pairs, and a head has 8"),
    ("qwen2_vl", "rope_scaling", "mrope_section", [2, 6], "mrope_section"),
    ("qwen2_vl", "rope_scaling", "mrope_section", [2, 3, -3], "mrope_section"),
    ("qwen2_vl", "rope_scaling", "mrope_interleaved", True, "mrope_interleaved"),
    ("qwen2_vl", "rope_scaling", "type", "dynamic", "\"dynamic\" of the rotary positions needs rows that have one position"),
    ("qwen2_vl", None, "model_type", "qwen9_vl", "\"qwen9_vl\" is unknown"),
    ("qwen3_vl", None, "text_config", None, "text_config"),
    ("qwen3_vl", "text_config", "num_hidden_layers", 1, "2 \"deepstack_visual_indexes\", and the decoder has 1 layers"),
    ("qwen3_vl", "vision_config", "model_type", "qwen2_vl", "\"model_type\" is \"qwen2_vl\"; qwen3_vl_vision is supported here"),
    ("qwen3_vl", "vision_config", "out_hidden_size", 64, "the projector gives 64 columns, the decoder has 32"),
    ("qwen3_5", None, "text_config", None, "text_config"),
    ("qwen3_5", "text_config", "hidden_act", "gelu", "\"hidden_act\" must be silu"),
    ("qwen3_5", "vision_config", "deepstack_visual_indexes", [1], "deepstack_visual_indexes"),
    ("qwen3_5", "vision_config", "model_type", "qwen3_vl", "\"model_type\" is \"qwen3_vl\"; qwen3_5_vision is supported here"),
    ("qwen3_5", "vision_config", "out_hidden_size", 64, "the projector gives 64 columns, the decoder has 32"),
    ("qwen3_5", "vision_config", "num_position_embeddings", 50, "\"num_position_embeddings\" is 50, must be a square"),
    ("qwen3_5_moe", "vision_config", "model_type", "qwen3_5_text", "\"model_type\" is \"qwen3_5_text\"; qwen3_5_moe_vision is supported here"),
    ("qwen2_vl", None, "model_type", "qwen2", "\"mrope_section\" of the rotary positions"),
    ("qwen2_vl", "vision_config", "hidden_size", 64, "the projector gives 64 columns, the decoder has 32"),
    ("qwen2_vl", "vision_config", "spatial_merge_size", 3, "vision_config"),
    ("qwen2_5_vl", "text_config", "hidden_act", "none", "text_config"),
    ("qwen2_5_vl", "text_config", "rope_parameters", {"mrope_section": [8]}, "mrope_section"),
    ("gemma3_a", None, "mm_tokens_per_image", 12, "\"mm_tokens_per_image\" is 12; it must be a square"),
    ("gemma3_a", None, "mm_tokens_per_image", 9, "whose side divides the 8 lines of patches"),
    ("gemma3_a", None, "image_token_index", -1, "image_token_index"),
    ("gemma3_a", None, "text_config", None, "text_config"),
    ("gemma3_a", "text_config", "use_bidirectional_attention", True, "use_bidirectional_attention"),
    ("gemma3_a", "text_config", "hidden_size", 64, "mm_input_projection_weight is [24, 32], config.json makes it [24, 64]"),
    ("gemma3_a", "vision_config", "model_type", "clip_vision_model", "another \"model_type\" than \"siglip_vision_model\""),
    ("gemma3_a", "vision_config", "num_channels", 1, "vision_config"),
    ("mistral3", None, "text_config", None, "text_config"),
    ("mistral3", None, "spatial_merge_size", 3, "\"spatial_merge_size\" 3; pixtral and 2 are supported"),
    ("mistral3", None, "vision_feature_layer", [-2, -1], "must be one number"),
    ("mistral3", None, "vision_feature_layer", 0, "the tower has 2 layers"),
    ("mistral3", None, "image_token_index", -1, "image_token_index"),
    ("mistral3", None, "multimodal_projector_bias", True, "linear_1.bias is missing"),
    ("mistral3", None, "quantization_config", {"quant_method": "fp8", "weight_block_size": [64, 64]},
     "\"quantization_config\" is not supported"),
    ("pixtral", None, "quantization_config", {"quant_method": "awq"}, "\"quantization_config\" is not supported"),
    ("mistral3", "text_config", "model_type", "bert", "must be a decoder"),
    ("mistral3", "text_config", "hidden_size", 64, "linear_1.weight is [32, 32], config.json makes it [64, 32]"),
    ("mistral3", "vision_config", "model_type", "siglip_vision_model", "pixtral and 2 are supported"),
    ("mistral3", "vision_config", "model_type", "dinov2", "siglip_vision_model and pixtral are supported"),
    ("mistral3", "vision_config", "hidden_size", 48, "\"head_dim\" is 8; heads of 48 / 4 = 12 are supported"),
    ("mistral3", "vision_config", "num_attention_heads", 2, "\"head_dim\" is 8; heads of 32 / 2 = 16 are supported"),
    ("mistral3", "vision_config", "num_channels", 1, "num_channels"),
    ("mistral3", "vision_config", "rope_theta", 0, "\"rope_theta\" is 0, must be positive"),
    ("hf_pixtral", None, "rope_parameters", {"rope_type": "yarn"}, "rope_type"),
    ("hf_pixtral", None, "patch_size", [4, 5], "\"patch_size\" must be one number"),
    ("hf_pixtral", None, "patch_size", 257, "\"patch_size\" must be one number, 1 .. 256"),
    ("hf_pixtral", None, "patch_size", "4", "\"patch_size\" must be one number"),
    ("hf_pixtral", None, "num_attention_heads", 8, "\"head_dim\" is 8"),
    ("hf_pixtral", None, "num_hidden_layers", 3, "transformer.layers.2.attention_norm.weight is missing"),
    ("pixtral", None, "vision_feature_select_strategy", "default", "first row of a tower without a class token"),
    ("pixtral", None, "model_type", "llava_next", "llava_next has tiles"),
    ("gemma4_a", "vision_config", "model_type", "siglip_vision_model", "another \"model_type\" than \"gemma4_vision\""),
    ("gemma4_a", "vision_config", "head_dim", 6, "attention heads of 6; multiples of 4"),
    ("gemma4_a", "vision_config", "rope_parameters", {"rope_type": "linear"}, "rope_parameters"),
    ("gemma4_a", "vision_config", "use_clipped_linears", False, "input_max has no place"),
    ("gemma4_b", "vision_config", "use_clipped_linears", True, "self_attn.q_proj.input_min is missing"),
    ("gemma4_b", "vision_config", "standardize", False, "std_"),
    ("gemma4_a", "vision_config", "standardize", True, "std_bias is missing"),
    ("gemma4_a", "vision_config", "position_embedding_size", 39, "position_embedding_table is [2, 40, 24]"),
    ("gemma4_a", "vision_config", "position_embedding_size", 0, "position_embedding_size"),
    ("gemma4_a", "vision_config", "pooling_kernel_size", 0, "pooling_kernel_size"),
    ("gemma4_a", "vision_config", "patch_size", 4, "patch_embedder.input_proj.weight is [24, 12], config.json makes it [24, 48]"),
    ("gemma4_a", "text_config", "pad_token_id", 64, "\"pad_token_id\" is 64 of 64 ids"),
    ("gemma4_a", None, "image_token_id", -1, "image_token_id"),
    ("gemma4_a", None, "vision_config", None, "tensor model.embed_vision.embedding_projection.weight"),
    ("projector_mlp", None, "ffn_hidden_size", 48, "linear_fc1.weight"),
    ("projector_mlp", None, "projector_type", "resampler", "projector_type"),
    ("llava_hf_clip", None, "vision_feature_layer", [-2, -1], "must be one number"),
    ("llava_hf_clip", None, "vision_feature_layer", -4, "the tower has 3 layers"),
    ("llava_hf_clip", None, "vision_feature_select_strategy", "cls", "allowed is"),
    ("llava_hf_clip", "text_config", "model_type", "bert", "must be a decoder"),
    ("llava_hf_clip", "text_config", "hidden_act", "none", "text_config"),
    ("llava_hf_clip", "vision_config", "model_type", "dinov2", "clip_vision_model, siglip_vision_model and pixtral"),
    ("llava_hf_clip", "vision_config", "num_channels", 4, "num_channels"),
    ("llava_hf_siglip", None, "vision_feature_select_strategy", "default", "first row of a tower without a class token"),
    ("llava_a", None, "vision", {}, "clip_vit or radio_vit"),
    ("llava_a", None, "pixel_shuffle", True, "reads 32 columns, the tower gives 128"),
    ("llava_b", "projector", "input_size", 32, "reads 32 columns, the tower gives 96"),
    ("llava_b", "projector", "hidden_size", 64, "the decoder has 32"),
    ("llava_c_radio_tags", None, "tile_tags", [[1], [2, 3]], "no list of 1 ids"),
    ("llava_c_radio_tags", None, "tile_tags", [[1, 900]], "ids of the vocabulary"),
])
def test_configurations_are_checked(tmp_path, name, part, key, value, words):
    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    (config[part] if part else config)[key] = value
    if name == "clip_c_siglip":
        config |= {"class_token_len": 1, "model_subtype": "internvit"}
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 1 and words in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["llava_hf_clip", "llava_hf_siglip", "hf_clip", "hf_siglip"])
@pytest.mark.parametrize("style", ["transformers 4", "transformers 5 in memory"])
def test_other_spellings(tmp_path, name, style):
    def rename(tensor):
        if not name.startswith("llava"):
            return "vision_model." + tensor
        if style == "transformers 4":
            return tensor.replace("vision_tower.", "vision_tower.vision_model.")
        return "model." + tensor.replace("language_model.model.", "language_model.") if "lm_head" not in tensor else "lm_head.weight"

    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    rename_tensors(folder, rename)
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["hf_qwen2_vl", "hf_qwen2_5_vl", "hf_qwen3_vl"])
@pytest.mark.parametrize("root", ["visual.", "model.visual."])
def test_other_spellings_of_qwen(tmp_path, name, root):
    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    rename_tensors(folder, lambda tensor: root + tensor)
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("style", ["the Hub's", "transformers 5's in memory"])
@pytest.mark.parametrize("name", ["gemma3_a", "gemma3_b"])
def test_other_spellings_of_gemma(tmp_path, name, style):
    def rename(tensor):
        tensor = tensor.removeprefix("model.").replace("vision_model.", "")
        tensor = tensor.replace("language_model.model.", "language_model.")
        if style == "the Hub's":
            tensor = tensor.replace("vision_tower.", "vision_tower.vision_model.")
            return tensor.replace("language_model.", "language_model.model.")
        return "model." + tensor

    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    rename_tensors(folder, rename)
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["mistral3", "ministral3_vl", "mistral4_vl", "pixtral", "hf_pixtral"])
def test_other_spellings_of_mistral(tmp_path, name):
    """As transformers 5 has them in memory."""
    def rename(tensor):
        if name == "hf_pixtral":
            return "vision_tower." + tensor
        if "lm_head" in tensor:
            return "lm_head.weight"
        return "model." + tensor.replace("language_model.model.", "language_model.")

    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    rename_tensors(folder, rename)
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("configured", [True, False])
def test_text_of_mistral_without_a_tower(tmp_path, configured):
    folder = folder_of_text(tmp_path, "mistral3", configured)
    if not configured:
        assert "has no place in a mistral3 model" in parity(folder).stderr
    keep_tensors(folder / "model.safetensors", lambda tensor: "language_model" in tensor)
    done = parity(folder)
    assert done.returncode == 0 and done.stdout.count("case/text") == 1, done.stdout + done.stderr
    assert ("has no vision tower" in done.stderr) == configured


def folder_of_text(tmp_path, name, configured):
    """A golden folder of whose cases the text is left, with its vision_config or without."""
    folder = shutil.copytree(GOLDEN / name, tmp_path / "case", ignore=shutil.ignore_patterns("generation*"))
    config = json.loads((folder / "config.json").read_text())
    if not configured:
        del config["vision_config"]
    (folder / "config.json").write_text(json.dumps(config))
    keep_tensors(folder / "cases.safetensors", lambda tensor: tensor.startswith("text."))
    return folder


@pytest.mark.parametrize("configured", [True, False])
def test_text_of_gemma_without_a_tower(tmp_path, configured):
    """With or without a vision_config: the tensors decide."""
    folder = folder_of_text(tmp_path, "gemma3_a", configured)
    keep_tensors(folder / "model.safetensors", lambda tensor: "language_model" in tensor)
    done = parity(folder)
    assert done.returncode == 0 and done.stdout.count("case/text") == 1, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
def test_other_spellings_of_qwens_decoder(tmp_path, name):
    """As transformers writes them since 4.52, and keys of a text_config either way."""
    def rename(tensor):
        return "model." + (tensor if tensor.startswith("visual.") else tensor.replace("model.", "language_model."))

    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    rename_tensors(folder, lambda tensor: tensor if tensor == "lm_head.weight" else rename(tensor))
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config", None)
    if text:
        config = text | config | {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}, "rope_theta": 10000.0}
        del config["rope_parameters"]
    else:
        config["text_config"] = {key: value for key, value in config.items() if key not in ("vision_config", "model_type")}
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_sections_beside_yarn(tmp_path):
    folder = shutil.copytree(GOLDEN / "qwen2_vl", tmp_path / "case", ignore=shutil.ignore_patterns("generation*"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "yarn.safetensors").rename(folder / "cases.safetensors")
    assert "FAILED" in parity(folder).stdout
    config["rope_scaling"] |= {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 0 and "two forward" in done.stdout, done.stdout + done.stderr


def test_text_of_a_folder_without_a_tower(tmp_path):
    folder = shutil.copytree(GOLDEN / "qwen2_vl", tmp_path / "case", ignore=shutil.ignore_patterns("generation*"))
    config = json.loads((folder / "config.json").read_text())
    del config["vision_config"]
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert "tensor visual." in done.stderr and "case/text" not in done.stdout
    keep_tensors(folder / "model.safetensors", lambda tensor: not tensor.startswith("visual."))
    keep_tensors(folder / "cases.safetensors", lambda tensor: tensor.startswith("text."))
    done = parity(folder)
    assert done.returncode == 0 and done.stdout.count("case/text") == 1, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_vl_moe"])
def test_qwen3_as_transformers_5_writes_it(tmp_path, name):
    folder = shutil.copytree(GOLDEN / name, tmp_path / "case")
    turn_tensors(folder / "model.safetensors", lambda tensor: ".experts." in tensor)
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    text["rope_parameters"] = text.pop("rope_scaling") | {"rope_theta": text.pop("rope_theta")}
    config["vision_config"] |= {"model_type": name + "_vision", "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name, sections", [("qwen3_vl", [3, 3, 3]), ("qwen3_vl", [24, 20, 20]), ("qwen3_5_moe", [11, 11, 10])])
def test_sections_that_count_too_many_pairs(tmp_path, name, sections):
    """Pairs take turns as long as there are some, as in transformers: these are the same pairs."""
    folder = shutil.copytree(GOLDEN / name, tmp_path / "case")
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    text["rope_scaling" if "rope_scaling" in text else "rope_parameters"]["mrope_section"] = sections
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_qwen3_5_as_transformers_5_writes_it(tmp_path):
    """Without the keys of published folders, and with the names of a tower that older versions wrote."""
    folder = shutil.copytree(GOLDEN / "qwen3_5", tmp_path / "case")
    rename_tensors(folder, lambda tensor: tensor.replace("model.visual.", "visual."))
    config = json.loads((folder / "config.json").read_text())
    for key in ("full_attention_interval", "mtp_num_hidden_layers", "attn_output_gate"):
        del config["text_config"][key]
    del config["vision_config"]["deepstack_visual_indexes"]
    config["vision_config"] |= {"model_type": "qwen3_5_vision", "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name, kind", [("qwen3_5_moe", "qwen3_5"), ("qwen3_vl_moe", "qwen3_vl_vision"), ("qwen3_5", "qwen3_5_moe_vision")])
def test_towers_are_the_same_with_experts_and_without(tmp_path, name, kind):
    folder = shutil.copytree(GOLDEN / name, tmp_path / "case")
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["model_type"] = kind
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("configured", [True, False])
@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5"])
def test_text_of_a_qwen3_without_a_tower(tmp_path, name, configured):
    folder = folder_of_text(tmp_path, name, configured)
    if not configured:
        assert "tensor model.visual." in parity(folder).stderr
    keep_tensors(folder / "model.safetensors", lambda tensor: not tensor.startswith("model.visual."))
    done = parity(folder)
    assert done.returncode == 0 and done.stdout.count("case/text") == 1, done.stdout + done.stderr
    assert ("has no vision tower" in done.stderr) == configured


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5"])
def test_a_tower_with_a_hole_is_no_text_model(tmp_path, name):
    folder = shutil.copytree(GOLDEN / name, tmp_path / "case")
    keep_tensors(folder / "model.safetensors", lambda tensor: "pos_embed" not in tensor)
    done = parity(folder)
    assert done.returncode == 1 and "pos_embed.weight is missing" in done.stderr, done.stderr


def test_logits_of_llava_are_the_matrix_alone(tmp_path):
    """A Llama is a Granite, of which transformers' class for pictures leaves the scale of logits out."""
    folder = shutil.copytree(GOLDEN / "llava_hf_clip", tmp_path / "case")
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    head = text["hidden_size"] // text["num_attention_heads"]
    text |= {"model_type": "granite", "attention_multiplier": head**-0.5, "residual_multiplier": 1.0, "logits_scaling": 3.0}
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    text["embedding_multiplier"] = 2.0
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 1 and "\"embedding_multiplier\" is 2 beside a vision tower" in done.stderr, done.stderr


def test_radio_of_torch_hub(tmp_path):
    """The same tensors without the wrapper of the Hub, as torch.hub has them."""
    folder = shutil.copytree(GOLDEN / "radio_hub_b", tmp_path / "case")
    rename_tensors(folder, lambda tensor: tensor.removeprefix("radio_model."))
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_sizes_that_transformers_leaves_out(tmp_path):
    """A text_config without sizes is Llama's of 7B: the error about the first tensor names them."""
    folder = shutil.copytree(GOLDEN / "llava_hf_clip", tmp_path / "case")
    config = json.loads((folder / "config.json").read_text())
    for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "head_dim",
                "num_key_value_heads"):
        del config["text_config"][key]
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 1 and "4096" in done.stderr, done.stderr


@pytest.mark.parametrize("name, keys, words", [
    ("llava_hf_clip", ["vocab_size"], "config.json makes it [32000, 32]"),
    ("qwen2_5_vl", ["vocab_size"], "config.json makes it [152064, 32]"),
    ("qwen2_5_vl", ["hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads"],
     "\"mrope_section\" is 2, 3 and 3 pairs, and a head has 64"),
])
def test_keys_that_transformers_leaves_out(tmp_path, name, keys, words):
    """They are those of the class."""
    folder = shutil.copytree(GOLDEN / name, tmp_path / "case")
    config = json.loads((folder / "config.json").read_text())
    for key in keys:
        del config["text_config"][key]
    (folder / "config.json").write_text(json.dumps(config))
    done = parity(folder)
    assert done.returncode == 1 and words in done.stderr, done.stderr


@pytest.mark.parametrize("name, key, value", [("radio_a", "has_cpe", False), ("radio_a", "interpolate_align_corners", False),
                                              ("radio_d_half", "interpolate_align_corners", True),
                                              ("radio_hub_a", "interpolate_align_corners", True),
                                              ("clip_b", "layernorm_epsilon", 1e-5), ("clip_a", "activation", "gelu_erf"),
                                              ("hf_qwen2_vl", "rope_parameters", {"rope_theta": 1000}),
                                              ("hf_qwen2_5_vl", "fullatt_block_indexes", [0]),
                                              ("hf_qwen2_5_vl", "window_size", 32),
                                              ("hf_qwen3_vl", "deepstack_visual_indexes", [0, 2]),
                                              ("hf_qwen3_vl", "hidden_act", "gelu"),
                                              ("mistral3", "projector_hidden_act", "relu"),
                                              ("ministral3_vl", "vision_feature_layer", -2),
                                              ("hf_pixtral", "hidden_act", "gelu"),
                                              ("hf_pixtral", "rope_parameters", {"rope_theta": 1000}),
                                              ("qwen2_vl", "rope_scaling", {"type": "mrope", "mrope_section": [3, 3, 2]}),
                                              ("qwen2_vl", "rope_theta", 1000)])
def test_a_wrong_key_is_noticed(tmp_path, name, key, value):
    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: value}))
    done = parity(folder)
    assert done.returncode == 1 and "FAILED" in done.stdout, done.stdout + done.stderr
