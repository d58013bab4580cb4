#!/bin/bash
# One run on several machines: sbatch slurm-run.sh FILE FOLDER
#SBATCH --job-name=taskmix-run
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300

# torchrun starts the ranks of its machine. `--resume` goes on where an earlier start left off.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun \
    --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-1}" \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:${PORT:-29500}" \
    --max-restarts 3 --signals-to-handle SIGTERM,SIGINT,SIGUSR1 --shutdown-timeout 240 \
    -m taskmix run "$1" --out "$2" --resume &
launch=$!

# Slurm warns this script 300 seconds before the time is over, and it passes the warning on.
# torchrun's exit code does not say why it ended, so the script remembers.
warned=
trap 'warned=yes; kill -USR1 "$launch"' USR1 TERM
wait "$launch"
code=$?
if [ -n "$warned" ]; then
    wait "$launch"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
