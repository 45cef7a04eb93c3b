"""The kinds of the runtime hub, which has no PyTorch: they manage the worker's folder of models."""
