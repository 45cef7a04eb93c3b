"""Counts primes, tells how far it is, and leaves a file and a result."""

import json
import os
from pathlib import Path

COUNT = 100_000
first = int(os.environ["FROM"])
found = []
for done in range(COUNT):
    n = first + done
    if n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)):
        found.append(n)
    if done % (COUNT // 10) == 0:
        print(f"::muster progress={done / COUNT:.2f} primes={len(found)}", flush=True)

Path("primes.txt").write_text("\n".join(map(str, found)) + "\n")
result = {"from": first, "primes": len(found)}
(Path(os.environ["MUSTER_OUT"]) / "result.json").write_text(json.dumps(result))
print(f"{len(found)} primes from {first} on")
