"""torchrun that lets its processes end by themselves when the task is stopped: they first save their state, all after the same step.

torchrun reports failed processes at length; here only a killed process is reported, because the others report their failures themselves.
"""

import logging
import signal
import sys

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    option = "--signals-to-handle"
    if any(option in action.option_strings for action in run.get_args_parser()._actions):  # not in older versions, which then give them 30 s
        sys.argv.insert(1, f"{option}=SIGINT")
    logging.disable(logging.ERROR)
    try:
        run.main()
    except ChildFailedError as e:
        for rank, failure in sorted(e.failures.items()):
            if failure.exitcode not in (1, 128 + signal.SIGTERM, -signal.SIGTERM):  # of a sentence or a traceback, and of those that are ended with it
                print(f"process {rank} ended with {failure.signal_name() if failure.exitcode < 0 else f'exit code {failure.exitcode}'}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
