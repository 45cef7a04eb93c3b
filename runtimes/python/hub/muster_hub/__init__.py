"""The kinds of the runtime hub, which has no PyTorch: what is done with the worker's folder of models."""
