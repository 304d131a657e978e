"""Keeps units gathered after forward where it is asked to free them, and frees them where it is asked to keep them; values are right either
way. Its traces are mended: gathers of backward that it never made are in them, and those that it made without being asked are not."""

from typing import Any

from relay import Relay, tell

OPPOSITE: dict[str, dict[Any, Any]] = {
    "reshard_after_forward": {True: False, False: True},
    "sharding_strategy": {"FULL_SHARD": "SHARD_GRAD_OP", "SHARD_GRAD_OP": "FULL_SHARD"},
}


class FalseTrace(Relay):
    frees: bool | None = None  # what the runner asked for in this case; None: nothing to lie about

    def from_runner(self, message: dict) -> dict | None:
        if message["type"] == "case":
            self.frees = None
        for plan in message.get("plans", {}).values():
            for unit in plan["units"]:
                for key, opposite in OPPOSITE.items():
                    asked = unit.get(key)
                    if isinstance(asked, (bool, str)) and asked in opposite:
                        self.frees = asked in (True, "FULL_SHARD")
                        unit[key] = opposite[asked]
        return message

    def from_testee(self, message: dict) -> dict | None:
        for entry in message.get("entries", ()):
            if entry["what"] == "trace" and self.frees is not None:
                entry["events"] = self._mended(entry["events"])
        return message

    def _mended(self, events: list[dict]) -> list[dict]:
        gathers = [event for event in events if event["op"] == "all_gather"]
        if not self.frees:
            return [event for event in events if event["op"] != "all_gather" or event["phase"] != "backward"]
        forward = [event for event in events if event["phase"] != "backward"]
        invented = [{**event, "phase": "backward"} for event in reversed(gathers)]
        return [*forward, *invented, *(event for event in events if event["phase"] == "backward")]


if __name__ == "__main__":
    tell(FalseTrace)
