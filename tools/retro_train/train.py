"""The training loop: one run folder with run.json, checkpoint.pt, curves.jsonl and curves.png.

A run is a function of its configuration: batches depend on the seed and the step number, so a run that was killed goes on
from its checkpoint to the identical curve. With a time budget the schedule follows the clock, and no two runs are the same.

A flat run has no budget: it goes on until it is told to stop (SIGTERM, Ctrl-C). A run "from" another begins with its weights,
optimiser state and step number: a short run of the schedule "linear" makes a model to ship of a flat run that goes on.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from . import native
from .config import ModelConfig
from .data import Batches, NeighbourOptions, read_training_data
from .evaluate import evaluate
from .export import load_model
from .files import read_json, replace_file, write_json
from .init import copy_init
from .model import Retro
from .neighbours import read_neighbours
from .optim import SCHEDULES, Optimiser, learning_rate
from .tokenizer import Vocabulary


@dataclass
class TrainOptions:
    sequence: int = 512
    batch: int = 8  # sequences a step, over all ranks
    accumulate: int = 1  # parts a batch is computed in, to save memory
    steps: int | None = None  # a budget of steps, or
    minutes: float | None = None  # of time
    optimizer: str = "adamw"  # or "muon"
    learning_rate: float = 3e-3
    schedule: str = "cosine"  # or "flat-linear", "linear", or "flat": without a budget
    warmup_steps: int = 100
    flat_until: float = 0.3
    final_rate: float = 0.02  # of the learning rate, at the end
    weight_decay: float = 0.05
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    clip: float = 1.0
    init: str = "copy"  # or "normal"; not used when the run starts from a model
    freeze_base: bool = False  # Retro-fit: only encoder and cross attention learn
    dtype: str = "auto"  # "f32", "bf16" (autocast); auto: bf16 on a GPU
    compile: bool = False
    workers: int = 0  # processes that make batches ahead of the steps
    native: bool = False  # native.c: for CPUs in bfloat16
    seed: int = 0
    checkpoint_minutes: float = 5.0
    log_every: int = 10
    evaluate_every: int = 200  # steps; 0: never
    evaluate_documents: int = 20

    def __post_init__(self):
        if self.schedule not in SCHEDULES:
            raise ValueError(f'train: schedule "{self.schedule}", known are {", ".join(SCHEDULES)}')
        budgets = (self.steps is not None) + (self.minutes is not None)
        if budgets != (self.schedule != "flat"):
            raise ValueError('train: give either steps or minutes; a run of the schedule "flat" has neither')
        if self.batch % self.accumulate:
            raise ValueError(f"train: a batch of {self.batch} cannot be computed in {self.accumulate} parts")


def only_known(cls, values, where):
    """Options are typed by people: an unknown one is a mistake to report."""
    known = {f.name for f in dataclasses.fields(cls)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    return cls(**values)


class Run:
    """A run folder and its configuration: {"model" | "start" | "from", "data", "train", "neighbours"}."""

    def __init__(self, folder, config, home):
        unknown = sorted(set(config) - {"model", "start", "from", "data", "train", "neighbours"})
        if unknown or len({"model", "start", "from"} & set(config)) != 1 or "data" not in config:
            raise ValueError(f'run: needs "data" and one of "model", "start", "from"; unknown: {unknown}')
        self.folder, self.config = Path(folder), config
        self.data = (home / config["data"]).resolve()
        self.start = (home / config["start"]).resolve() if "start" in config else None  # a model folder
        self.parent = Run.open((home / config["from"]).resolve()) if "from" in config else None
        if self.parent:
            self.model_config = self.parent.model_config
        else:
            self.model_config = ModelConfig.load(self.start) if self.start else ModelConfig.from_dict(config["model"])
        self.options = only_known(TrainOptions, config.get("train", {}), "train")
        self.neighbours = only_known(NeighbourOptions, config.get("neighbours", {}), "neighbours")
        self.checkpoint, self.curves = self.folder / "checkpoint.pt", self.folder / "curves.jsonl"

    @classmethod
    def create(cls, config_path, folder):
        """Keeps the configuration in the folder, with absolute paths; a folder of another configuration is refused."""
        config_path, folder = Path(config_path), Path(folder)
        run = cls(folder, read_json(config_path), config_path.resolve().parent)
        kept = run.config | {"data": str(run.data)} | ({"start": str(run.start)} if run.start else {})
        kept |= {"from": str(run.parent.folder)} if run.parent else {}
        if (folder / "run.json").exists() and read_json(folder / "run.json") != kept:
            raise ValueError(f"{folder}: holds a run of another configuration; choose another folder or remove it")
        if int(os.environ.get("RANK", 0)) == 0:  # of torchrun's processes, which all come here
            write_json(folder / "run.json", kept)
        return run

    @classmethod
    def open(cls, folder):
        return cls(folder, read_json(Path(folder) / "run.json"), Path("/"))


class Ranks:
    """torchrun's processes; one alone without it."""

    def __init__(self):
        self.count, self.number = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        local = int(os.environ.get("LOCAL_RANK", 0))
        self.device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            # cuDNN's attention plans every new number of rows anew, 5 ms of a CPU a call, and each step has another one.
            torch.backends.cuda.enable_cudnn_sdp(False)
        if self.count > 1:
            torch.distributed.init_process_group("nccl" if self.device.type == "cuda" else "gloo")

    @property
    def first(self):
        return self.number == 0

    def same(self, value):
        """Rank 0's value on all: decisions by the clock must be taken together."""
        if self.count == 1:
            return value
        t = torch.tensor([value], dtype=torch.float64, device=self.device)
        torch.distributed.broadcast(t, 0)
        return t.item()

    def mean(self, value):
        if self.count > 1:
            torch.distributed.all_reduce(value, torch.distributed.ReduceOp.AVG if value.is_cuda else torch.distributed.ReduceOp.SUM)
            value = value if value.is_cuda else value / self.count
        return value


def make_model(run):
    torch.manual_seed(run.options.seed)
    if run.parent:
        model = Retro(run.model_config)  # the parent's weights follow with its optimiser's state
    elif run.start:
        model = load_model(run.start).train()
    else:
        model = Retro(run.model_config)
        if run.model_config.architecture == "retro" and run.options.init == "copy":
            copy_init(model)
        elif run.options.init not in ("copy", "normal"):
            raise ValueError(f'init "{run.options.init}", known are copy and normal')
    if run.options.freeze_base:
        for name, p in model.named_parameters():
            p.requires_grad_("cross_attention" in name or "pre_cross_attn_layernorm" in name)
    return model


def ignore_interrupts(_):
    """A Ctrl-C reaches the processes that make batches too; the trainer needs them until its step ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Trainer:
    def __init__(self, run, ranks):
        self.run, self.ranks, self.o = run, ranks, run.options
        self.data = read_training_data(run.data, run.model_config, self.o.sequence, self.o.batch, self.o.seed, run.neighbours)
        self.collection = self.data.collection
        self.model = make_model(run).to(ranks.device)
        self.optimiser = Optimiser(self.model, self.o)
        self.step, self.first, self.seconds, self.tokens, self.mean_loss = 0, 0, 0.0, 0, torch.tensor(float("nan"))
        self.stopped = False
        if self.o.native:
            native.switch_on()
        if run.checkpoint.exists():
            self.resume()
        else:
            self.begin()
        if self.o.compile:  # layer by layer: a graph for each kind of layer is compiled in a fraction of the whole's time
            for layer in self.model.decoder.layers:
                layer.compile()
        self.ahead = self.batches()
        self.net = torch.nn.parallel.DistributedDataParallel(self.model) if ranks.count > 1 else self.model
        self.validation = self.read_validation() if self.o.evaluate_every and ranks.first else None

    def autocast(self):
        bf16 = self.o.dtype == "bf16" or (self.o.dtype == "auto" and self.ranks.device.type == "cuda")
        return torch.autocast(self.ranks.device.type, torch.bfloat16) if bf16 else contextlib.nullcontext()

    def progress(self):
        """The share of the run that is over, by this process's clock."""
        if self.o.schedule == "flat":
            return 0.0
        return (self.step - self.first) / self.o.steps if self.o.steps else self.seconds / (60 * self.o.minutes)

    def places(self):
        """(step, progress) of the steps to come. With workers a budget of time is asked a few steps early."""
        for step in itertools.count(self.step):
            yield step, (step - self.first) / self.o.steps if self.o.steps else self.progress()

    def batches(self):
        return iter(torch.utils.data.DataLoader(Batches(self.data, self.ranks.number, self.ranks.count), batch_size=None,
                                                sampler=self.places(), num_workers=self.o.workers, worker_init_fn=ignore_interrupts,
                                                pin_memory=self.ranks.device.type == "cuda"))

    @property
    def loss(self):
        """Of the last step. Whoever asks waits for a GPU to end that step."""
        return self.mean_loss.item()

    def train_step(self, progress):
        batch = next(self.ahead).to(self.ranks.device)
        rows, total = len(batch.ids), torch.zeros((), device=self.ranks.device)
        part = max(1, rows // self.o.accumulate)
        scored = (batch.targets >= 0).sum()
        for at in range(0, rows, part):
            piece = [None if t is None else t[at : at + part] for t in
                     (batch.ids, batch.targets, batch.neighbours, batch.f, batch.counts, batch.periods)]
            with self.autocast():
                # Each part weighs as many scored tokens as it has, so that accumulation changes nothing but memory.
                loss = self.net(*piece) * (piece[1] >= 0).sum() / scored
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.optimiser.parameters, self.o.clip)
        self.optimiser.step(learning_rate(self.o, self.step, progress))
        self.mean_loss = self.ranks.mean(total)
        self.tokens += self.o.batch * self.o.sequence
        self.step += 1

    def summary(self):
        o = self.o
        device = torch.cuda.get_device_name() if self.ranks.device.type == "cuda" else "CPU"
        return {"name": self.run.folder.name, "step": self.step, "first": self.first, "tokens": self.tokens, "seconds": self.seconds,
                "loss": self.loss, "device": device, "seed": o.seed, "optimizer": o.optimizer,
                "init": self.origin()}

    def origin(self):
        if self.run.parent:
            return f"step {self.first} of {self.run.parent.folder.name}"
        return self.run.start.name if self.run.start else self.o.init

    def save(self):
        state = {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "summary": self.summary()}
        replace_file(self.run.checkpoint, lambda path: torch.save(state, path))

    def load(self, checkpoint):
        state = torch.load(checkpoint, map_location=self.ranks.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        s = state["summary"]
        self.step, self.first, self.seconds, self.tokens = s["step"], s["first"], s["seconds"], s["tokens"]
        self.mean_loss = torch.tensor(s["loss"])

    def begin(self):
        if self.run.parent:
            self.load(self.run.parent.checkpoint)
            self.first, self.seconds = self.step, 0.0
        if self.ranks.first:
            self.run.curves.unlink(missing_ok=True)
            if self.run.parent:
                self.save()  # the parent goes on, and its checkpoint with it

    def resume(self):
        self.load(self.run.checkpoint)
        if self.ranks.first:  # what was logged after the checkpoint will be logged again
            lines = [x for x in self.run.curves.read_text().splitlines() if x] if self.run.curves.exists() else []
            kept = [x for x in map(whole_json, lines) if x is not None and x["step"] <= self.step]
            self.run.curves.write_text("".join(json.dumps(x) + "\n" for x in kept))
            print(f"resumed at step {self.step}", flush=True)

    def log(self, record):
        with open(self.run.curves, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self.step, "tokens": self.tokens} | record) + "\n")

    def read_validation(self):
        """Token arrays and neighbour ids of the first validation documents."""
        from .corpus import prepared_documents

        vocabulary = Vocabulary(self.run.data / "model/tokenizer.json")
        texts = prepared_documents(self.run.data, "valid")[: self.o.evaluate_documents]
        documents, m = [vocabulary.encode(text) for _, text in texts], self.collection.m
        found = None
        if self.run.model_config.architecture == "retro":
            found = read_neighbours(self.run.data / "valid.neighbours").ids[: sum(len(d) // m for d in documents)]
            found = found[:, : self.run.model_config.retro_num_neighbors]
        return vocabulary, documents, found

    def evaluate(self):
        vocabulary, documents, found = self.validation
        # Windows of every length would each be compiled.
        with self.autocast(), torch.compiler.set_stance("force_eager"):
            result = evaluate(self.model, documents, vocabulary, self.o.sequence, found, self.collection,
                              device=self.ranks.device)
        self.log({mode: v["bits_per_byte"] for mode, v in result["modes"].items()})
        print()
        print(f"step {self.step} valid bits/byte: " + ", ".join(f"{m} {v['bits_per_byte']:.4f}" for m, v in result["modes"].items()),
              flush=True)

    def line(self, speed):
        share = self.progress()
        left = f"ETA {max(0.0, self.seconds * (1 / share - 1) / 60):.1f} min" if share > 0 else ""
        last = f"/{self.first + self.o.steps}" if self.o.steps else ""
        print(f"\rstep {self.step}{last}  loss {self.loss:.4f}  {speed:,.0f} tokens/s  {left}   ", end="", flush=True)

    def stop(self, *_):
        self.stopped = True

    def run_all(self):
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self.stop)
        saved = time.monotonic()
        told = self.step, self.seconds
        while (progress := self.ranks.same(1.0 if self.stopped else self.progress())) < 1:
            began = time.monotonic()
            self.train_step(progress)
            self.seconds += time.monotonic() - began
            if not self.ranks.first:
                continue
            if self.step % self.o.log_every == 0 or self.progress() >= 1:
                waited = time.monotonic()
                self.log({"loss": self.loss})
                self.seconds += time.monotonic() - waited
                self.line(self.o.batch * self.o.sequence * (self.step - told[0]) / (self.seconds - told[1]))
                told = self.step, self.seconds
            if self.validation and self.step % self.o.evaluate_every == 0:
                self.evaluate()
            if time.monotonic() - saved >= 60 * self.o.checkpoint_minutes:
                self.save()
                saved = time.monotonic()
        if self.ranks.first:
            self.save()
            print()
            plot(self.run.curves, self.run.folder / "curves.png")


def whole_json(line):
    """The record of a line, None for a line that a kill cut off."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def plot(curves, path):
    """Loss and bits per byte over tokens."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = [json.loads(line) for line in Path(curves).read_text().splitlines()]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4))
    for axis, names, label in ((axes[0], ["loss"], "training loss, nats/token"), (axes[1], ["on", "off", "random"], "validation, bits/byte")):
        for name in names:
            points = [(r["tokens"] / 1e6, r[name]) for r in records if name in r]
            if points:
                axis.plot(*zip(*points), label=name)
        axis.set_xlabel("million tokens")
        axis.set_ylabel(label)
        if axis.lines:
            axis.legend()
    figure.tight_layout()
    replace_file(path, lambda p: figure.savefig(p, format="png", dpi=100))
    plt.close(figure)


def train(config_path, folder):
    run = Run.create(config_path, folder)
    ranks = Ranks()
    try:
        Trainer(run, ranks).run_all()
    finally:
        if ranks.count > 1:
            torch.distributed.destroy_process_group()
    return run
