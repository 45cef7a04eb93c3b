"""torchrun that leaves it to its processes to end when the task is asked to stop: they save their state first, all after the same step."""

import signal
import sys

from torch.distributed import run


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    option = "--signals-to-handle"
    if any(option in action.option_strings for action in run.get_args_parser()._actions):  # not in older versions, which then give them 30 s
        sys.argv.insert(1, f"{option}=SIGINT")
    run.main()


if __name__ == "__main__":
    main()
