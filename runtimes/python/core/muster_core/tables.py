"""Rows of data sets, and their errors."""

import json
from typing import Any, Dict, Iterable, Iterator

from ._task import Fail


def objects(lines: Iterable[str], name: str) -> Iterator[Dict[str, Any]]:
    """The objects of a file of JSON Lines; empty lines are skipped. Ends the task with bad_input, the file's name and the line."""
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as e:
            raise Fail("bad_input", f"dataset: {name} line {n} is not JSON: {e}") from None
        if not isinstance(row, dict):
            raise Fail("bad_input", f"dataset: {name} line {n} is not an object of columns and values")
        yield row
