"""make_gguf_towers.py PEERS [NAME ...]: tests/golden/mmproj, models with pictures as two GGUF files: llama.cpp's own converter
makes them of folders of tests/golden, once as a model and once with --mmproj. PEERS and python as in make_gguf_families.py.

The folders have the logits and the answers. Those of qwen3_vl_moe are here, because a file's experts are in every layer. Of
gemma3_served the vocabulary lacks the token that stands for a picture, as that of published files does. A few keys that the
converter leaves out are written, so that the tiny models are those of the folders: windows, and limits of pixels. No key says
that rows of a picture see each other in Gemma 4, so those of gemma4_served see what is before them here."""

import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PEERS = pathlib.Path(sys.argv[1])
SOURCE = next(PEERS.glob("llama_cpp_python-*/vendor/llama.cpp"))
sys.path[:0] = [str(HERE), str(SOURCE), str(SOURCE / "gguf-py")]

import gguf
from conversion import get_model_class

import make_qwen_vl_golden as qwen
from make_gguf_families import round_matrices

GOLDEN = HERE.parent / "golden"
OUT = GOLDEN / "mmproj"
F32, F16, BF16, Q8 = (gguf.LlamaFileType[kind] for kind in ("ALL_F32", "MOSTLY_F16", "MOSTLY_BF16", "MOSTLY_Q8_0"))
MARKS = {"llava": {63: "<image>"}, "gemma3": {60: "<start_of_image>", 61: "<end_of_image>", 62: "<image_soft_token>"},
         "gemma4": {60: "<|image>", 61: "<image|>", 62: "<|image|>"},
         "mistral": {10: "[IMG]", 12: "[IMG_BREAK]", 13: "[IMG_END]"}, "qwen": {60: "<|vision_start|>", 61: "<|vision_end|>", 62: "<|image_pad|>", 63: "<|video_pad|>"}}
LACKING = "<image_soft_token>"


def pack_value(writer, value, kind, add_vtype, sub_type=None):
    """An empty list is one of texts; the writer refuses it."""
    if kind == gguf.GGUFValueType.ARRAY and len(value) == 0:
        return writer._pack("I", kind) + writer._pack("I", gguf.GGUFValueType.STRING) + writer._pack("Q", 0)
    return pack_others(writer, value, kind, add_vtype, sub_type)


pack_others, gguf.GGUFWriter._pack_val = gguf.GGUFWriter._pack_val, pack_value


def add_letters(model, marks):
    """A vocabulary of names; tests give ids."""
    w, n = model.gguf_writer, 64
    names = ["<pad>", "<s>", "</s>", "AB"] + [chr(ord("A") + i) for i in range(n - 4)]
    for i, name in marks.items():
        names[i] = name
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(names)
    w.add_token_types([3 if i < 3 or i in marks else 1 for i in range(n)])
    w.add_token_merges(["A B"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    if "<|image|>" in names:
        w.add_pad_token_id(3)


def add_bytes(model, folder):
    """The folder's own vocabulary."""
    w = model.gguf_writer
    file = json.loads((folder / "tokenizer.json").read_text())
    options = json.loads((folder / "tokenizer_config.json").read_text())
    special = {token["id"]: token["content"] for token in file["added_tokens"]}
    names = special | {i: name for name, i in file["model"]["vocab"].items()}
    ids = {name: i for i, name in names.items()}
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([names[i] for i in range(len(names))])
    w.add_token_types([3 if i in special else 1 for i in range(len(names))])
    merges = [m if isinstance(m, str) else " ".join(m) for m in file["model"]["merges"]]
    w.add_key_value("tokenizer.ggml.merges", merges, gguf.GGUFValueType.ARRAY)
    for key in ("bos", "eos"):
        if f"{key}_token" in options:
            getattr(w, f"add_{key}_token_id")(ids[options[f"{key}_token"]])
    for turn in ("<end_of_turn>", "<turn|>"):
        if turn in ids:
            w.add_eot_token_id(ids[turn])
    if "<|image|>" in ids:
        w.add_pad_token_id(ids["<pad>"])
    w.add_add_bos_token(False)
    w.add_chat_template((folder / "chat_template.jinja").read_text())


def name_as_published(folder):
    """The converter knows the names of published folders alone."""
    from safetensors.torch import load_file, save_file
    tensors = load_file(folder / "model.safetensors")
    plain, whole = "vision_tower.", "vision_tower.vision_model."
    if "vision_tower.patch_conv.weight" in tensors or any("patch_embedder" in name for name in tensors):
        return  # Pixtral's and Gemma 4's are called so
    tensors = {name if whole in name else name.replace(plain, whole): values for name, values in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def drop_token(folder):
    """The folder with the last token cut off: its matrices' last rows, and its name."""
    from safetensors.torch import load_file, save_file
    file = json.loads((folder / "tokenizer.json").read_text())
    last = file["added_tokens"].pop()
    assert last["content"] == LACKING
    (folder / "tokenizer.json").write_text(json.dumps(file))
    tensors = load_file(folder / "model.safetensors")
    for name in tensors:
        if name.endswith(("embed_tokens.weight", "lm_head.weight")):
            tensors[name] = tensors[name][:last["id"]].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["vocab_size"] = last["id"]
    (folder / "config.json").write_text(json.dumps(config))


def convert_text(folder, out):
    hparams = json.loads((folder / "config.json").read_text())
    base = get_model_class(hparams["architectures"][0].replace("LlavaNext", "Llava"))  # whose text it reads likewise
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    def set_vocab(model):
        served = (folder / "chat_template.jinja").exists()
        add_bytes(model, folder) if served else add_letters(model, MARKS["llava"])

    tiny = type("Tiny", (base,), {"model_arch": base.model_arch, "set_vocab": set_vocab})
    tiny(folder, F32, out / "model.gguf").write()
    (out / "model.gguf").chmod(0o644)


def convert(folder, out, kind, kind_of_tower, keys):
    hparams = json.loads((folder / "config.json").read_text())
    served = (folder / "chat_template.jinja").exists()
    line = hparams["vision_config"].get("model_type") == "pixtral"
    marks = MARKS["mistral" if line else hparams["model_type"] if hparams["model_type"] in MARKS else "qwen"]
    if not served:
        letters = dict(model=dict(vocab={str(i): i for i in range(64)}), added_tokens=[dict(id=i, content=m) for i, m in marks.items()])
        if line:
            (folder / "tokenizer_config.json").write_text("{}")
        (folder / "tokenizer.json").write_text(json.dumps(letters))  # Gemma's converter counts them
        half, image = [0.5] * 3, hparams["vision_config"].get("image_size", 0)
        rows = hparams.get("mm_tokens_per_image", 0)
        processor = dict(image_mean=half, image_std=half, image_seq_length=rows, size=dict(height=image, width=image))
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))

    def set_vocab(model):
        add_bytes(model, folder) if served else add_letters(model, marks)

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    text = get_model_class(hparams["architectures"][0])
    text = getattr(text, "Ministral3Model", text)  # what the converter of Mistral 3 wraps
    tower = get_model_class(hparams["architectures"][0], mmproj=True)

    def set_parameters(model):
        tower.set_gguf_parameters(model)
        for key, value in keys.items():
            model.gguf_writer.add_uint32(f"clip.vision.{key}", value)

    def set_text_parameters(model):
        text.set_gguf_parameters(model)
        types = hparams.get("text_config", {}).get("layer_types", [])
        if "sliding_attention" in types:
            model.gguf_writer.add_sliding_window_pattern([t == "sliding_attention" for t in types])

    methods = {"model_arch": text.model_arch, "set_vocab": set_vocab, "set_gguf_parameters": set_text_parameters, "no_mtp": True}
    type("Tiny", (text,), methods)(folder, kind, out / "model.gguf").write()
    def force_type(model, name, new_name, bid, n_dims):
        if kind_of_tower == F32:  # also of the projector of Gemma 3, which the converter rounds to F16
            return gguf.GGMLQuantizationType.F32
        return tower.tensor_force_quant(model, name, new_name, bid, n_dims)

    def modify_tensors(model, data, name, bid):
        return [] if name == "lm_head.weight" else tower.modify_tensors(model, data, name, bid)  # published folders have none

    methods = {"set_gguf_parameters": set_parameters, "tensor_force_quant": force_type, "modify_tensors": modify_tensors}
    file = type("Tower", (tower,), methods)(folder, kind_of_tower, out / "mmproj-tiny.gguf")
    file.tensor_map = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 32)  # names "mlp.2" in towers of two layers, too
    file.write()
    for path in out.iterdir():
        path.chmod(0o644)


def find_folder(name):
    return GOLDEN / name if (GOLDEN / name).exists() else GOLDEN / "vision" / name


def make(name, kind_of_tower=F32, ending="", **keys):
    source = find_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(shutil.copytree(source, scratch, dirs_exist_ok=True))
        if name == "gemma3_served":
            drop_token(folder)
        name_as_published(folder)
        convert(folder, OUT / (name + ending), F32, kind_of_tower, keys)


def make_experts():
    """Q8_0 in both files; transformers computes with the rounded matrices."""
    text = dict(qwen.TEXT_MOE, mlp_only_layers=[], moe_intermediate_size=32)
    config = qwen.Qwen3VLMoeConfig(text_config=text, vision_config=dict(qwen.TOWER_3, hidden_size=32, intermediate_size=64), **qwen.IDS)
    config._attn_implementation = "eager"
    fill = qwen.fill

    def fill_rounded(model, seed):
        fill(model, seed)
        round_matrices(model)
        return model

    qwen.fill = fill_rounded
    with tempfile.TemporaryDirectory() as scratch:
        qwen.OUT = pathlib.Path(scratch)
        folder = qwen.make("qwen3_vl_moe", qwen.Qwen3VLMoeForConditionalGeneration(config))
        qwen.turn_experts(folder)
        convert(folder, OUT / folder.name, Q8, Q8, {})
        for file in ("cases.safetensors", "generation.safetensors"):
            shutil.copy(folder / file, OUT / folder.name)


def make_llava(name):
    """The tower as llama.cpp's convert_image_encoder_to_gguf.py writes that of LLaVA 1.5 and 1.6, but all in F32: no other
    converter does. The products of the MLPs have each other's names."""
    import numpy as np
    from safetensors.numpy import load_file
    folder, out = find_folder(name), OUT / name
    config = json.loads((folder / "config.json").read_text())
    vision, tensors = config["vision_config"], load_file(folder / "model.safetensors")
    file = folder / "preprocessor_config.json"
    processor = json.loads(file.read_text()) if file.exists() else {}
    layers = vision["num_hidden_layers"] + 1 + config["vision_feature_layer"]
    convert_text(folder, out)
    w = gguf.GGUFWriter(out / "mmproj-tiny.gguf", "clip")
    for key, value in dict(has_text_encoder=False, has_vision_encoder=True, has_llava_projector=True, use_gelu=False).items():
        w.add_bool(f"clip.{key}", value)
    w.add_string("clip.projector_type", "mlp")
    for key, name in {"image_size": "image_size", "patch_size": "patch_size", "embedding_length": "hidden_size",
                      "feed_forward_length": "intermediate_size", "projection_dim": "projection_dim",
                      "attention.head_count": "num_attention_heads"}.items():
        w.add_uint32(f"clip.vision.{key}", vision[name])
    w.add_float32("clip.vision.attention.layer_norm_epsilon", vision["layer_norm_eps"])
    w.add_uint32("clip.vision.block_count", layers)
    w.add_array("clip.vision.feature_layer", [layers])
    if config["model_type"] == "llava_next":
        w.add_array("clip.vision.image_grid_pinpoints", [side for sides in config["image_grid_pinpoints"] for side in sides])
        w.add_string("clip.vision.image_aspect_ratio", "anyres")
        w.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
        w.add_string("clip.vision.mm_projector_type", "mlp2x_gelu")
        w.add_uint32("clip.vision.image_crop_resolution", 224)
        w.add_uint32("clip.vision.image_split_resolution", 224)
    for key in ("image_mean", "image_std"):
        w.add_array(f"clip.vision.{key}", processor.get(key, [0.5] * 3))
    short = {"vision_model": "v", "encoder.layers": "blk", "embeddings.": "", "_proj": "", "self_attn.": "attn_", "layer_norm": "ln",
             "layernorm": "ln", "mlp.fc1": "ffn_down", "mlp.fc2": "ffn_up", "embedding": "embd", "layrnorm": "ln"}
    for name, values in tensors.items():
        if "multi_modal_projector" in name:
            name = name[name.index("multi_modal_projector"):].replace("multi_modal_projector.linear_", "mm.")
            name = name.replace("mm.1.", "mm.0.")
        elif "vision_tower" in name:
            name = name.split("vision_tower.")[1]
            name = name if name.startswith("vision_model") else f"vision_model.{name}"
            for word, other in short.items():
                name = name.replace(word, other)
            if name.startswith("v.post_ln") or any(name.startswith(f"v.blk.{i}.") for i in range(layers, 99)):
                continue
        elif name.endswith("image_newline"):
            name = "model.image_newline"
        else:
            continue
        w.add_tensor(name, np.squeeze(values))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    (out / "mmproj-tiny.gguf").chmod(0o644)


LIMITS = dict(image_min_pixels=256, image_max_pixels=1600)
ALL = {
    "gemma3_a": lambda: make("gemma3_a"),
    "gemma3_a_f16": lambda: make("gemma3_a", F16, "_f16"),
    "gemma3_served": lambda: make("gemma3_served"),
    "gemma4_a": lambda: make("gemma4_a"),
    "gemma4_b": lambda: make("gemma4_b"),
    "gemma4_served": lambda: make("gemma4_served", image_max_pixels=70 * 6 ** 2),
    "llava_next_served": lambda: make_llava("llava_next_served"),
    "llava_hf_clip": lambda: make_llava("llava_hf_clip"),
    "llava_served": lambda: make_llava("llava_served"),
    "mistral3": lambda: make("mistral3"),
    "ministral3_vl": lambda: make("ministral3_vl"),
    "mistral3_served": lambda: make("mistral3_served"),
    "pixtral": lambda: make("pixtral"),
    "qwen2_vl": lambda: make("qwen2_vl"),
    "qwen2_vl_bf16": lambda: make("qwen2_vl", BF16, "_bf16"),
    "qwen2_5_vl": lambda: make("qwen2_5_vl", window_size=16),
    "qwen_vl_served": lambda: make("qwen_vl_served", window_size=16, **LIMITS),
    "qwen3_vl": lambda: make("qwen3_vl"),
    "qwen3_vl_moe": make_experts,
    "qwen3_vl_served": lambda: make("qwen3_vl_served", **LIMITS),
    "qwen3_5": lambda: make("qwen3_5"),
    "qwen3_5_moe": lambda: make("qwen3_5_moe"),
    "qwen3_5_served": lambda: make("qwen3_5_served", **LIMITS),
}
for name in sys.argv[2:] or ALL:
    ALL[name]()
    print(f"{name:20s} {sum(p.stat().st_size for p in (OUT / name).iterdir()) / 1000:.0f} KB", flush=True)
