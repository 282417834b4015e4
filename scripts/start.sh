#!/usr/bin/env bash
# A daemon and one local agent that stay: start.sh start|stop. What it starts is recorded in .run/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/cluster.sh
source scripts/cluster.sh

dir=$PWD/.run
address=${IMGD_SERVER:-127.0.0.1:7650}

# ours PID PROGRAM: that pid still is that program.
ours() { [[ -e /proc/$1/exe && $(basename "$(readlink "/proc/$1/exe")") == "$2"* ]]; }

stop() {
  if [[ -f $dir/imgd.pid ]] && ours "$(<"$dir/imgd.pid")" imgd; then
    # Runs outlive the agent by design, so that they are ended first.
    "$BIN/imgcli" --server "$(<"$dir/address")" jobs -o json 2>/dev/null \
      | sed -n 's/^ *"id": "\{0,1\}\([0-9][0-9]*\).*/\1/p' \
      | while read -r job; do "$BIN/imgcli" --server "$(<"$dir/address")" cancel "$job" --wait >/dev/null 2>&1 || true; done
  fi
  local name
  for name in agent imgd; do
    [[ -f $dir/$name.pid ]] || continue
    if ours "$(<"$dir/$name.pid")" img; then end_process "$(<"$dir/$name.pid")"; fi
    rm -f "$dir/$name.pid"
  done
  echo "stopped; state and logs stay in $dir"
}

start() {
  if [[ -f $dir/imgd.pid ]] && ours "$(<"$dir/imgd.pid")" imgd; then
    echo "already running on $(<"$dir/address"); ./run stop ends it"
    return
  fi
  mkdir -p "$dir"
  start_daemon "$dir" "$address"
  echo "$DAEMON_PID" >"$dir/imgd.pid"
  echo "$address" >"$dir/address"
  # GPUs where there are any, else one slot a core.
  start_agent "$dir" "$address" "$(hostname)" --cpu-slots "$(nproc)"
  echo "$AGENT_PID" >"$dir/agent.pid"
  cat <<TEXT
imgd listens on $address; node $(hostname) has joined. State and logs: $dir

  export PATH=$BIN:\$PATH IMGD_SERVER=$address
  imgcli nodes
  imgcli dataset synth --classes 10 --per-class 200 --size 96x96 /tmp/shapes
  imgcli submit deploy/demo/job.yaml --watch --set resources.nodes=1 --set data.train=/tmp/shapes/train \\
      --set data.val=/tmp/shapes/val --set checkpoint.dir=$dir/checkpoints

./run stop ends the jobs, the agent and the daemon.
TEXT
}

"$1"
