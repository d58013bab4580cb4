#!/usr/bin/env bash
# The small GLUE study: random, task size, Exp3.S, and a counterfactual policy learned from each
# seed's random run (one iteration, entropy weight 0.15 as in the paper), at equal steps.
# Needs TASKMIX_DATA. What is finished is not run again.
#   scripts/small_glue.sh studies/small-glue && python scripts/table.py studies/small-glue
set -euo pipefail
out="${1:?expected the folder of the study}"
here="$(cd "$(dirname "$0")/.." && pwd)"
file="$here/examples/small-glue.yaml"
taskmix compare "$file" --policies random,task_size,exp3s --seeds 1,2,3 --out "$out"
for seed in 1 2 3; do
  run="$out/counterfactual/seed-$seed"
  if [ -e "$run/run.yaml" ]; then
    taskmix resume "$run"
  else
    taskmix improve "$out/random/seed-$seed" -o "$out/policy-$seed.yaml" --entropy-weight 0.15
    taskmix run "$file" --set policy="$out/policy-$seed.yaml" --set seed="$seed" --out "$run"
  fi
done
