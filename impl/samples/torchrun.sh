#!/bin/sh -e
# torchrun by its module's name, with the programs where they are built. It leaves a folder for logs behind in the temporary folder, so it gets one of its own.
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
python3 -m torch.distributed.run --standalone --nproc-per-node 2 --no-python ./fsdp_sample_train
