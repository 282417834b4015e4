#!/usr/bin/env bash
# A daemon and one local agent that stay: start.sh start|stop. What it starts is recorded in .run/ (IMGD_RUN_DIR).
# The daemon listens on IMGD_LISTEN, with HTTPS on IMGD_WEB_LISTEN (a free port where only the first is given);
# IMGD_SERVER, which says where clients look, may well be another machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/cluster.sh
source scripts/cluster.sh

dir=${IMGD_RUN_DIR:-$PWD/.run}
address=${IMGD_LISTEN:-127.0.0.1:7650}
web=${IMGD_WEB_LISTEN-127.0.0.1:$([[ ${IMGD_LISTEN-} ]] && echo 0 || echo 7651)}
unset IMGD_SERVER

# ours PID PROGRAM: that pid still is that program.
ours() { [[ -e /proc/$1/exe && $(basename "$(readlink "/proc/$1/exe")") == "$2"* ]]; }

# unfinished ADDRESS: numbers of the jobs that have not ended, newest first.
unfinished() {
  "$BIN/imgcli" --server "$1" jobs --all --state queued,starting,running,preempting,paused -o json \
    | sed -n 's/^    "id": "\{0,1\}\([0-9][0-9]*\).*/\1/p'
}

# end_jobs ADDRESS: ends every job and waits until no process of them is left; says which are after a minute.
end_jobs() {
  local list jobs=() end=$((SECONDS + 60))
  while true; do
    if ! list=$(unfinished "$1"); then
      echo "run: the jobs could not be asked for; those that run go on" >&2
      return 1
    fi
    mapfile -t jobs < <(printf '%s' "$list")
    ((${#jobs[@]})) || return 0
    if ((SECONDS > end)); then
      echo "run: not ended within a minute: ${jobs[*]}; what is left of them ends after the job's grace time" >&2
      return 1
    fi
    # One that has ended meanwhile is no failure. All at once: else the next in the queue starts.
    "$BIN/imgcli" --server "$1" cancel "${jobs[@]}" >/dev/null 2>&1 || true
    sleep 0.2
  done
}

# shims_left: a run of ours is still held by its shim; it goes within moments of its job's end.
shims_left() {
  local end=$((SECONDS + 10))
  while pgrep -f -- "shim .*$dir/" >/dev/null; do
    ((SECONDS < end)) || return 0
    sleep 0.1
  done
  return 1
}

stop() {
  local name status=0
  if [[ -f $dir/imgd.pid ]] && ours "$(<"$dir/imgd.pid")" imgd; then
    # Runs outlive the agent by design, so that they are ended first.
    show_credentials "$dir" "$(<"$dir/address")"
    end_jobs "$(server_of "$(<"$dir/address")")" || status=1
  fi
  # Without imgd, or without the agent, nobody has told them to end.
  if ((status == 0)) && shims_left; then
    echo "run: jobs still run, and imgd or the agent is gone; ./run start and ./run stop once more end them" >&2
    status=1
  fi
  for name in agent imgd; do
    [[ -f $dir/$name.pid ]] || continue
    if ours "$(<"$dir/$name.pid")" img; then end_process "$(<"$dir/$name.pid")"; fi
    rm -f "$dir/$name.pid"
  done
  echo "stopped; state and logs stay in $dir"
  return "$status"
}

start() {
  if [[ -f $dir/imgd.pid ]] && ours "$(<"$dir/imgd.pid")" imgd; then
    echo "already running on $(<"$dir/address"); ./run stop ends it"
    return
  fi
  mkdir -p "$dir"
  start_daemon "$dir" "$address" "$web"
  echo "$DAEMON_PID" >"$dir/imgd.pid"
  echo "$address" >"$dir/address"
  # GPUs where there are any, else one slot a core.
  start_agent "$dir" "$address" "$(hostname)" --cpu-slots "$(nproc)"
  echo "$AGENT_PID" >"$dir/agent.pid"
  cat <<TEXT
imgd listens on $address; node $(hostname) has joined. State and logs: $dir

  export PATH=$BIN:\$PATH IMGD_SERVER=$(server_of "$address")${IMGD_CA:+ IMGD_CA=$IMGD_CA IMGD_TOKEN_FILE=$IMGD_TOKEN_FILE}
  imgcli nodes
  imgcli dataset synth --classes 10 --per-class 200 --size 96x96 /tmp/shapes
  imgcli submit deploy/demo/job.yaml --watch --set resources.nodes=1 --set data.train=/tmp/shapes/train \\
      --set data.val=/tmp/shapes/val --set checkpoint.dir=$dir/checkpoints

./run stop ends the jobs, the agent and the daemon.
TEXT
  # With port 0 only the daemon knows which it has.
  [[ -z $web || $web == *:0 ]] || echo "The dashboard: https://$web (with a certificate of its own, which browsers ask about once)"
}

"$1"
