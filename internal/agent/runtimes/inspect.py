"""Prints what an interpreter lacks of a runtime: python -c SCRIPT '>=3.11' 'torch>=2,<3' …"""

import importlib.metadata
import json
import os
import platform
import re
import sys


def release(version):
    """The release numbers of a version: 1, 13 and 0 of 1.13.0a0+git."""
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in found.group().split(".")] if found else []


def satisfies(version, bounds):
    """Whether a version is within bounds such as >=1.13,<3. Only release numbers count, because distributions build versions such as 1.13.0a0."""
    for operator, bound in re.findall(r"([=<>!~]+)\s*([^,\s]+)", bounds):
        have, want = release(version), release(bound)
        series = want[:-1]
        length = max(len(have), len(want))
        have, want = (numbers + [0] * (length - len(numbers)) for numbers in (have, want))
        fits = {
            "==": have == want,
            "!=": have != want,
            ">=": have >= want,
            ">": have > want,
            "<=": have <= want,
            "<": have < want,
            "~=": have >= want and have[: len(series)] == series,
        }
        if not fits.get(operator, False):
            return False
    return True


def lacks(python, requirements):
    """The requirements that this interpreter does not satisfy."""
    missing = []
    if not satisfies(platform.python_version(), python):
        missing.append("Python {} (it is {})".format(python, platform.python_version()))
    for requirement in requirements:
        name, bounds = re.match(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)", requirement).groups()
        try:
            version = importlib.metadata.version(name) or ""  # None if a broken installation has no version
        except importlib.metadata.PackageNotFoundError:
            missing.append(requirement)
            continue
        if not satisfies(version, bounds):
            missing.append("{} (it has {})".format(requirement, version))
    return missing


if __name__ == "__main__":
    read = [path for path in [sys.prefix, sys.base_prefix, *sys.path] if os.path.isdir(path)]
    print("muster " + json.dumps({"lacks": lacks(sys.argv[1], sys.argv[2:]), "read": read}))
