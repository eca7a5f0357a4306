"""The embedder all-MiniLM-L6-v2 on PyTorch or on ONNX Runtime: a process that embed_race.py asks over a pipe.

    embed_peers.py torch|onnx MODEL_FOLDER IDS_FILE

Reads commands, one a line, and answers each with a line of JSON:

    rate VARIANT THREADS BATCHES   {"rate": texts per second}
    vectors VARIANT FILE           {}, and a .npy file of one unit vector per text

IDS_FILE is .npy, token ids of whole batches: [texts, tokens], no padding, so neither side gets an attention mask; and
tokenizing is left out, which ours has to do. Both sides get the graph at its best: one product for queries, keys and
values, fused attention, no gradients. PyTorch's variants are f32, bf16 and bf16-compiled (torch.compile with weights
frozen); ONNX Runtime's are f32, built of its own fused operators, and int8, what its dynamic quantiser makes of that.
Needs torch, or onnx and onnxruntime; both need NumPy.
"""
import json
import pathlib
import struct
import sys
import tempfile
import time

import numpy as np

BATCH = 64


def read_safetensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(raw[8 + size :][slice(*t["data_offsets"])], {"F32": "<f4", "I64": "<i8"}[t["dtype"]])
            .reshape(t["shape"]) for name, t in header.items()}


class Model:
    """Weights under short names: transposed, so that rows times W is a layer, and Q, K and V side by side."""

    def __init__(self, folder):
        t = read_safetensors(folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        self.heads, self.epsilon = config["num_attention_heads"], config["layer_norm_eps"]
        self.words, self.positions, types, *self.norm = (
            t[f"embeddings.{n}"] for n in ("word_embeddings.weight", "position_embeddings.weight",
                                           "token_type_embeddings.weight", "LayerNorm.weight", "LayerNorm.bias"))
        self.types = types
        self.layers = [self.layer(t, f"encoder.layer.{i}.") for i in range(config["num_hidden_layers"])]

    @staticmethod
    def layer(t, at):
        def linear(name):
            return np.ascontiguousarray(t[f"{at}{name}.weight"].T), t[f"{at}{name}.bias"]

        def norm(name):
            return t[f"{at}{name}.LayerNorm.weight"], t[f"{at}{name}.LayerNorm.bias"]
        qkv = [linear(f"attention.self.{n}") for n in ("query", "key", "value")]
        return {"qkv": (np.concatenate([w for w, _ in qkv], 1), np.concatenate([b for _, b in qkv])),
                "out": linear("attention.output.dense"), "norm1": norm("attention.output"),
                "up": linear("intermediate.dense"), "down": linear("output.dense"), "norm2": norm("output")}


class Torch:
    def __init__(self, model):
        import torch
        self.torch, self.model, self.made = torch, model, {}

    def prepare(self, variant):
        if variant in self.made:
            return
        torch, m = self.torch, self.model
        dtype = torch.float32 if variant == "f32" else torch.bfloat16

        class Bert(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.numbers = torch.nn.ParameterList()
                self.words, self.norm = self.add(m.words), [self.add(x) for x in m.norm]
                self.places = self.add(m.positions + m.types[0])
                self.layers = [{name: tuple(self.add(x.T if x.ndim == 2 else x) for x in pair)
                                for name, pair in layer.items()} for layer in m.layers]

            def add(self, x):
                self.numbers.append(torch.nn.Parameter(torch.tensor(x).to(dtype).contiguous(), requires_grad=False))
                return self.numbers[-1]

            def forward(self, ids):
                f = torch.nn.functional
                n, length = ids.shape
                x = f.embedding(ids, self.words) + self.places[:length]
                x = f.layer_norm(x, x.shape[-1:], *self.norm, m.epsilon)
                for layer in self.layers:
                    qkv = f.linear(x, *layer["qkv"]).view(n, length, 3, m.heads, -1).permute(2, 0, 3, 1, 4)
                    y = f.scaled_dot_product_attention(*qkv).transpose(1, 2).reshape(x.shape)
                    x = f.layer_norm(x + f.linear(y, *layer["out"]), x.shape[-1:], *layer["norm1"], m.epsilon)
                    y = f.linear(f.gelu(f.linear(x, *layer["up"])), *layer["down"])
                    x = f.layer_norm(x + y, x.shape[-1:], *layer["norm2"], m.epsilon)
                return f.normalize(x.float().mean(1))

        network = Bert().eval()
        if variant.endswith("compiled"):
            import torch._inductor.config
            torch._inductor.config.freezing = True
            network = torch.compile(network)
        self.made[variant] = network

    def embed(self, variant, threads, ids):
        self.prepare(variant)
        self.torch.set_num_threads(threads)
        with self.torch.inference_mode():
            return self.made[variant](self.torch.from_numpy(ids)).numpy()


class Onnx:
    def __init__(self, model):
        self.folder = tempfile.TemporaryDirectory()
        self.files = {v: f"{self.folder.name}/{v}.onnx" for v in ("f32", "int8")}
        self.sessions = {}
        self.write(model)
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
        # The quantiser cannot infer what the fused operators return.
        quantize_dynamic(self.files["f32"], self.files["int8"], weight_type=QuantType.QInt8,
                         op_types_to_quantize=["MatMul", "Attention"], per_channel=True,
                         extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})

    def write(self, m):
        import onnx
        from onnx import helper
        nodes, weights = [], []

        def weight(name, value):
            weights.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
            return name

        def node(op, inputs, output, domain="", **attributes):
            nodes.append(helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes))
            return output

        def fused(op, inputs, output, **attributes):
            return node(op, inputs, output, "com.microsoft", **attributes)

        def product(x, at, pair):
            return node("MatMul", [x, weight(at + ".weight", pair[0])], at), weight(at + ".bias", pair[1])

        def norm(x, y, at, pair, bias):
            scale = [weight(f"{at}.{n}", value) for n, value in zip(("gamma", "beta"), pair)]
            return fused("SkipLayerNormalization", [x, y, *scale, bias], at, epsilon=m.epsilon)

        tables = [weight(n, x) for n, x in (("words", m.words), ("positions", m.positions), ("types", m.types),
                                            ("norm.gamma", m.norm[0]), ("norm.beta", m.norm[1]))]
        node("Cast", ["ids"], "ids32", to=onnx.TensorProto.INT32)
        nodes.append(helper.make_node("EmbedLayerNormalization", ["ids32", "", *tables], ["embedded", "unused"],
                                      name="embedded", domain="com.microsoft", epsilon=m.epsilon))
        x = "embedded"
        for i, layer in enumerate(m.layers):
            at = f"layer{i}."
            qkv = [weight(at + "qkv.weight", layer["qkv"][0]), weight(at + "qkv.bias", layer["qkv"][1])]
            y = fused("Attention", [x, *qkv], at + "attention", num_heads=m.heads)
            y, bias = product(y, at + "out", layer["out"])
            x = norm(y, x, at + "norm1", layer["norm1"], bias)
            y = fused("BiasGelu", [*product(x, at + "up", layer["up"])], at + "gelu")
            y, bias = product(y, at + "down", layer["down"])
            x = norm(y, x, at + "norm2", layer["norm2"], bias)
        mean = node("ReduceMean", [x, weight("axis", np.array([1], np.int64))], "mean", keepdims=0)
        node("LpNormalization", [mean], "vectors", axis=-1, p=2)
        value = helper.make_tensor_value_info
        graph = helper.make_graph(nodes, "minilm", [value("ids", onnx.TensorProto.INT64, ["n", "length"])],
                                  [value("vectors", onnx.TensorProto.FLOAT, ["n", m.words.shape[1]])], weights)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), self.files["f32"])

    def embed(self, variant, threads, ids):
        import onnxruntime
        if (variant, threads) not in self.sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
            self.sessions[variant, threads] = onnxruntime.InferenceSession(self.files[variant], options,
                                                                           ["CPUExecutionProvider"])
        return self.sessions[variant, threads].run(None, {"ids": ids})[0]


def main():
    engine, folder, ids_file = sys.argv[1:]
    engine = {"torch": Torch, "onnx": Onnx}[engine](Model(pathlib.Path(folder)))
    ids = np.load(ids_file)
    batches = [ids[i : i + BATCH] for i in range(0, len(ids), BATCH)]
    for line in sys.stdin:
        command, variant, *more = line.split()
        if command == "vectors":
            np.save(more[0], np.concatenate([engine.embed(variant, 1, b) for b in batches]))
            answer = {}
        else:
            threads, count = map(int, more)
            start = time.perf_counter()
            for i in range(count):
                engine.embed(variant, threads, batches[i % len(batches)])
            answer = {"rate": count * BATCH / (time.perf_counter() - start)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
