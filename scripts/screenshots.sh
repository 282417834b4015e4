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
  for setting in "name=$name" train.device=cpu data.image_size=32 data.val_resize=32 train.log_every_steps=1 train.precision=fp32 train.global_batch=32 \
    data.train=dataset:shapes/train data.val=dataset:shapes/val "checkpoint.dir=$dir/checkpoints" "$@"; do
    sets+=(--set "$setting")
  done
  JOB=$("$BIN/imgcli" submit deploy/demo/job.yaml -o json "${sets[@]}" \
    | sed -n 's/^ *"id": "\{0,1\}\([0-9][0-9]*\).*/\1/p')
  jobs+=("$JOB")
}

# hold NAME NODE GPUS: a command of grace's that has so many GPUs of the node, and does nothing.
hold() {
  printf 'name: %s\nresources: {gpu: {count: %d}, labels: {host: %s}}\ncommand: {run: sleep infinity}\n' "$1" "$3" "$2" \
    >"$dir/$1.yaml"
  jobs+=("$(USER=grace "$BIN/imgcli" submit "$dir/$1.yaml" -o json | sed -n 's/^ *"id": "\{0,1\}\([0-9][0-9]*\).*/\1/p')")
}

# eight_gpus BUSY SEED: what NVML says of a node's eight GPUs for an hour, of which the first BUSY have work, the last of these
# being hot; for the library that stands for NVML.
eight_gpus() {
  awk -v held="$1" -v seed="$2" 'BEGIN {
    srand(seed)
    OFMT = CONVFMT = "%.0f"  # bytes, whole
    print "count 8\nname * Simulated H100 80GB"
    for (gpu = 0; gpu < 8; gpu++) {
      busy = gpu < held; hot = gpu == held - 1
      util = "util " gpu; power = "power " gpu
      for (i = 0; i < 1200; i++) {
        percent = busy ? int((hot ? 55 : 91) + 6 * sin(i / 4 + gpu + seed) + 4 * (rand() - 0.5)) : 0
        util = util " " percent
        power = power " " 72000 + percent * 5600
      }
      print util "\n" power
      print "memory " gpu, 85899345920, busy ? 61203283968 + gpu * 1073741824 : 554696704
      print "temperature " gpu, hot ? 91 : busy ? 58 + gpu : 34
      print "clock " gpu, hot ? 1095 : busy ? 1980 : 345
      print "throttle " gpu, hot ? 64 : busy ? 0 : 1
    }
    print "memory_clock * 2619\nenergy * 1000 600000\npcie_tx * 1000\npcie_rx * 2000\nnvlink_tx * 3000\nnvlink_rx * 4000"
    print "ecc * 0\ncorrected * 0\npending * 0\nfailed * 0"
  }'
}

# gpu_node NAME BUSY PRICE: an agent with such GPUs, at so much an hour.
gpu_node() {
  eight_gpus "$2" "${1#gpu-}" >"$dir/$1.nvml"
  # Their memory is in use from the beginning on: that is of no run, and is not looked at.
  printf 'price_per_hour: %s\nlabels: {host: %s, zone: hall-2}\nhealth: {min_gpu_memory_free_percent: 0}\n' "$3" "$1" \
    >"$dir/$1.yaml"
  IMGD_FAKE_NVML_SCRIPT=$dir/$1.nvml start_agent "$dir" "$address" "$1" --config "$dir/$1.yaml" --nvml "$nvml"
  pids+=("$AGENT_PID")
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
nvml=$(find "$BIN/.." -name libfake_nvml.so | head -n 1)
echo "A data set, a daemon and two agents, each with eight GPUs by a script"
"$BIN/imgcli" dataset synth --classes 10 --per-class 100 --val-per-class 30 --size 64x64 --seed 1 "$dir/shapes" >/dev/null
printf 'commands: true\ncurrency: USD\nquotas: {user: {spend: {most: 500, per: month}}}\n' >"$dir/imgd.yaml"
start_daemon "$dir" "$address" "$web" --config "$dir/imgd.yaml"
pids+=("$DAEMON_PID")
"$BIN/imgcli" dataset register shapes "$dir/shapes" >/dev/null
"$BIN/imgcli" dataset verify --decode dataset:shapes >/dev/null
gpu_node gpu-1 5 98.32
gpu_node gpu-2 3 55.04

echo "Jobs: one that fails, two that end, one that runs and was paused, two that hold GPUs, two that wait"
submit no-data data.train=/nowhere resources.nodes=1
failed=$JOB
for lr in 0.01 0.02; do
  submit "rn18-lr$lr" "optimizer.lr=$lr" train.epochs=3 resources.nodes=1
done
for job in "$failed" 2 3; do "$BIN/imgcli" wait "$job" >/dev/null 2>&1 || true; done
# So long that it still runs when the last picture is taken.
submit rn18-two-nodes train.epochs=50 optimizer.lr=0.01
two=$JOB
until_true 120 has_state "$two" RUNNING
hold label-photos gpu-1 4
hold render-views gpu-2 2
until_true 600 at_step "$two" 45
"$BIN/imgcli" pause "$two" >/dev/null
until_true 120 has_state "$two" PAUSED
"$BIN/imgcli" resume "$two" >/dev/null
USER=grace submit rn18-sixteen train.epochs=3 resources.ranks_per_node=8
USER=grace submit too-large resources.nodes=8
until_true 600 at_step "$two" 150

echo "Pictures, into $out"
mkdir -p "$out"
PATH=${IMGD_DEPS:-$PWD/.deps}/node/bin:$PATH node web/dev/screenshots.ts "https://$web" "$(realpath "$out")" "$two" 3 2
du -ch "$out"/*.png | tail -n 1
