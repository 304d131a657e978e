"""Answers every case after the first with what it observed in the first one."""

import pathlib

from relay import Relay, tell


class RepeatsObservations(Relay):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = pathlib.Path()
        self.first: list[tuple[list, bytes | None]] = []  # entries and tensor file, in order
        self.observed = 0  # in this case

    def from_runner(self, message: dict) -> dict | None:
        if message["type"] == "case":
            self.scratch = pathlib.Path(message["scratch"])
            self.observed = 0
        return message

    def from_testee(self, message: dict) -> dict | None:
        if message["type"] != "observation":
            return message
        file = self.scratch / message["file"] if "file" in message else None
        if self.cases == 1:
            self.first.append((message["entries"], file.read_bytes() if file else None))
            return message
        entries, tensors = self.first[self.observed % len(self.first)]
        self.observed += 1
        if tensors is None:
            return {**{key: value for key, value in message.items() if key != "file"}, "entries": entries}
        name = message.get("file", f"repeated-{message['step']}.safetensors")
        (self.scratch / name).write_bytes(tensors)
        return {**message, "file": name, "entries": entries}


if __name__ == "__main__":
    tell(RepeatsObservations)
