"""Small models for the kinds: python models.py FOLDER"""

import sys
from pathlib import Path

root, folder = Path(__file__).resolve().parents[3], Path(sys.argv[1])
for runtime in ("transformers", "trl", "diffusers"):
    sys.path.append(str(root / "runtimes/python" / runtime / "tests"))

import tiny  # noqa: E402 - found now
import tiny_models  # noqa: E402
import tiny_pipelines  # noqa: E402

tiny.bert(folder / "bert")
tiny.gpt2(folder / "gpt2")
tiny_models.llama(folder / "llama")
tiny_pipelines.make(folder)
