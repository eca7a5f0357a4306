"""A model folder with a chat template whose answers are known: each token is followed by one other token.

It is a llama without attention and without an MLP: the embedding of a token is a unit vector, and the output matrix
turns it into the token that follows. Texts that it writes are tokens of their own, so that a script is a chain of them;
the template chooses the script by the last token of the prompt."""
import json
import struct

import numpy as np

D = 384
TEMPLATE = """{%- if tools %}<|im_start|>system
{{ tools | tojson }}
To call one: <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}
{{- raise_exception('there is no role ' + message.role) }}
{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.tool_calls %}{% for call in message.tool_calls %}
{{- call.function.name + ' ' + call.function.arguments.city }}
{%- endfor %}{% endif %}
{{- (message.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking %}<think>{% elif tools %}<|to_calls|>{% elif count %}<|to_count|>{% elif sources %}<|to_sources|>{% else %}<|to_words|>{% endif %}{% endif %}"""

WORDS = ["Hello", ", wor", "ld", "! Äö", " 🙂", " bye", "..."]
THOUGHTS = ["I th", "ink so", " \n", "</think>", "\n\n", "The ans", "wer"]
CALLS = ["Let me look", "\n\n\n", "<tool_call>", "\n{\"name\": \"get_weather\", ", "\"arguments\": {\"city\": ", "\"Paris\"}}",
         "\n</tool", "_call>", "\n<tool_call>{\"name\": \"get_time\", \"arguments\": {}}", "</tool_call>"]
SOURCES = ["Öl ", "[1", "] comes", " of [2,", " 1], not of [9", "], [x] or 2]", "[2]"]
QUOTES = ["It says ", "so: \""]  # a model that may quote goes on with the first bytes that a passage has
SCRIPTS = {"<|to_words|>": WORDS, "<|to_sources|>": SOURCES, "<|to_quotes|>": QUOTES, "<think>": THOUGHTS, "<|to_calls|>": CALLS,
           "<|fim_middle|>": ["in the", " mid", "dle"]}


def make_marks(scripts):
    """A script may begin behind a single letter, or behind one of these."""
    ends, others = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<|to_count|>", "<|fim_prefix|>", "<|fim_suffix|>"]
    return [*ends, *(mark for mark in scripts if len(mark) > 1 and mark not in ends + others), *others]


MARKS = make_marks(SCRIPTS)


def byte_alphabet():
    """Bytes as the characters that byte-level vocabularies write for them."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(rest)}


def make_tokens(scripts=SCRIPTS):
    """Contents by id, and the id that follows each."""
    alphabet = byte_alphabet()
    names = [alphabet[b] for b in range(256)] + make_marks(scripts)
    end = names.index("<|im_end|>")
    follow = dict.fromkeys(range(len(names)), end)
    for start, script in scripts.items():
        last = names.index(start)
        for text in script:
            names.append(f"{text}")
            follow[last] = len(names) - 1
            last = len(names) - 1
        follow[last] = end
    # Letters for ever: nothing but a limit ends them.
    letters = [names.index(c) for c in "abcdefg"]
    follow[names.index("<|to_count|>")] = letters[0]
    follow |= dict(zip(letters, letters[1:] + letters[:1]))
    return names, follow


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_weights(folder, vocab, follow):
    ones, none = np.ones(D), np.zeros((D, D))
    embedding, output = np.zeros((vocab, D)), np.zeros((vocab, D))
    for token, next_token in follow.items():
        embedding[token, token] = 1
        output[next_token, token] = 1
    layer = {"input_layernorm": ones, "post_attention_layernorm": ones, "self_attn.q_proj": none,
             "self_attn.k_proj": none, "self_attn.v_proj": none, "self_attn.o_proj": none, "mlp.gate_proj": none,
             "mlp.up_proj": none, "mlp.down_proj": none}
    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": ones, "lm_head.weight": output}
    write_safetensors(folder / "model.safetensors",
                      tensors | {f"model.layers.0.{name}.weight": values for name, values in layer.items()})


def write_tokenizer(folder, names, marks=MARKS):
    added = [{"id": i, "content": names[i], "special": names[i] in marks and names[i] != "<think>", "lstrip": False,
              "rstrip": False, "single_word": False, "normalized": False} for i in range(256, len(names))]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {n: i for i, n in enumerate(names[:256])}, "merges": []}}))


def make_chat_model(folder, scripts=SCRIPTS, template=TEMPLATE, special=()):
    """Writes the folder; texts of scripts that are special tokens may be given; returns the id of each special token by name."""
    names, follow = make_tokens(scripts)
    marks = make_marks(scripts)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": D, "intermediate_size": D,
        "num_hidden_layers": 1, "num_attention_heads": 6, "num_key_value_heads": 6, "vocab_size": len(names),
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "float32", "eos_token_id": names.index("<|endoftext|>")}))
    (folder / "generation_config.json").write_text(json.dumps(
        {"eos_token_id": [names.index("<|im_end|>"), names.index("<|endoftext|>")]}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (folder / "chat_template.jinja").write_text(template)
    write_tokenizer(folder, names, [*marks, *special])
    write_weights(folder, len(names), follow)
    return {name: names.index(name) for name in marks}
