#!/bin/bash
# Train on 4 nodes of Slurm, one rank of one thread on each core: sbatch examples/slurm.sh
# Preempted, out of time or after a fault, the same command goes on from the last checkpoint.
#SBATCH --job-name=velocirl
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=16
#SBATCH --cpus-per-task=1
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append

RUN=${RUN:-$HOME/runs/cartpole}  # where all nodes see it

# This script is one process, so that all ranks do the same.
if [ -e "$RUN/run.json" ]; then
    srun --mpi=pmix velocirl resume "$RUN"
else
    srun --mpi=pmix velocirl train CartPole-v1 --num-envs 65536 --minibatch-size 262144 --threads 1 \
        --total-steps 1000000000 --checkpoint-every 50000000 --run-dir "$RUN"
fi
code=$?

# 143: SIGTERM came, 120 s before the end, and all is saved. Whoever cancels the job ends this script too.
if [ $code -eq 143 ] && [ -n "$SLURM_JOB_ID" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
