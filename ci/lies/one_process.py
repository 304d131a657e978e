"""Two ranks that are one process: rank 0's process speaks on the control sockets of all ranks, the others only wait.

What it hands over is right, computed by honest ranks that it starts itself. But a rank that is no process of its own has no memory of its own to
shard into, so nothing that it says about its shards proves anything.
"""

import json
import os
import pathlib
import sys
import threading
import time

from relay import Relay

POLL_SECONDS = 0.02


def main() -> int:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = pathlib.Path(os.environ["FSDP_CTS_RENDEZVOUS"] + ".lie")
    meeting.mkdir(exist_ok=True)
    note = meeting / f"{rank}.json"
    note.with_suffix(".partial").write_text(json.dumps(dict(os.environ)))
    note.with_suffix(".partial").rename(note)
    if rank > 0:
        while True:  # the runner ends it
            time.sleep(1)
    notes = [meeting / f"{each}.json" for each in range(world)]
    while not all(each.exists() for each in notes):
        time.sleep(POLL_SECONDS)
    relays = [threading.Thread(target=Relay(json.loads(each.read_text())).run, args=(sys.argv[1:],)) for each in notes]
    for relay in relays:
        relay.start()
    for relay in relays:
        relay.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
