"""Tasks of lm-eval over local JSONL files: a choice, a text's likelihood, and a text that is written on."""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import downloaded  # noqa: E402

CHOICES = [{"question": f"The number {i} is", "choices": [" even", " odd", " prime"], "label": i % 2} for i in range(3)]
TEXTS = [{"text": f"A pipe joins {i} processes: what one writes, the other reads."} for i in range(3)]
PROMPTS = [{"prompt": f"Count from {i}:", "answer": "x"} for i in range(2)]
TASKS = {
    "local_choice": (CHOICES, "output_type: multiple_choice\ndoc_to_text: '{{question}}'\ndoc_to_choice: '{{choices}}'\n"
                              "doc_to_target: label\nmetric_list: [{metric: acc}]\n"),
    "local_text": (TEXTS, "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{text}}'\n"
                          "metric_list: [{metric: word_perplexity}]\n"),
    "local_writing": (PROMPTS, "output_type: generate_until\ndoc_to_text: '{{prompt}}'\ndoc_to_target: '{{answer}}'\n"
                               "generation_kwargs: {until: ['\\n\\n'], max_gen_toks: 8, do_sample: false, temperature: 0}\n"
                               "metric_list: [{metric: exact_match}]\n"),
}


def write_model(folder):
    """The tiny Llama of tests/downloaded.py, with a template that writes the last message."""
    downloaded.write_folder(folder, {"do_sample": False})
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    return folder


def write_tasks(folder):
    for name, (rows, text) in TASKS.items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(
            f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\ntest_split: test\n" + text)
    return folder


def evaluate(model, model_args, folder, tasks=tuple(TASKS), **options):
    """What the model answered to each document of each task, and the tasks' results."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    done = lm_eval.simple_evaluate(model=model, model_args=model_args, tasks=list(tasks), task_manager=manager,
                                   log_samples=True, bootstrap_iters=0, **options)
    answers = {task: [sample["filtered_resps"] for sample in sorted(done["samples"][task], key=lambda s: s["doc_id"])]
               for task in tasks}
    results = {task: {k: v for k, v in done["results"][task].items() if isinstance(v, float) and "stderr" not in k}
               for task in tasks}
    return json.loads(json.dumps({"answers": answers, "results": results}))
