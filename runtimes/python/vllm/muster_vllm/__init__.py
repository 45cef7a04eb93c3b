"""The kinds of the runtime vllm."""
