"""Vision transformers with random weights on PyTorch or ONNX Runtime: a process that tower_race.py asks over a pipe.

    tower_peers.py torch|onnx SHAPE SIDE

SHAPE is a name of SHAPES, SIDE the pixels of a picture's side. Reads commands, one a line, and answers each with a line
of JSON:

    rate VARIANT THREADS PICTURES TIMES    {"rate": pictures per second, the median of TIMES}

Pixels are given, and positions are already of the picture's size. Both sides get the graph at its best: one product for
queries, keys and values, fused attention, no gradients. PyTorch's variants are f32 and bf16, each also compiled
(torch.compile with weights frozen); ONNX Runtime's is f32, built of its own fused operators. Needs torch, or onnx and
onnxruntime; both need NumPy.
"""
import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

SHAPES = {
    "clip-vit-l-14-336": {"layers": 24, "width": 1024, "heads": 16, "ffn": 4096, "patch": 14, "first": 1, "epsilon": 1e-5,
                          "quick": True, "norm_before": True},
    "radio-b": {"layers": 12, "width": 768, "heads": 12, "ffn": 3072, "patch": 16, "first": 8, "epsilon": 1e-6,
                "quick": False, "norm_before": False},
}


class Numbers:
    """Weights of one shape: matrices as [in, out]. Speed does not depend on them."""

    def __init__(self, shape, side):
        self.shape, self.random = shape, np.random.default_rng(1)
        self.patches = (side // shape["patch"]) ** 2
        width, ffn = shape["width"], shape["ffn"]
        self.patch = self.matrix(3 * shape["patch"] ** 2, width)
        self.first = self.matrix(shape["first"], width)
        self.positions = self.matrix(self.patches, width)
        self.before = self.norm()
        self.layers = [{"norm1": self.norm(), "qkv": self.linear(width, 3 * width), "out": self.linear(width, width),
                        "norm2": self.norm(), "up": self.linear(width, ffn), "down": self.linear(ffn, width)}
                       for _ in range(shape["layers"])]

    def matrix(self, rows, columns):
        return self.random.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)

    def linear(self, rows, columns):
        return self.matrix(rows, columns), self.matrix(1, columns)[0]

    def norm(self):
        width = self.shape["width"]
        return np.ones(width, np.float32), np.zeros(width, np.float32)


class Torch:
    def __init__(self, numbers):
        import torch
        self.torch, self.numbers, self.made = torch, numbers, {}

    def prepare(self, variant):
        if variant in self.made:
            return
        torch, numbers, shape = self.torch, self.numbers, self.numbers.shape
        dtype = torch.bfloat16 if variant.startswith("bf16") else torch.float32

        class Tower(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weights = torch.nn.ParameterList()
                side = shape["patch"]
                self.patch = self.add(numbers.patch.T.reshape(-1, 3, side, side))
                self.first, self.positions = self.add(numbers.first), self.add(numbers.positions)
                self.before = [self.add(x) for x in numbers.before]
                self.layers = [{name: tuple(self.add(x.T if x.ndim == 2 else x) for x in pair)
                                for name, pair in layer.items()} for layer in numbers.layers]

            def add(self, x):
                self.weights.append(torch.nn.Parameter(torch.tensor(x).to(dtype).contiguous(), requires_grad=False))
                return self.weights[-1]

            def norm(self, x, pair):
                return torch.nn.functional.layer_norm(x, x.shape[-1:], *pair, shape["epsilon"])

            def forward(self, pixels):
                f = torch.nn.functional
                n = len(pixels)
                x = f.conv2d(pixels.to(dtype), self.patch, stride=shape["patch"]).flatten(2).transpose(1, 2)
                x = torch.cat([self.first.expand(n, -1, -1), x + self.positions], 1)
                if shape["norm_before"]:
                    x = self.norm(x, self.before)
                for layer in self.layers:
                    qkv = f.linear(self.norm(x, layer["norm1"]), *layer["qkv"])
                    qkv = qkv.view(n, x.shape[1], 3, shape["heads"], -1).permute(2, 0, 3, 1, 4)
                    y = f.scaled_dot_product_attention(*qkv).transpose(1, 2).reshape(x.shape)
                    x = x + f.linear(y, *layer["out"])
                    y = f.linear(self.norm(x, layer["norm2"]), *layer["up"])
                    y = y * torch.sigmoid(1.702 * y) if shape["quick"] else f.gelu(y)
                    x = x + f.linear(y, *layer["down"])
                return x

        network = Tower().eval()
        if variant.endswith("compiled"):
            import torch._inductor.config
            torch._inductor.config.freezing = True
            network = torch.compile(network, dynamic=False)
        self.made[variant] = network

    def run(self, variant, threads, pixels):
        self.prepare(variant)
        self.torch.set_num_threads(threads)
        with self.torch.inference_mode():
            return self.made[variant](self.torch.from_numpy(pixels)).float().numpy()


class Onnx:
    def __init__(self, numbers):
        self.folder = tempfile.TemporaryDirectory()
        self.file, self.sessions = f"{self.folder.name}/tower.onnx", {}
        self.write(numbers)

    def write(self, numbers):
        import onnx
        from onnx import helper
        shape, nodes, weights = numbers.shape, [], []
        width, heads = shape["width"], shape["heads"]

        def weight(name, value):
            weights.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
            return name

        def node(op, inputs, output, domain="", **attributes):
            nodes.append(helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes))
            return output

        def fused(op, inputs, output, **attributes):
            return node(op, inputs, output, "com.microsoft", **attributes)

        def norm_inputs(at, pair):
            return [weight(f"{at}.{name}", value) for name, value in zip(("gamma", "beta"), pair)]

        def product(x, at, pair):
            return node("MatMul", [x, weight(at + ".weight", pair[0])], at), weight(at + ".bias", pair[1])

        def norm_sum(x, y, bias, at, pair):
            """The norm of x + y + bias, and that sum."""
            nodes.append(helper.make_node("SkipLayerNormalization", [y, x, *norm_inputs(at, pair), bias],
                                          [at, "", "", at + ".sum"], name=at, domain="com.microsoft",
                                          epsilon=shape["epsilon"]))
            return at, at + ".sum"

        side = shape["patch"]
        x = node("Conv", ["pixels", weight("patch", numbers.patch.T.reshape(-1, 3, side, side))], "conv",
                 strides=[side, side])
        x = node("Reshape", [x, weight("flat", np.array([0, width, -1]))], "patches")
        x = node("Add", [node("Transpose", [x], "rows", perm=[0, 2, 1]), weight("positions", numbers.positions)], "placed")
        node("Shape", ["pixels"], "pictures", start=0, end=1)
        node("Concat", ["pictures", weight("first.shape", np.array([shape["first"], width]))], "firsts.shape", axis=0)
        node("Expand", [weight("first", numbers.first), "firsts.shape"], "firsts")
        x = node("Concat", ["firsts", x], "joined", axis=1)
        if shape["norm_before"]:
            x = node("LayerNormalization", [x, *norm_inputs("before", numbers.before)], "before",
                     epsilon=shape["epsilon"])
        y = node("LayerNormalization", [x, *norm_inputs("enter", numbers.layers[0]["norm1"])], "enter",
                 epsilon=shape["epsilon"])
        for i, layer in enumerate(numbers.layers):
            at = f"layer{i}."
            if i:
                y, x = norm_sum(x, y, bias, at + "norm1", layer["norm1"])
            qkv, qkv_bias = product(y, at + "qkv", layer["qkv"])
            parts = [f"{at}{name}" for name in "qkv"]
            nodes.append(helper.make_node("Split", [qkv], parts, axis=-1, num_outputs=3, name=at + "split"))
            y = fused("MultiHeadAttention", [*parts, qkv_bias], at + "attention", num_heads=heads)
            y, bias = product(y, at + "out", layer["out"])
            y, x = norm_sum(x, y, bias, at + "norm2", layer["norm2"])
            y, bias = product(y, at + "up", layer["up"])
            if shape["quick"]:
                y = fused("QuickGelu", [node("Add", [y, bias], at + "wide")], at + "gelu", alpha=1.702)
            else:
                y = fused("BiasGelu", [y, bias], at + "gelu")
            y, bias = product(y, at + "down", layer["down"])
        node("Add", [x, node("Add", [y, bias], "last")], "out")
        value = helper.make_tensor_value_info
        graph = helper.make_graph(nodes, "tower", [value("pixels", onnx.TensorProto.FLOAT, ["n", 3, "height", "width"])],
                                  [value("out", onnx.TensorProto.FLOAT, ["n", "rows", width])], weights)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), self.file)

    def run(self, _, threads, pixels):
        import onnxruntime
        if threads not in self.sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
            self.sessions[threads] = onnxruntime.InferenceSession(self.file, options, ["CPUExecutionProvider"])
        return self.sessions[threads].run(None, {"pixels": pixels})[0]


def main():
    engine, name, side = sys.argv[1], pathlib.Path(sys.argv[2]).name, int(sys.argv[3])
    engine = {"torch": Torch, "onnx": Onnx}[engine](Numbers(SHAPES[name], side))
    warm = set()
    for line in sys.stdin:
        command, variant, *more = line.split()
        threads, pictures, times = map(int, more)
        pixels = np.random.default_rng(2).standard_normal((pictures, 3, side, side), dtype=np.float32)
        if (variant, threads, pictures) not in warm:
            engine.run(variant, threads, pixels)
            warm.add((variant, threads, pictures))
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            engine.run(variant, threads, pixels)
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"rate": pictures / statistics.median(seconds) if times else 0}), flush=True)


if __name__ == "__main__":
    main()
