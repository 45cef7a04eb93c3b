"""Where a task's model is: in a warm host, or in the task itself."""

import os
import time
from typing import Any, Callable, List, Optional

from muster_core import Fail, log, report

from . import wire
from .loading import Wanted, load, quiet
from .wire import Json

Step = Callable[[Json], None]


class Backend:
    """A model to work with. It is in the warm host that the worker named, if there is one and the model may be shared; else, or when the host
    fails, it is loaded here."""

    def __init__(self, wanted: Wanted) -> None:
        quiet()
        self.wanted = wanted
        self.about: Json = {}
        self.warm = False  # whether the model was loaded already
        self.greeting = 0.0  # seconds until the host had the model ready
        self.working: Any = None
        self._line: Optional[wire.Stream] = None
        path = os.environ.get("MUSTER_WARM")
        if path and wanted.shareable() and self._greeted(path):
            return
        self._load()

    def run(self, items: List[Json], params: Json, step: Step) -> List[Json]:
        """A record for each item: see working."""
        if self._line is not None:
            packed, blobs = wire.pack(items)
            try:
                answer = self._asked({"op": "run", "wanted": self.wanted.message(), "items": packed, "params": params}, blobs, step)
                return list(answer["records"])
            except (wire.Broken, KeyError) as e:
                log(f"the warm host was lost ({e}): the model is loaded by this task")
                self._line = None
                self._load()
        records: List[Json] = self.working.run(items, params, step)
        return records

    def batch_size(self, params: Json) -> int:
        """How many items to send at once: several batches, so that those of a length go together."""
        return max(int(params.get("batch_size") or 0), 32) * 2

    def _load(self) -> None:
        self.working = load(self.wanted, lambda text: report(step=text))
        self.warm, self.about = False, self.working.about()

    def _greeted(self, path: str) -> bool:
        """Have the host load the model. False if it is to be loaded here."""
        began = time.monotonic()
        try:
            self._line = wire.dial(path).makefile("rwb")
            answer = self._asked({"op": "open", "wanted": self.wanted.message()}, [], lambda e: report(step=e.get("step")))
            self.warm, self.about, self.greeting = not answer["new"], answer["about"], time.monotonic() - began
            return True
        except (wire.Broken, KeyError) as e:
            log(f"the warm host cannot be used ({e}): the model is loaded by this task")
        except Fail as e:
            # A host has no secrets, and its own way to the hub.
            if e.reason != "dependency" and not (e.reason == "bad_input" and any(os.environ.get(name) for name in ("HF_TOKEN", "HF_ENDPOINT"))):
                raise
            log(f"the warm host cannot load the model ({e}): this task tries")
        self._line = None
        return False

    def _asked(self, message: Json, blobs: List[bytes], step: Step) -> Json:
        assert self._line is not None
        wire.send(self._line, message, blobs)
        while True:
            answer, _ = wire.receive(self._line)
            if "step" in answer:
                step(answer["step"])
            elif "fail" in answer:
                fail = dict(answer["fail"])
                reason, text = fail.pop("reason", None), fail.pop("message", "")
                if reason is None:
                    raise wire.Broken(f"it failed: {text}")
                raise Fail(reason, text, **fail)
            else:
                return answer
