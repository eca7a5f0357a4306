"""Train a Retro model from documents, or Retro-fit a Hugging Face decoder; the result is a folder that retro-server serves.

The order to read: config, model (the mathematics), corpus, tokenizer, neighbours, data (what a batch is), init, optim, train,
evaluate, export, retrofit. docs/training.md walks through the commands.
"""
