"""Tells what pytest does while it does it, as JSON lines in the file $MUSTER_PYTEST: see pytest.go. Python 3.7 and pytest 5 or later."""

import json
import os


class Teller:
    def __init__(self, config, path):
        self.file = open(path, "a", encoding="utf-8", buffering=1)
        self.tell("begin", id=str(config.rootdir))

    def tell(self, event, **fields):
        self.file.write(json.dumps(dict(fields, event=event)) + "\n")

    def pytest_deselected(self, items):
        self.tell("deselected", count=len(items))

    def pytest_collection_finish(self, session):
        self.tell("collected", count=len(session.items))

    def pytest_collectreport(self, report):
        if report.failed:
            self.tell("uncollected", id=report.nodeid, message=message(report))

    def pytest_runtest_logstart(self, nodeid, location):
        self.tell("start", id=nodeid)

    def pytest_runtest_logreport(self, report):
        self.tell("report", id=report.nodeid, when=report.when, outcome=report.outcome, duration=report.duration, message=message(report))


def message(report):
    if report.passed:
        return ""
    if hasattr(report, "wasxfail"):
        return ("expected to fail: " + report.wasxfail).rstrip(": ")
    if isinstance(report.longrepr, tuple):  # of a skip: file, line, reason
        return str(report.longrepr[2])
    crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
    text = report.longreprtext.rstrip()
    return (crash + "\n\n" + text[-4096:] if crash else text[-4096:])[:8192]


def pytest_configure(config):
    path = os.environ.get("MUSTER_PYTEST")
    if path and not hasattr(config, "workerinput"):  # of pytest-xdist's workers the main process tells, too
        config.pluginmanager.register(Teller(config, path), "muster-teller")
