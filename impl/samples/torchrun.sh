#!/bin/sh -e
# torchrun by its module's name, with the programs where they are built.
python3 -m torch.distributed.run --standalone --nproc-per-node 2 --no-python ./fsdp_sample_train
