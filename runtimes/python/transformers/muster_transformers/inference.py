"""The kind inference: a model and one item or many."""

from muster_core import run

from . import batches
from .backend import Backend
from .items import given_items, places
from .loading import Wanted
from .wire import Json

# What changes a prediction; the sizes of batches do not.
_SHAPING = ("max_new_tokens", "temperature", "top_p", "top_k", "repetition_penalty", "seed", "stop", "truncate", "normalize")


def inference(given: Json) -> Json:
    raws = given_items(given)
    wanted = Wanted.of(given)
    backend = Backend(wanted)
    params = {k: given[k] for k in (*_SHAPING, "batch_size", "auto_batch", "on_error") if given.get(k) is not None}
    of = {"wanted": wanted.message(), "field": given.get("field"), "system": given.get("system"), **{k: given.get(k) for k in _SHAPING}}
    records, figures = batches.through(backend, raws, params, of, what="item", at=places(given, "item"), field=given.get("field"), system=given.get("system"))
    batches.save(records, "predictions.jsonl")
    predictions, complete = batches.shown(records)
    records.close()
    return {
        "jobType": "inference",
        "status": "success",
        "predictions": predictions,
        "complete": complete,
        **batches.loaded(backend),
        **figures,
    }


if __name__ == "__main__":
    run(inference)
