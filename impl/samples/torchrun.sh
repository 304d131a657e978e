#!/bin/sh -e
# torchrun by its module's name, with the programs where they are built. It leaves an empty folder for logs behind wherever it is not told to put one.
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
python3 -m torch.distributed.run --log-dir "$logs" --standalone --nproc-per-node 2 --no-python ./fsdp_sample_train
