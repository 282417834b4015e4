#!/usr/bin/env bash
# The demo: a data set, a daemon, two agents, one distributed job, watched to its end. Leaves nothing running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/cluster.sh
source scripts/cluster.sh

dir=$(mktemp -d "${TMPDIR:-/tmp}/imgd-demo.XXXXXX")
pids=()
job=

clean_up() {
  local status=$?
  trap - EXIT INT TERM
  if [[ $job ]]; then "$BIN/imgcli" cancel "$job" --wait >/dev/null 2>&1 || true; fi
  for pid in "${pids[@]}"; do end_process "$pid"; done
  if ((status == 0)); then rm -rf "$dir"; else echo "run: the demo failed; its files and logs are in $dir" >&2; fi
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

begun=$SECONDS
address=127.0.0.1:$(free_port)
export IMGD_SERVER=$address

echo "1. A data set of real JPEG files: 10 shapes, 400 training and 50 validation images each"
"$BIN/imgcli" dataset synth --classes 10 --per-class 400 --val-per-class 50 --size 96x96 --seed 1 "$dir/shapes"

echo "2. The daemon and two agents, on $address"
start_daemon "$dir" "$address"
pids+=("$DAEMON_PID")
for node in node-a node-b; do
  start_agent "$dir" "$address" "$node" --cpu-slots 1 --nvml none
  pids+=("$AGENT_PID")
done
"$BIN/imgcli" nodes

echo "3. The job: deploy/demo/job.yaml, ResNet-18 on 2 ranks"
job=$("$BIN/imgcli" submit deploy/demo/job.yaml -o json --set "data.train=$dir/shapes/train" \
  --set "data.val=$dir/shapes/val" --set "checkpoint.dir=$dir/checkpoints" | sed -n 's/^ *"id": "\{0,1\}\([0-9][0-9]*\).*/\1/p')
"$BIN/imgcli" watch "$job"

echo "4. What is left of it"
"$BIN/imgcli" show "$job"
job=
echo "The demo took $((SECONDS - begun)) s. Next: ./run start, and the README's \"Next\"."
