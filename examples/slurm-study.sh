#!/bin/bash
# A study that several workers share: sbatch slurm-study.sh FILE FOLDER POLICIES SEEDS
#SBATCH --job-name=taskmix-study
#SBATCH --array=1-8
#SBATCH --gpus=1
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120

# Every worker has the same command. FOLDER is on a disk that all machines share.
taskmix compare "$1" --out "$2" --policies "$3" --seeds "$4" &
worker=$!
trap 'kill -USR1 "$worker"' USR1 TERM
wait "$worker"
code=$?
if [ "$code" -gt 128 ]; then # the warning came, and the worker is still writing a checkpoint
    wait "$worker"
    code=$?
fi
if [ "$code" -eq 75 ]; then # resume me
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
