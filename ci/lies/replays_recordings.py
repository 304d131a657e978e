#!/usr/bin/env python3
"""A lying testee: it computes nothing and communicates nothing. It looks up what PyTorch was recorded to answer and says that, cut
into shards by rows, with a trace of the collectives that a right implementation would have issued. Good for fully_shard plans of
one mesh dimension. The gate must convict it on fresh data: nobody has recorded the answers to data that were drawn a moment ago.
With LIE_BACKEND=gloo it is convicted before that, since the kernel counts what Gloo sends."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "harness" / "sdk" / "python"))
from fsdp_cts_sdk.dtypes import dtype_name
from fsdp_cts_sdk.frames import Channel
from fsdp_cts_sdk.tensor_file import read_tensors, write_tensors

STORE = Path(__file__).resolve().parents[2] / "golden" / "store"
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def recorded(case: dict) -> dict:
    entry = json.loads((STORE / "index" / f"{case['id'].split('[')[0]}.json").read_text())["cases"][case["id"]]
    name = entry["tensors"]["file"]
    return read_tensors(STORE / "blobs" / name[:2] / name)


def share(name: str, tensor) -> tuple[dict, object]:
    rows = -(-tensor.shape[0] // WORLD)
    mine = tensor[RANK * rows : (RANK + 1) * rows]
    piece = {"tensor": name, "offset": RANK * rows * (tensor.numel() // tensor.shape[0]), "length": mine.numel()}
    item = {"global_shape": list(tensor.shape), "dtype": dtype_name(tensor.dtype), "sharded": True, "requires_grad": True, "none": False}
    return {**item, "name": name, "pieces": [piece] if mine.numel() else []}, mine.reshape(-1)


def invented_trace(plan: dict, parameters: dict) -> list[dict]:
    units = [name for unit in plan["units"] for name in unit["modules"] if name]
    policy = plan["units"][0].get("mixed_precision") or {}
    gathered = policy.get("param_dtype") or "float32"
    numel = {unit: sum(-(-p.shape[0] // WORLD) * p[0].numel() for n, p in parameters.items() if n.startswith(unit + ".")) for unit in units}

    def event(op: str, phase: str, unit: str) -> dict:
        shard, whole = numel[unit], numel[unit] * WORLD
        gather = op == "all_gather"
        dtype = gathered if gather else policy.get("reduce_dtype") or gathered
        sizes = {"in_numel": shard if gather else whole, "out_numel": whole if gather else shard}
        reduce_op = None if gather else "sum"
        return {"op": op, "phase": phase, "dtype": dtype, "reduce_op": reduce_op, **sizes, "group": list(range(WORLD)), "unit": unit}

    events = [event("all_gather", "forward", unit) for unit in units]
    for unit in reversed(units):
        if plan["units"][0].get("reshard_after_forward") is not False:
            events.append(event("all_gather", "backward", unit))
        events.append(event("reduce_scatter", "backward", unit))
    return events


def answer(case: dict, index: int, step: dict, values: dict, initial: dict) -> tuple[list[dict], dict]:
    entries, tensors = [], {}
    for what in step["what"]:
        entry = {"what": what, "model": step.get("model", "model")}
        if what in ("parameters", "gradients"):
            stem = f"{index}/{what}/model/"
            shares = [share(key[len(stem) :], tensor) for key, tensor in values.items() if key.startswith(stem)]
            entry["items"] = [item for item, _ in shares]
            for item, mine in shares:
                for piece in item["pieces"]:
                    piece["tensor"] = f"{what}/{item['name']}"
                    tensors[piece["tensor"]] = mine
        elif what == "trace":
            entry["events"] = invented_trace(case["plans"]["model"], initial)
        elif what == "training_state":
            entry["value"] = "idle"
        else:
            key = f"{index}/{what}/model/"
            tensors[what] = values.get(f"{key}@{RANK}", values.get(key))
            entry["tensor"] = what
        entries.append(entry)
    return entries, tensors


def main() -> int:
    channel = Channel.connect(os.environ["FSDP_CTS_SOCKET"])
    hello = {"protocol": 1, "token": os.environ["FSDP_CTS_TOKEN"], "rank": RANK, "apis": ["fully_shard"], "environment": {}}
    told = {"implementation": {"name": "lie", "version": "1"}, "backend": os.environ.get("LIE_BACKEND", "unheard-of"), "device": "cpu", "reduction_order": "ring"}
    channel.send({"type": "hello", **hello, **told})
    while (case := channel.receive()) is not None and case["type"] == "case":
        number, values = case["case"], recorded(case)
        prefix = "parameters/model/"
        initial = {k[len(prefix) :]: v for k, v in read_tensors(case["data"]).items() if k.startswith(prefix)}
        for index, step in enumerate(case["program"]):
            channel.send({"type": "progress", "case": number, "step": index, "verb": step["verb"]})
            if step["verb"] != "observe":
                continue
            entries, tensors = answer(case, index, step, values, initial)
            keys = {key: step[key] for key in ("label", "iteration") if key in step}
            if tensors:
                keys["file"] = f"step{index}.safetensors"
                write_tensors(Path(case["scratch"]) / keys["file"], tensors)
            channel.send({"type": "observation", "case": number, "rank": RANK, "step": index, "entries": entries, **keys})
        channel.send({"type": "done", "case": number})
    return 0


if __name__ == "__main__":
    sys.exit(main())
