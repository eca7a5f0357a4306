#!/usr/bin/env bash
# Makes models/retro-docs again: fetches the corpus, prepares it, trains the Retro model and a plain GPT of the same size on
# the same tokens, evaluates both on the held-out documents, and exports the model with its card.
#
#   tools/retro_docs/train.sh WORK         hours on a CPU; a run that was interrupted goes on where it was
#   tools/retro_docs/train.sh WORK large   on up to 180 manuals of each package of packages.txt too, and on questions
#
# Needs `make`, `make deps-train` and the environment that the latter makes:
#   . ~/.cache/retro-server/train-venv/bin/activate
set -euo pipefail

work=${1:?usage: train.sh WORK [large]}
set=${2:-training}
home=$(cd "$(dirname "$0")/../.." && pwd)
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000
retro_train() { (cd "$home" && python -m retro_train "$@"); }

mkdir -p "$work"
work=$(cd "$work" && pwd)
cp "$home"/tools/retro_docs/{retro,gpt}.json "$work/"
prepare=(--config "$work/retro.json" --documents "$work/corpus/text" --held-out 0.025 --max-characters 1000000)
[ "$set" = training ] || prepare+=(--max-files 180 --max-files-of "$home/tools/retro_docs/packages.txt" \
    --questions 40 --questions-except "$home/tools/manual_questions.jsonl")
if [ ! -f "$work/prepared" ]; then
    "$home/tools/fetch_corpus.sh" "$work/corpus" "$set"
    retro_train prepare "${prepare[@]}"
    touch "$work/prepared"
fi
for name in retro gpt; do
    retro_train train --config "$work/$name.json" --out "$work/$name"
    retro_train export --run "$work/$name" --out "$work/model-$name" --dtype bf16
done
retro_train evaluate --model "$work/model-retro" --gpt "$work/model-gpt" --data "$work/data" --out "$work/evaluation.json"
retro_train export --run "$work/retro" --out "$work/model-retro" --dtype bf16 --evaluation "$work/evaluation.json"
