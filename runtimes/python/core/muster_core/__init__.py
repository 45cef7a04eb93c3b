"""What the kinds of Muster that are written in Python have in common.

    from muster_core import Fail, run, report

    def train(given):
        ...
        return {"finalLoss": loss}

    if __name__ == "__main__":
        run(train)

`run` passes the task's input to the function, writes what it returns to result.json, and turns
exceptions into failure.json: a reason that Muster knows, and one sentence for the user.
Nothing here imports torch unless it is needed.
"""

from muster import checkpoint_dir, live, out_dir

from ._task import Fail, given, log, measured, orderly, report, run, save_json

__all__ = ["Fail", "checkpoint_dir", "given", "live", "log", "measured", "orderly", "out_dir", "report", "run", "save_json"]
