"""make_gguf_embedders.py PEERS OUT [KIND ...]: KIND.gguf of tests/golden/gguf: the embedder of tests/golden/embedder/KIND
with its tokenizer, as llama.cpp's own converter makes it. Its vectors are expected.safetensors there, or beside it
KIND.safetensors: of XLM-RoBERTa with a map of characters. PEERS is as make_gguf_families.py has it; the python that runs
this has sentence-transformers and sentencepiece."""

import io
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
import sentencepiece
from conversion import get_model_class
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

import make_embedder_goldens as goldens

EMBEDDERS = ("bert_cls", "xlm_mapped", "qwen3_last")


def small_charsmap():
    """A map of characters as XLM-RoBERTa's, of the few that the texts need."""
    rules = {"\t": " ", "\n": " ", "\u2028": " ", "\u3000": " ", "\u200b": " ", "\u00ad": "", "\ufb01": "fi", "²": "2", "½": "1/2"}
    rules |= {chr(c): chr(c - 0xfee0) for c in range(0xff01, 0xff5f)}
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as tsv:
        for old, new in rules.items():
            print(f"{ord(old):x}", " ".join(f"{ord(c):x}" for c in new), sep="\t", file=tsv)
        tsv.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(goldens.SENTENCES * 2), model_writer=model, vocab_size=120,
            normalization_rule_tsv=tsv.name, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def mapped_tokenizer():
    t = goldens.xlm_tokenizer()
    t._tokenizer.normalizer = normalizers.Precompiled(small_charsmap())
    return t


def set_mapped_vocab(model):
    """The converter takes runs of spaces for one where transformers cleans spaces up, which version 5 no longer says."""
    add = model.gguf_writer.add_remove_extra_whitespaces
    model.gguf_writer.add_remove_extra_whitespaces = lambda _: add(True)
    model._xlmroberta_set_vocab()


def make_mapped(out, scratch):
    """An embedder with such a map, and its vectors."""
    goldens.OUT = scratch
    goldens.KINDS["xlm_mapped"] = (mapped_tokenizer, goldens.xlm_model, goldens.KINDS["xlm_mean"][2], {}, 40, False)
    goldens.make("xlm_mapped")
    shutil.copy(scratch / "xlm_mapped/expected.safetensors", out / "xlm_mapped.safetensors")
    return scratch / "xlm_mapped"


def convert_embedder(kind, out):
    with tempfile.TemporaryDirectory() as scratch:
        folder = HERE.parent / "golden/embedder" / kind
        if kind == "xlm_mapped":
            folder = make_mapped(out, pathlib.Path(scratch))
        base = get_model_class(json.loads((folder / "config.json").read_text())["architectures"][0])
        own = {"model_arch": base.model_arch, "get_vocab_base_pre": lambda self, tokenizer: "qwen2"}
        if kind == "xlm_mapped":
            own["set_vocab"] = set_mapped_vocab
        type("Tiny", (base,), own)(folder, gguf.LlamaFileType.ALL_F32, out / f"{kind}.gguf").write()


def main():
    out = pathlib.Path(sys.argv[2])
    for kind in sys.argv[3:] or EMBEDDERS:
        convert_embedder(kind, out)


if __name__ == "__main__":
    main()
