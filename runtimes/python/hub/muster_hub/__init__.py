"""The kinds of the runtime hub, which has no PyTorch: they manage the projects' folders of models on a worker."""
