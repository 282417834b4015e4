#!/usr/bin/env bash
# ./run bench NAME: runs tests/bench/NAME.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
names=$(cd tests/bench && grep -l '^def main' ./*.py | sed -E 's|./(.*)\.py|\1|' | grep -v '^peer_' | tr '\n' ' ')
name=${1:-}
if [[ -z $name || " $names" != *" $name "* ]]; then
  echo "run: bench: found '${name}'; there are: $names" >&2
  exit 2
fi
if [[ $name == data ]]; then
  # shellcheck source=scripts/setup.sh
  source scripts/setup.sh
  setup_peers
fi
if [[ $name == control ]]; then
  # shellcheck source=scripts/setup.sh
  source scripts/setup.sh
  setup_apt slurm deps/apt-bench.txt
  ninja -C build/release -j "${IMGD_JOBS:-$(nproc)}" --quiet control_programs
fi
if [[ $name == scheduler ]]; then
  ninja -C build/release -j "${IMGD_JOBS:-$(nproc)}" --quiet scheduler_bench imgd_sim_main
fi
if [[ $name == data || $name == train ]]; then
  ninja -C build/release -j "${IMGD_JOBS:-$(nproc)}" --quiet bench_programs
fi
if [[ $name == web ]]; then
  ninja -C build/release -j "${IMGD_JOBS:-$(nproc)}" --quiet imgd imgcli history_bench
fi
exec "${IMGD_DEPS:-.deps}/pytest/bin/python" "tests/bench/$name.py" "${@:2}"
