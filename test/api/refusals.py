"""A check for schemathesis: operations that may answer 400 to data that fits their schema do so for the reason that no schema can say, and for no other."""

import re

import schemathesis

# What the details of these answers say, by operation. schemathesis.toml accepts the status of the same operations.
RANGE = "is not a range of tasks|too many ranges of tasks"
NAME = "is not a valid name: "
WHOLE = r"cannot unmarshal number -?\d+\.0+ into"  # 81.0 is an integer for JSON Schema, but not for the server
SIGNED = "expected string to be base64 encoded|illegal base64 data|public_key: must have|the signature does not fit|the worker.s clock is"
REASONS = {
    "list-tasks": RANGE,
    "cancel-job": RANGE,
    "retry-job": RANGE,
    "create-key": NAME + "|is for all projects: omit the project|uses, tags and approval are for keys|is not a network: |invalid tag |" + WHOLE,
    "join-worker": NAME + "|" + SIGNED,
    "register-worker-key": SIGNED,
    "create-worker-session": "nonce: must have|exchange: must have|the worker requests a session of the server|" + SIGNED,
    "rotate-key": "the maximum is 30d",
    "put-blob": "have the hash",
    "put-secret": r"is empty|has \d+ bytes, a secret has at least|is not text in UTF-8|names with MUSTER_|is not a tag of workers",
    # The spec's own types, such as those of durations and checkpoints, have rules; package spec, which answers 422 to submit-job, reads it after them.
    "create-schedule": "cron expression|time zone|missed runs cannot all be started|the spec is of project|^invalid request: body: ",
    "put-notify": "was sealed by another server",
    "search-logs": "nothing to search for|q and errors exclude|is not a regular expression|the regular expression has",
    "submit-job": "rerun and from belong together|cannot be run again from stage|is not a job number",
    "edit-job": "nothing to change|" + WHOLE,
    "prune": "is not a limit: ",
    "put-retention": "is not a limit: |has no limits: ",
    "get-history": "from is later than to",
}


@schemathesis.check
def refused_for_its_reason(_ctx, response, case):
    if response.status_code != 400 or case.meta is None or not case.meta.generation.mode.is_positive:
        return
    reason = REASONS.get(case.operation.definition.raw["operationId"])
    if reason and not re.search(reason, response.json()["detail"]):
        raise AssertionError(f"Valid data was refused for another reason than: {reason}")
