"""The kinds' definitions say what the code takes, and the same of what they share."""

from dataclasses import fields
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
from muster_trl import settings  # noqa: E402 - after what it depends on

FOLDER = Path(__file__).parents[3] / "kinds"
INPUTS = {name: yaml.safe_load((FOLDER / name / "kind.yaml").read_text())["input"] for name in settings.KINDS}


@pytest.mark.parametrize("kind", settings.KINDS)
@pytest.mark.parametrize(("field", "cls"), [("training", settings.Training), ("lora", settings.Lora), ("dpo", settings.Dpo), ("ppo", settings.Ppo)])
def test_fields_and_defaults_are_those_of_the_code(kind, field, cls):
    if field not in INPUTS[kind]["properties"]:
        return
    said, known = INPUTS[kind]["properties"][field]["properties"], {f.name: f.default for f in fields(cls)}
    held_out = {"eval_split", "eval_steps", "early_stop"} if kind == "ppo" and field == "training" else set()
    assert set(said) == set(known) - held_out
    for name, schema in said.items():
        if "default" in schema and name != "keep_checkpoint":
            assert schema["default"] == known[name], name


def test_what_they_share_is_the_same():
    for field in ("model", "adapter", "checkpoint", "chat_template", "epochs", "batch_size", "learning_rate", "lora", "method"):
        assert len({str(i["properties"][field]) for i in INPUTS.values() if field in i["properties"]}) == 1, field
    for name in ("model", "dataset"):
        assert len({str(i["$defs"][name]) for i in INPUTS.values()}) == 1
