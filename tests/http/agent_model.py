"""A model folder for agents, whose prompts have tens of thousands of words: the vocabulary is that of models/retro-docs, and
what is written is known, as in chat_model.py.

The user's word @NAME asks for the script NAME; once a tool has answered, and where nobody asks, the model says WORDS. A
script is one piece of text, such as calls of tools."""
import json
import pathlib

import numpy as np
from chat_model import write_safetensors

BASE = pathlib.Path(__file__).resolve().parents[2] / "models/retro-docs/tokenizer.json"
CONTEXT = 131072
WORDS = ["It is done", ", as you asked."]  # pieces that the vocabulary does not have
MARKS = ["<|im_start|>", "<|im_end|>", "<|say|>"]
TEMPLATE = """{%- if tools %}<|im_start|>system
{{ tools | tojson }}
To call one: <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}
{%- set ns = namespace(wanted='say') %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- for call in message.tool_calls or [] %}{{ call.function.name + ' ' + (call.function.arguments | tojson) }}{% endfor %}
{{- (message.content or '') + '<|im_end|>\\n' }}
{%- if message.role == 'tool' %}{% set ns.wanted = 'say' %}{% endif %}
{%- if message.role == 'user' %}CHOICES{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<|' + ns.wanted + '|>' }}{% endif %}"""


def one_call(name, **arguments):
    return "<tool_call>" + json.dumps({"name": name, "arguments": arguments}) + "</tool_call>"


def make_template(scripts):
    choices = "".join(f"{{%- if '@{name} ' in message.content %}}{{% set ns.wanted = '{name}' %}}{{% endif %}}" for name in scripts)
    return TEMPLATE.replace("CHOICES", choices)


def make_agent_model(folder, scripts, context=CONTEXT):
    """Writes the folder: scripts are texts by name."""
    tokenizer = json.loads(BASE.read_text())
    first = len(tokenizer["model"]["vocab"])
    names = [*MARKS, *(f"<|{name}|>" for name in scripts), *WORDS, *scripts.values()]
    ids = {name: first + i for i, name in enumerate(names)}
    chains = {"<|say|>": WORDS, **{f"<|{name}|>": [text] for name, text in scripts.items()}}
    width = 16 * (1 + (len(names) + 1) // 16)
    embedding, output = np.zeros((first + len(names), width)), np.zeros((first + len(names), width))
    for i, token in enumerate(ids.values()):
        embedding[token, i] = 1
    for mark, chain in chains.items():
        for token, then in zip([mark, *chain], [*chain, "<|im_end|>"]):
            output[ids[then], ids[token] - first] = 100  # whatever the temperature
    write_folder(folder, tokenizer, ids, embedding, output, context)
    (folder / "chat_template.jinja").write_text(make_template(scripts))


def write_folder(folder, tokenizer, ids, embedding, output, context):
    width, marks = embedding.shape[1], {name for name in ids if name.startswith("<|")}
    tokenizer["added_tokens"] += [{"id": i, "content": name, "special": name in marks, "lstrip": False, "rstrip": False,
                                   "single_word": False, "normalized": False} for name, i in ids.items()]
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width, "intermediate_size": width,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": len(embedding),
        "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "float32", "eos_token_id": ids["<|im_end|>"]}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids["<|im_end|>"]}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    ones, none = np.ones(width), np.zeros((width, width))
    parts = [*(f"self_attn.{part}_proj" for part in "qkvo"), *(f"mlp.{part}_proj" for part in ("gate", "up", "down"))]
    layer = {"input_layernorm": ones, "post_attention_layernorm": ones} | dict.fromkeys(parts, none)
    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": ones, "lm_head.weight": output}
    write_safetensors(folder / "model.safetensors",
                      tensors | {f"model.layers.0.{name}.weight": values for name, values in layer.items()})
