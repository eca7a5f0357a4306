"""tools/gpu_check.sh with programs that stand in for those of a GPU, in a folder of its own: each stage runs, none loses
another's results, and the figures come out as the shares and ratios they stand for."""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

BENCH = """#!/bin/sh
say() { echo "{\\"by\\": \\"retro-server\\", \\"model\\": $1, \\"name\\": \\"$2\\", \\"value\\": $3, \\"unit\\": \\"x\\"}"; }
case "$*" in *--limits*) say null copy 2000; say null gemm 500; say '"m"' decode_bytes 2e9; say '"m"' row_weights 1e9;
say '"m"' decode.1 900; say '"m"' prefill.512 190000; printf '{"by": "retro-ser';;
*int8*) say '"m-int8"' decode_bytes 1e9; say '"m-int8"' decode.8 8000;;
search*) echo; echo "{\\"name\\": \\"search.$5.1\\", \\"threads\\": 2, \\"value\\": 0.5, \\"unit\\": \\"ms\\"}";; esac
"""
PYTHON = """#!/bin/sh
case "$1" in
tests/cuda/peer_torch.py) by=pytorch value=600
echo; [ "$2" != --compile ] || by="pytorch compiled" value=750
echo "{\\"by\\": \\"$by\\", \\"model\\": \\"m\\", \\"name\\": \\"decode.1\\", \\"value\\": $value, \\"unit\\": \\"x\\"}";;
*) exec /usr/bin/python3 "$@";;
esac
"""


def write(path, text):
    path.write_text(text)
    path.chmod(0o755)


def run(folder, *, ops, gpu, device="cuda:0"):
    """One run of the script; `ops` is what the op tests do, `gpu` whether nvidia-smi finds one and FAISS has its GPU part."""
    root, tools = folder / "root", folder / "bin"
    bundle, out = root / "build/gpu", root / "build/gpu-check"
    for part in (tools, bundle / "lib", *(root / f for f in ("kernels", "config", "retro", "retrieval", "tools", "tests/cuda",
                                                          "tests/ops", "tests/unit"))):
        part.mkdir(parents=True)
    for script in ("gpu_check.sh", "gpu_check_report.py"):
        shutil.copy(ROOT / "tools" / script, root / "tools")
    (root / "kernels/one.c").write_text("int one;\n")
    stamp = subprocess.run(["bash", "-c", "source tools/gpu_check.sh; sources_stamp"], cwd=root, capture_output=True,
                           text=True, check=True).stdout
    (bundle / "SOURCES").write_text(stamp)
    write(bundle / "test_cuda_ops", f"#!/bin/sh\n{ops}\n")
    write(bundle / "test_cuda_attention", "#!/bin/sh\necho '[  PASSED  ] 6 test(s).'\n")
    write(bundle / "test_cuda_blocks", "#!/bin/sh\necho '[  PASSED  ] 8 test(s).'\n")
    write(bundle / "test_cuda_experts", "#!/bin/sh\necho '[  PASSED  ] 7 test(s).'\n")
    write(bundle / "test_cuda_delta", "#!/bin/sh\necho '[  PASSED  ] 3 test(s).'\n")
    write(bundle / "test_cuda_steps", "#!/bin/sh\necho '[  PASSED  ] 2 test(s).'\n")
    if gpu:
        write(bundle / "test_index_gpu", "#!/bin/sh\necho '[  PASSED  ] 7 test(s).'\n")
    write(bundle / "retro-parity", "#!/bin/sh\necho '7 passed, 0 failed'\n")
    write(bundle / "retro-bench", BENCH)
    with tarfile.open(bundle / "programs.tar.xz", "w:xz") as packed:
        for program in bundle.iterdir():
            if os.access(program, os.X_OK) and program.is_file():
                packed.add(program, program.name)
                program.unlink()
    write(tools / "compute-sanitizer", "#!/bin/sh\necho '========= ERROR SUMMARY: 0 errors'\n")
    write(tools / "nvidia-smi", f"#!/bin/sh\n{'echo A GPU, 580.1, 80 MiB' if gpu else 'exit 9'}\n")
    write(tools / "python3", PYTHON)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(["tools/gpu_check.sh", "run", "--device", device], cwd=root, env=environment,
                          capture_output=True, text=True)
    assert (root / "docs/results/gpu.json").exists() == (gpu and device == "cuda:0")
    return done, json.loads((out / "gpu.json").read_text()), (out / "gpu.md").read_text()


def test_all_is_well(tmp_path):
    done, result, page = run(tmp_path, ops="echo '[  PASSED  ] 19 test(s).'", gpu=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [s["name"] for s in result["stages"]] == ["device", "build", "ops", "golden", "sanitizer", "bench"]
    assert all(s["status"] == 0 for s in result["stages"])
    assert (result["gpu"], result["driver"]) == ("A GPU", "580.1")
    assert result["ops"] == {"passed": 52, "failed": 0} and result["golden"] == {"passed": 14, "failed": 0}
    assert result["sanitizer"]["racecheck ops"] == "0 errors"
    assert "| the device | search.flat.1 | 0.5 ms |" in page and "| the device | search.ivf.1 | 0.5 ms |" in page
    shares = {row["name"]: row for row in result["derived"]}
    assert abs(shares["decode.1"]["share"] - 0.9) < 1e-9 and abs(shares["decode.1"]["peer"] - 1.2) < 1e-9
    assert shares["decode.1"]["peer_by"] == "pytorch compiled"
    assert abs(shares["prefill.512"]["share"] - 0.76) < 1e-9 and shares["prefill.512"]["peer"] is None
    assert abs(shares["decode.8"]["share"] - 0.5) < 1e-9
    assert "| m | decode.1 | 900 x | 900 .. 900 | 90 % | 600 | 750 | 1.20 |" in page
    assert "| m-int8 | decode.8 | 8000 x | 8000 .. 8000 | 50 % |  |  |  |" in page
    assert "| m decode.1 | of the ceiling | 90 % | 90 % | yes |" in page and "| m decode.1 | of PyTorch | 100 % | 120 % | yes |" in page
    assert "| m prefill.512 | of the ceiling | 80 % | 76 % | no |" in page


def test_results_are_kept_of_gpus_alone(tmp_path):
    run(tmp_path, ops="exit 0", gpu=True, device="cuda-host")


def test_a_failure_loses_nothing_else(tmp_path):
    done, result, page = run(tmp_path, ops="echo '[  FAILED  ] 2 test(s)'; exit 2", gpu=False)
    assert done.returncode == 1
    status = {s["name"]: s["status"] for s in result["stages"]}
    assert status["device"] == 1 and status["ops"] == 1 and status["golden"] == 0 and status["bench"] == 0
    assert result["gpu"] is None and result["ops"]["failed"] == 2
    assert "* missing: no FAISS with its GPU part" in page
    assert "finds no GPU" in page and "No GPU" in page
    assert result["sanitizer"]["memcheck blocks"] == result["sanitizer"]["memcheck experts"] == "0 errors"
