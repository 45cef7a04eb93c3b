"""Fails unless schemathesis had a case for every operation: exercised.py DOCUMENT CONFIG REPORTS.

DOCUMENT is the OpenAPI document, CONFIG schemathesis.toml, and REPORTS the folder of the run's reports report.json and report.xml (JUnit).
"""

import json
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path


def main(document: Path, config: Path, reports: Path) -> int:
    left_out = {o["include-operation-id"] for o in tomllib.loads(config.read_text())["operations"] if o.get("enabled") is False}
    wanted = {
        f"{method.upper()} {path}"
        for path, methods in json.loads(document.read_text())["paths"].items()
        for method, operation in methods.items()
        if operation["operationId"] not in left_out
    }
    cases = ET.parse(reports / "report.xml").iter("testcase")
    missing = sorted(wanted - {case.get("name") for case in cases if case.find("skipped") is None})
    if missing:
        print(f"{len(missing)} of {len(wanted)} operations had no case:", *missing, sep="\n  ", file=sys.stderr)
        return 1
    if json.loads((reports / "report.json").read_text())["phases"]["fuzzing"]["status"] == "skip":
        print("the time was over before the cases of all operations' schemas had run: give more (--max-time)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
