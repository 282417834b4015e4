# A daemon and local agents, started and ended by pid. Sourced by demo.sh and start.sh.
# shellcheck shell=bash

BIN=${IMGD_BIN:-$PWD/build/release/bin}

# free_port: a TCP port on loopback that nobody listens on.
free_port() {
  /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# by_tls ADDRESS: imgd that listens there is served by TLS.
by_tls() {
  case $1 in
    127.0.0.1:* | localhost:* | '[::1]:'*) return 1 ;;
  esac
}

# server_of ADDRESS: what clients on this machine name it that listens there.
server_of() {
  if by_tls "$1"; then echo "https://${1/#0.0.0.0:/127.0.0.1:}"; else echo "$1"; fi
}

# show_credentials DIR ADDRESS: by what imgcli knows that imgd, and what it shows to it.
show_credentials() {
  if by_tls "$2"; then export IMGD_CA=$1/imgd/ca.crt IMGD_TOKEN_FILE=$1/imgd/admin.token; fi
}

# start_daemon DIR ADDRESS [WEB [ARGUMENTS...]]: sets DAEMON_PID and waits until it answers. HTTPS is on WEB, else on a free port.
start_daemon() {
  local dir=$1 address=$2 web=${3-127.0.0.1:0}
  mkdir -p "$dir/checkpoints"
  "$BIN/imgd" --listen "$address" --web-listen "$web" --state-dir "$dir/imgd" --checkpoint-dir "$dir/checkpoints" "${@:4}" \
    >>"$dir/imgd.log" 2>&1 </dev/null &
  DAEMON_PID=$!
  show_credentials "$dir" "$address"
  await "$DAEMON_PID" "imgd" "$dir/imgd.log" "$BIN/imgcli" --server "$(server_of "$address")" nodes
}

# start_agent DIR ADDRESS NODE ARGUMENTS...: sets AGENT_PID and waits until the node has joined.
start_agent() {
  local dir=$1 address=$2 node=$3 server
  server=$(server_of "$address")
  shift 3
  if by_tls "$address" && [[ ! -f $dir/$node/node.crt ]]; then
    "$BIN/imgcli" --server "$server" node join-token >"$dir/$node.join" 2>/dev/null
    set -- --token-file "$dir/$node.join" "$@"
  fi
  "$BIN/imgagent" --server "$server" --node "$node" --state-dir "$dir/$node" "$@" >>"$dir/$node.log" 2>&1 </dev/null &
  AGENT_PID=$!
  await "$AGENT_PID" "imgagent $node" "$dir/$node.log" has_node "$server" "$node"
}

has_node() { "$BIN/imgcli" --server "$1" nodes 2>/dev/null | grep -q "^$2 .*ready"; }

# await PID NAME LOG COMMAND...: until COMMAND succeeds; ends it, with the log's last lines, when PID dies or 20 s pass.
await() {
  local pid=$1 name=$2 log=$3 end=$((SECONDS + 20))
  shift 3
  until "$@" >/dev/null 2>&1; do
    if ! kill -0 "$pid" 2>/dev/null || ((SECONDS > end)); then
      tail -n 5 "$log" >&2
      echo "run: $name did not come up; its log is $log" >&2
      end_process "$pid"
      return 1
    fi
    sleep 0.05
  done
}

# end_process PID: SIGTERM, then waits; SIGKILL after 10 s.
end_process() {
  local pid=$1 end=$((SECONDS + 10))
  kill -TERM "$pid" 2>/dev/null || return 0
  while kill -0 "$pid" 2>/dev/null; do
    ((SECONDS > end)) && kill -KILL "$pid" 2>/dev/null
    sleep 0.05
  done
}
