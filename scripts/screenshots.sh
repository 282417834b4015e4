#!/usr/bin/env bash
# Pictures of the dashboard's pages, in both themes, from real runs: docs/images/*.png. Leaves nothing running.
# usage: screenshots.sh [OUT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/cluster.sh
source scripts/cluster.sh

out=${1:-docs/images}
dir=$(mktemp -d "${TMPDIR:-/tmp}/imgd-screenshots.XXXXXX")
pids=()
jobs=()

clean_up() {
  local status=$?
  trap - EXIT INT TERM
  # All at once: else the next in the queue starts.
  "$BIN/imgcli" cancel "${jobs[@]}" --wait >/dev/null 2>&1 || true
  for pid in "${pids[@]}"; do end_process "$pid"; done
  if ((status == 0)); then rm -rf "$dir"; else echo "run: its files and logs are in $dir" >&2; fi
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# submit NAME SETTINGS...: a job like the demo's, with small pictures; sets JOB to its number.
submit() {
  local name=$1 sets=() setting
  shift
  for setting in "name=$name" data.image_size=32 data.val_resize=32 train.log_every_steps=1 train.precision=fp32 train.global_batch=32 \
    data.train=dataset:shapes/train data.val=dataset:shapes/val "checkpoint.dir=$dir/checkpoints" "$@"; do
    sets+=(--set "$setting")
  done
  JOB=$("$BIN/imgcli" submit deploy/demo/job.yaml -o json "${sets[@]}" \
    | sed -n 's/^ *"id": "\{0,1\}\([0-9][0-9]*\).*/\1/p')
  jobs+=("$JOB")
}

# at_step JOB STEP: that it has got so far.
at_step() {
  local step
  step=$("$BIN/imgcli" show "$1" -o json | sed -n '/"last_step"/,/}/s/^ *"step": "\{0,1\}\([0-9][0-9]*\).*/\1/p')
  ((${step:-0} >= $2))
}

has_state() { [[ $("$BIN/imgcli" show "$1" | head -n 1) == *" $2" ]]; }

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || { echo "run: waited in vain for: $*" >&2; return 1; }
    sleep 0.3
  done
}

address=127.0.0.1:$(free_port)
web=127.0.0.1:$(free_port)
export IMGD_SERVER=$address USER=ada
echo "A data set, a daemon and two agents"
"$BIN/imgcli" dataset synth --classes 10 --per-class 100 --val-per-class 30 --size 64x64 --seed 1 "$dir/shapes" >/dev/null
start_daemon "$dir" "$address" "$web"
pids+=("$DAEMON_PID")
"$BIN/imgcli" dataset register shapes "$dir/shapes" >/dev/null
for node in gpu-1 gpu-2; do
  start_agent "$dir" "$address" "$node" --cpu-slots 1 --nvml none
  pids+=("$AGENT_PID")
done

echo "Jobs: one that fails, two that end, one that runs and was paused, two that wait"
submit no-data data.train=/nowhere resources.nodes=1
failed=$JOB
for lr in 0.01 0.02; do
  submit "rn18-lr$lr" "optimizer.lr=$lr" train.epochs=3 resources.nodes=1
done
for job in "$failed" 2 3; do "$BIN/imgcli" wait "$job" >/dev/null 2>&1 || true; done
# So long that it still runs when the last picture is taken.
submit rn18-two-nodes train.epochs=30 optimizer.lr=0.01
two=$JOB
until_true 600 at_step "$two" 45
"$BIN/imgcli" pause "$two" >/dev/null
until_true 120 has_state "$two" PAUSED
"$BIN/imgcli" resume "$two" >/dev/null
USER=grace submit rn18-waits train.epochs=3
USER=grace submit too-large resources.nodes=8
until_true 600 at_step "$two" 150

echo "Pictures, into $out"
mkdir -p "$out"
PATH=${IMGD_DEPS:-$PWD/.deps}/node/bin:$PATH node web/dev/screenshots.ts "https://$web" "$(realpath "$out")" "$two" 3 2
du -ch "$out"/*.png | tail -n 1
