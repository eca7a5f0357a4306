"""What the generators of models with pictures share (make_gemma3_golden.py, make_gemma4_golden.py, make_pixtral_golden.py,
make_qwen_vl_golden.py): weights by seed, cases with a greedy continuation, folders, tokenizers of bytes, and chats. transformers is
offline and silent once this is imported."""
import json
import os
import shutil
import warnings
import zlib
from pathlib import Path

os.environ["TRANSFORMERS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
import numpy as np
import torch
import transformers
from make_vision_hf_golden import byte_alphabet, make_picture
from safetensors.numpy import save_file
from transformers import PreTrainedTokenizerFast

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

OUT = Path(__file__).resolve().parents[1] / "golden/vision"
NEW = 12  # tokens of a continuation


def fill_with(model, seed, numbers_of, tensors=None):
    """Each of the tensors, all parameters if none are given, gets numbers_of(name, it, z), where z are normal numbers of a seed
    of its own."""
    with torch.no_grad():
        for name, p in tensors or model.named_parameters():
            z = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())])).standard_normal(tuple(p.shape))
            p.copy_(torch.from_numpy(np.asarray(numbers_of(name, p, z), np.float32)))
    return model.eval()


def noise(height, width, seed):
    """Pixels of a picture as its processor leaves them."""
    return np.random.Generator(np.random.PCG64(seed)).standard_normal((3, height, width)).astype(np.float32)


def go_on(run, prompt, pixels, never):
    """Tokens and logits of a greedy continuation; None where another seed is needed: one of the tokens `never` would be drawn,
    or two tokens are nearly alike."""
    ids, tokens, logits = prompt, [], []
    for _ in range(NEW):
        row = run(ids, pixels)[0, -1]
        token = int(row.argmax())
        if token in never or np.diff(np.sort(row)[-2:])[0] < 5e-3:
            return None
        tokens.append(token)
        logits.append(row)
        ids = ids + [token]
    return np.array(tokens, np.int32), np.stack(logits)


def apart(case, pixels):
    """Pictures of a case, each a tensor of its own."""
    return {f"{case}.picture_{i}": p for i, p in enumerate(pixels)}


def make_whole(folder, model, fill, texts, expand, run, never, pictures_of=apart, accept=None):
    """A model of the first seed that can go on after the case "two", and for which accept(prompt, pixels, tokens) is true. Its
    folder has the logits of all cases and the continuation. run(model, ids, pixels) gives logits."""
    def logits_of(ids, pixels):
        return run(model, ids, pixels)

    text, pixels = texts["two"]
    prompt, seed, made = expand(text, pixels), 0, None
    while made is None:
        seed += 1
        fill(model, seed)
        made = go_on(logits_of, prompt, pixels, never)
        if made and accept and not accept(prompt, pixels, made[0]):
            made = None
    generation = {"greedy.prompt": np.array(prompt, np.int32), "greedy.tokens": made[0], "greedy.logits": made[1]}
    generation |= pictures_of("greedy", pixels)
    cases = {}
    for case, (text, pixels) in texts.items():
        ids = expand(text, pixels)
        cases |= {f"{case}.input_ids": np.array([ids], np.int32), f"{case}.logits": logits_of(ids, pixels)}
        cases |= pictures_of(case, pixels)
    return write_folder(folder, model, {"cases": cases, "generation": generation})


def write_folder(folder, model, files={}):
    """What save_pretrained writes, and files of tensors."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for name, tensors in files.items():
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / f"{name}.safetensors")
    open_to_all(folder)
    return folder


def open_to_all(folder):
    for file in folder.iterdir():
        file.chmod(0o644)


# Chats.

def ids_behind_bytes(names, words=()):
    """Ids of special tokens, behind the bytes and words."""
    return {name: 256 + len(words) + i for i, name in enumerate(names)}


def byte_tokenizer(id_of, words=(), merges=()):
    """tokenizer.json: a byte is a token, and so is each of the words that merges make of bytes."""
    added = [{"id": i, "content": name, "special": True, "lstrip": False, "rstrip": False, "single_word": False,
              "normalized": False} for name, i in id_of.items()]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = {c: b for b, c in byte_alphabet().items()} | {word: 256 + i for i, word in enumerate(words)}
    return json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None,
        "decoder": level, "model": {"type": "BPE", "vocab": vocabulary, "merges": list(merges)}})


def open_tokenizer(folder, text, **options):
    """transformers' tokenizer of a tokenizer.json, which the folder keeps only while it is read."""
    file = folder / "made.json"
    file.write_text(text)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), **options)
    file.unlink()
    return tokenizer


def prefer_letters(model, end):
    """Letters are drawn, and the end sooner or later."""
    with torch.no_grad():
        letters = torch.zeros(len(model.lm_head.weight), 1)
        letters[ord("a"):ord("z") + 1] = 5
        model.lm_head.weight.mul_(letters)
        model.lm_head.weight[end] = -10 * model.lm_head.weight[ord("a"):ord("z") + 1].mean(0)
    return model


def write_answer(row_of, end):
    """Tokens of a greedy answer and their log-probabilities, where row_of(tokens) are the logits behind these; None where two
    ids are nearly alike."""
    written, logprobs = [], []
    while len(written) < NEW and written[-1:] != [end]:
        with torch.no_grad():
            row = row_of(torch.tensor([written], dtype=torch.long))
        best = torch.topk(row, 2)
        if best.values[0] - best.values[1] <= 1e-3:
            return None
        written.append(int(best.indices[0]))
        logprobs.append(float(torch.log_softmax(row.double(), 0).max()))
    return written, logprobs


def make_pictures(folder, sizes):
    """Files of the folder, by name."""
    return {file: make_picture(folder / file, width, height, i) for i, (file, width, height) in enumerate(sizes)}


def messages_of(turns, pictures):
    """Turns of a user and of an assistant; the user's are parts, of which some name a picture."""
    messages = []
    for i, turn in enumerate(turns):
        parts = [turn] if i % 2 else turn
        content = [{"type": "image", "image": pictures[p]} if p in pictures else {"type": "text", "text": p} for p in parts]
        messages.append({"role": "assistant" if i % 2 else "user", "content": content})
    return messages


def answer_chats(chats, answer):
    """Cases of answers.json: answer(turns) is the number of the prompt's tokens, the text and the log-probabilities. None where
    one of them is None."""
    cases = []
    for turns in chats:
        found = answer(turns)
        if found is None:
            return None
        cases.append({"turns": turns, "prompt_tokens": found[0], "answer": found[1], "logprobs": found[2]})
    return cases


def write_answers(folder, cases):
    assert cases, "another seed: two ids are nearly alike"
    (folder / "answers.json").write_text(json.dumps(cases) + "\n")
    open_to_all(folder)


def name_processor(folder, name):
    """The back end that made the answers, whose ending save_pretrained leaves out."""
    file = folder / "processor_config.json"
    written = json.loads(file.read_text())
    written["image_processor"]["image_processor_type"] = name
    file.write_text(json.dumps(written, indent=1) + "\n")
