#!/usr/bin/env python3
"""Writes tests/golden/embedder: 200 texts and their vectors by sentence-transformers, the reference of the embedder.

    python tests/reference/make_embedder_fixture.py MODEL_FOLDER [OUT_FOLDER]

MODEL_FOLDER is all-MiniLM-L6-v2 as tools/deps.sh unpacks it. Needs `pip install sentence-transformers safetensors`, which
brings PyTorch; `make test` does not: it reads what this script wrote. The kept files were made with sentence-transformers
6.2.0, transformers 5.23.0, torch 2.15.0, CPU float32; meta.json beside them records that and the model's checksum.

texts.jsonl          one {"name", "text"} a line; the group is the name up to its last dash
vectors.safetensors  "vectors" f32 [200, 384], row i belongs to line i; unit length; "tokens" i32 [200], how many ids the
                     model read, [CLS] and [SEP] included, never above max_seq_length 256
meta.json            versions, model file checksum

Pooling and normalisation are those of the folder's modules.json. The texts are ours, so no licence but the project's.
"""
import hashlib
import json
import pathlib
import random
import sys

import numpy as np
import sentence_transformers
import torch
import transformers
from safetensors.numpy import save_file

GROUPS = {
    "word": ["hello", "a", "Zebra", "antidisestablishmentarianism", "x86_64", "naïve", "42", "3.14159", "RETRO", "fork()"],
    "short": [
        "How do I list open files?",
        "The quick brown fox jumps over the lazy dog.",
        "Retrieval helps a small model copy the right words.",
        "what is the difference between a process and a thread",
        "Returns zero on success, -1 on error.",
        "It's the reader's choice, isn't it? They're sure; we'd agree.",
        "E-mail someone@example.org or see https://example.org/a/b?c=d&e=%20f#g",
        "Prices: $12.50, €9, £7.99, ¥1000 (about 20% off)!",
        "ALL CAPITALS SHOUT, all lowercase whispers, MiXeD cAsE wanders.",
        "1st, 2nd, 3rd, 22nd, 1,234,567.89 and 0x7fff_ffff",
    ],
    "manual": [
        "NAME\n    copy - copy a file to another place\n\nSYNOPSIS\n    copy [-fv] SOURCE TARGET\n\nDESCRIPTION\n    Copies SOURCE "
        "to TARGET. When TARGET is a folder, the copy keeps the name of SOURCE.",
        "-v, --verbose\n    Print the name of every file before it is read. Given twice, print what is skipped too.",
        "The call blocks until data arrives, the descriptor is closed by another thread, or a signal handler returns. "
        "On Linux a positive timeout is rounded up to the granularity of the system clock.",
        "EAGAIN  The descriptor is marked non-blocking and no data is available right now.\nEBADF   The descriptor is not "
        "valid or is not open for reading.\nEFAULT  The buffer is outside the address space of the process.",
        "EXIT STATUS\n    0 when every file was read, 1 when some were skipped, 2 when the command line is wrong.",
        "The option takes a glob, not a regular expression: * matches any string without a slash, ? one character, and "
        "[a-z] one character of the range. A leading dot is never matched by a wildcard.",
        "SEE ALSO\n    read(2), select(2), epoll(7), aio(7)",
        "Variables of the environment are searched first, then the file ~/.config/tool.conf, then /etc/tool.conf. The first "
        "value found wins, and an empty value counts as found.",
        "BUGS\n    Names with newlines are printed as they are. There is no way to quote them.",
        "By default the daemon listens on the loopback address only. To serve other machines, set the address in its "
        "configuration and open the port in the firewall; neither happens by installing the package.",
    ],
    "code": [
        "int main(void) {\n\tprintf(\"%d\\n\", 1 << 5);\n\treturn 0;\n}\n",
        "for i in range(10):\n    if i % 2 == 0:\n        print(f\"{i:>4d}\")\n",
        "SELECT name, COUNT(*) AS n FROM files WHERE size > 1024 GROUP BY name HAVING n > 1 ORDER BY n DESC;",
        "find . -name '*.c' -print0 | xargs -0 grep -nE '\\b(malloc|free)\\b' > /dev/null 2>&1 && echo \"$?\"",
        "#define MIN(a, b) ((a) < (b) ? (a) : (b))",
        "<ul class=\"nav\"><li><a href=\"#top\">Top &amp; more</a></li></ul>",
        "{\"k\": 2, \"list\": [1, 2.5e-3, null, true], \"nested\": {\"empty\": {}}}",
        "fn area(r: f64) -> Option<f64> { if r < 0.0 { None } else { Some(std::f64::consts::PI * r.powi(2)) } }",
        "a[i]=b[i]+c[i]*d[i];x^=y;x|=~z;p->q.r=&s;",
        "\\begin{equation} E = mc^2 \\label{eq:e} \\end{equation}",
    ],
    "table": [
        "| option | default | meaning |\n|---|---|---|\n| k | 2 | neighbours |\n| port | 8080 | where it listens |\n",
        "PID   USER   %CPU  COMMAND\n  1   root    0.0  init\n 42   alice   3.1  editor\n907   bob    99.9  compiler\n",
        "name,size,date\na.txt,12,2023-01-31\nb.txt,0,1999-12-31\n",
        "+-----+-----+\n| yes | no  |\n+-----+-----+\n",
        "0000000 7f 45 4c 46 02 01 01 00 00 00 00 00 00 00 00 00\n0000020 03 00 3e 00 01 00 00 00 50 10 00 00 00 00 00 00",
    ],
    "language": [
        "Der Prozess wartet, bis alle Größen überprüft sind; danach schließt er die Datei.",
        "Le noyau vérifie l'accès à la mémoire, puis il rend la main à l'élève qui a appelé.",
        "El niño pidió que la señal llegara mañana; ¿por qué no llegó?",
        "Não há memória suficiente para a operação, tente mais tarde.",
        "Il programma non può più aprire la connessione: perché?",
        "Zażółć gęślą jaźń, a potem wyłącz światło.",
        "Příliš žluťoučký kůň úpěl ďábelské ódy.",
        "Árvíztűrő tükörfúrógép.",
        "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul'da ıssız bir sokak.",
        "Съешь же ещё этих мягких французских булок да выпей чаю.",
        "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
        "כל אדם נולד חופשי ושווה בכבוד ובזכויות.",
        "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
        "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।",
        "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน",
        "Tất cả mọi người sinh ra đều được tự do và bình đẳng.",
        "ყველა ადამიანი იბადება თავისუფალი.",
        "Բոլոր մարդիկ ծնվում են ազատ։",
        "எல்லா மனிதரும் சுதந்திரமாகப் பிறக்கின்றனர்.",
        "Þetta er íslenska, og Ægir á öl. Čeština, øl, ångström, straße.",
    ],
    "cjk": [
        "进程在读取文件时被阻塞。",
        "人人生而自由，在尊严和权利上一律平等。",
        "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。",
        "ファイルを開くことができませんでした。ｶﾀｶﾅ　ＦＵＬＬＷＩＤＴＨ　１２３",
        "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
        "混合 English と 中文 and 한국어 in one line, version 2.0版",
        "龍龘𠀀𪚥 rare ideographs",
        "「引用」『二重』【括弧】、。・…",
    ],
    "emoji": [
        "🙂",
        "Ship it 🚀🚀🚀 now!",
        "Family: 👨‍👩‍👧‍👦, flags: 🇩🇪🇯🇵, skin: 👍🏽, keycap: 3️⃣",
        "I ❤️ retrieval ☕ and ♫ music ♻",
        "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒎𝒂𝒕𝒉 ½ ² ① Ⅷ ﬁ ﬂ",
    ],
    "accent": [
        "Crème brûlée à la façon d'Hélène",
        "Cre\u0300me bru\u0302le\u0301e decomposed",
        "Z\u0351\u036b\u0343a\u0334\u0321l\u0337g\u0336o\u0335 combining marks stacked",
        "Ǻngström Ǿ ǽ Ḍḥṣ ṭ ẞ ÿ",
        "ĲSSEL ǈ Ǆ ŉ",
    ],
    "punctuation": [
        "...",
        "!?!?!?",
        "()[]{}<>",
        "-- --- ----",
        "\"'`´“”‘’«»‹›",
        "@#$%^&*_+=|\\~/",
        "¡¿§¶†‡•…‰",
        "a.b,c;d:e!f?g-h_i/j\\k",
    ],
    "space": [
        "",
        " ",
        "\n\n\n",
        "\t \r\n \u00a0 \u2003 \u3000",
        "   leading and trailing   ",
        "tabs\tand\nnewlines\r\nand\u00a0no-break\u2009thin\u200bzero\u200dwidth\ufeffmark",
        "soft\u00adhyphen and \u202ebidi\u202c controls \u0007 bell \u007f delete",
        "one\u2028line\u2029paragraph",
    ],
    "unknown": [
        "\ufffd",
        "\U0010ffff \ue000 private and unassigned",
        "𓀀𓁐 hieroglyphs, 𐎀 ugaritic, ᚠᚢᚦ runes",
        "w" * 100,
        "w" * 101,
        "supercalifragilistic" * 6 + " then a word",
        "[CLS] [SEP] [MASK] [PAD] [UNK] written by hand",
    ],
}

# Sentences that the long texts are drawn from.
SENTENCES = [
    "A chunk is a run of sixty-four tokens.",
    "The server reads the neighbours of the chunk it has just closed.",
    "When the queue is full, the client is told to come back later.",
    "Pages that were never touched cost nothing.",
    "The scheduler prefers requests that already hold memory.",
    "An index of type IVF visits only a few lists.",
    "Checksums are verified before anything is parsed.",
    "Set the option to zero to use every processor the process may run on.",
    "The default is sixty seconds (see timeout below).",
    "Older versions wrote the file in place, which lost it when the power failed.",
    "If both are given, the last one on the command line wins!",
    "Does it work over a slow network? Yes, with a larger window.",
    "The weights are stored in bfloat16, 2 bytes each.",
    "Use `tool --help` for the list of sub-commands.",
    "Die Ausgabe erscheint auf der Standardausgabe.",
    "La commande échoue si le répertoire n'existe pas.",
    "システムコールはエラー番号を返します。",
    "Память освобождается при завершении процесса.",
    "x = (a + b) * c - d / e;",
    "See section 4.2.1, table 7, and appendix B-3.",
]

COUNT = 200


def boundary_texts():
    """Word counts on both sides of max_seq_length 256 ([CLS] and [SEP] leave 254 for words of one piece each)."""
    return [("boundary", " ".join(["word"] * n)) for n in (61, 62, 63, 125, 126, 127, 253, 254, 255, 256, 510, 1000)]


def long_texts(count):
    """Texts of 2 to 24 sentences: every length up to beyond the limit occurs."""
    rng = random.Random(7)
    texts = []
    for i in range(count):
        n = 2 + i * 22 // max(count - 1, 1)
        texts.append(("long", rng.choice([" ", "\n", "  "]).join(rng.choice(SENTENCES) for _ in range(n))))
    return texts


def all_texts():
    texts = [(group, text) for group, members in GROUPS.items() for text in members] + boundary_texts()
    texts += long_texts(COUNT - len(texts))
    seen, named = {}, []
    for group, text in texts:
        seen[group] = seen.get(group, 0) + 1
        named.append((f"{group}-{seen[group]}", text))
    assert len(named) == COUNT and len({t for _, t in named}) == COUNT
    return named


def main():
    folder = pathlib.Path(sys.argv[1])
    out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent.parent / "golden" / "embedder")
    out.mkdir(parents=True, exist_ok=True)
    named = all_texts()
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    assert model.max_seq_length == 256
    # One text a batch: the reference must not depend on padding.
    vectors = np.concatenate([model.encode([text], batch_size=1, show_progress_bar=False) for _, text in named])
    assert vectors.dtype == np.float32 and vectors.shape == (COUNT, 384)
    assert np.abs(np.linalg.norm(vectors.astype(np.float64), axis=1) - 1).max() < 1e-6
    tokens = np.array([int(model.preprocess([text])["attention_mask"].sum()) for _, text in named], np.int32)
    assert tokens.max() == 256

    with open(out / "texts.jsonl", "w", encoding="utf-8") as f:
        for name, text in named:
            f.write(json.dumps({"name": name, "text": text}, ensure_ascii=False) + "\n")
    save_file({"vectors": vectors, "tokens": tokens}, out / "vectors.safetensors", metadata={"format": "np"})
    meta = {
        "model": "all-MiniLM-L6-v2",
        "model.safetensors sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "max_seq_length": model.max_seq_length,
        "sentence-transformers": sentence_transformers.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
        "numpy": np.__version__,
        "device": "cpu, float32, one text a batch",
    }
    (out / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    print(f"{COUNT} texts, {tokens.min()} to {tokens.max()} tokens, vectors {vectors.shape} in {out}")


if __name__ == "__main__":
    main()
