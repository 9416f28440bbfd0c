#!/bin/bash
# A run on several machines without a batch system. On every machine, with its own number from 0 as NODE:
#
#     NODES=2 NODE=0 FIRST=node-a GPUS=8 scripts/launch/torchrun.sh recipe.yaml --to runs/basque
#
# FIRST is the name or address of machine 0. Recipe, corpora and run folder lie where every machine sees them.
set -euo pipefail

exec torchrun \
    --nnodes "${NODES:-1}" --node-rank "${NODE:-0}" --nproc-per-node "${GPUS:-1}" \
    --master-addr "${FIRST:-127.0.0.1}" --master-port "${PORT:-29500}" --max-restarts 0 \
    -m lingraft run "$@"
