# ./run test [--full | --long]. Sourced by ./run.
# shellcheck shell=bash

TESTS_BEGUN=$SECONDS
PARTS=()  # "SECONDS  NAME" of each that has passed
SKIPPED=()  # what was not tested, and why
TEST_TEMP=  # folder of the unit tests' files; not their TMPDIR, where some execute scripts

# skipped WHAT...: says so, now and at the end.
skipped() {
  say "skipped: $*"
  SKIPPED+=("$*")
}

# note_skipped LOG WORD: what a program's own words in the log say that it skipped, for the end.
note_skipped() {
  local line
  while read -r line; do SKIPPED+=("$line"); done < <(sed -n "s/^$2 //p" "$1")
}

# part NAME COMMAND...: runs it and keeps how long it took. Not in a condition, which would take `set -e` from the command.
part() {
  local name=$1 begun=$SECONDS
  shift
  "$@"
  PARTS+=("$(printf '%6d s  %s' $((SECONDS - begun)) "$name")")
}

# ctest_preset PRESET ARGUMENTS...: its unit tests, the failures with their output. Twice as many programs at a time as there are
# cores, since many wait for something; as many where a sanitizer makes them slow.
ctest_preset() {
  local preset=$1 results log status=0 at_a_time=$JOBS
  log=$(log_file "unit-$preset")
  shift
  [[ $preset != release ]] || at_a_time=$((JOBS * 2))
  results=$PWD/build/$preset/results
  rm -rf "$results"
  TEST_TEMP=$(mktemp -d -p "$(temp_root)" imgd-unit.XXXXXX)
  say "unit tests, build/$preset"
  GTEST_BRIEF=1 GTEST_OUTPUT=xml:$results/ TEST_TMPDIR=$TEST_TEMP \
    ctest --preset "$preset" -j "$at_a_time" --no-tests=error --progress "$@" || status=$?
  rm -rf "$TEST_TEMP"
  tests/unit_results.py "$results" | tee "$log"
  note_skipped "$log" skipped:
  return "$status"
}

# temp_root: where tests keep their files: in memory where there is enough, since each checkpoint is synced to disk.
temp_root() {
  local kib
  kib=$({ df --output=avail /dev/shm 2>/dev/null | tail -n 1; awk '/MemAvailable/ {print $2}' /proc/meminfo; } | sort -n | head -n 1)
  if ((kib >= 12 << 20)); then echo /dev/shm; else echo "${TMPDIR:-/tmp}"; fi
}

# run_pytest NAME ARGUMENTS...
run_pytest() {
  local log
  log=$(log_file "pytest-$1")
  "$DEPS/pytest/bin/pytest" -q -rs -p no:cacheprovider "${@:2}" | tee "$log"
  note_skipped "$log" SKIPPED
}

# python_tests ARGUMENTS...: the tests in Python, against build/release/bin, twice as many at a time as there are cores, since
# they mostly wait; but for those that hold the service to its times, which have the machine for themselves.
python_tests() {
  local timed=(tests/e2e/test_lifecycle.py tests/e2e/test_namespaces.py tests/e2e/test_stuck.py) others=(tests/python)
  local file
  for file in tests/e2e/test_*.py; do
    [[ " ${timed[*]} " == *" $file "* ]] || others+=("$file")
  done
  export OMP_NUM_THREADS=1
  PYTEST_DEBUG_TEMPROOT=$(temp_root)
  export PYTEST_DEBUG_TEMPROOT
  say "tests of whole programs, their files in $PYTEST_DEBUG_TEMPROOT"
  run_pytest programs --durations=12 -n "$((JOBS * 2))" --dist worksteal "${others[@]}" "$@"
  say "tests of whole programs: the service's times"
  run_pytest times --durations=12 "${timed[@]}" "$@"
}

sanitizer_tests() {
  local preset=$1
  build_in_time 6 --all --preset "$preset" || return 0
  # tsan.txt names gRPC's frames only: Debian's gRPC is not instrumented. What is left out by address costs time by the square of
  # how much there is.
  IMGD_SIM_SEEDS=60 ASAN_OPTIONS="detect_leaks=1:abort_on_error=1" UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1" \
    TSAN_OPTIONS="halt_on_error=1:history_size=7:suppress_equal_addresses=0:suppressions=$PWD/tests/suppressions/tsan.txt" ctest_preset "$preset"
}

# fuzz_one NAME: runs a fuzzer with its inputs; what crashes it is printed with the file that does.
# A test tries the same inputs every time; with IMGD_FUZZ_SEED set to another number than 1, others, and what reaches more
# code stays in build/fuzz/corpus for the next run: that is a search, and IMGD_FUZZ_SECONDS may be hours.
fuzz_one() {
  local name=$1 seconds log="build/log/fuzz-$1.log" found="build/fuzz/crashes/$1-" seed=${IMGD_FUZZ_SEED:-1}
  # Half as long for what training does not read.
  case $name in
    jpeg | recordio | shard_index | tar | tfrecord) seconds=60 ;;
    *) seconds=30 ;;
  esac
  seconds=${IMGD_FUZZ_SECONDS:-$seconds}
  [[ $seed != 1 ]] || rm -rf "build/fuzz/corpus/$name"
  mkdir -p "build/fuzz/corpus/$name" build/fuzz/crashes build/log
  rm -f "$found"*
  if "build/fuzz/bin/fuzz_$name" -seed="$seed" -max_total_time="$seconds" -rss_limit_mb=1500 -timeout=10 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="$found" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1
  then
    say "fuzz_$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, none of them bad"
    return
  fi
  tail -n 60 "$log" >&2
  printf 'run: fuzz_%s failed; the input: %s\n' "$name" "$(compgen -G "$found*" || echo "see $log")" >&2
  return 1
}

fuzz_tests() {
  build_in_time 6 --preset fuzz || return 0
  export -f fuzz_one say
  # As many at a time as there are cores.
  find tests/fuzz -maxdepth 1 -name '*.cc' ! -name make_corpus.cc -printf '%f\n' | sed 's/\.cc$//' | sort \
    | xargs -P "$JOBS" -I NAME bash -c 'fuzz_one NAME'
}

# web_tests: the dashboard's pure parts, and its pages in Chromium, as they were built into imgd, over canned data.
web_tests() {
  say "tests of the dashboard"
  (setup_apt browser) || skipped "the dashboard's pages in a browser: no Chromium could be installed (apt-get install chromium, or IMGD_CHROMIUM)"
  web_npm test
  IMGD_WEB_OUT=$PWD/build/release/web/dist web_npm run test:browser
}

short_tests() {
  part "unit tests" ctest_preset release
  part "the dashboard" web_tests
  part "whole programs" python_tests -m "not long"
}

# package_tests: an installation's life in a clean root, one test after the other; where one can't be made they say why.
package_tests() {
  (setup_apt package) || skipped "the packages: what makes them can't be installed"
  say "tests of the packages"
  run_pytest packages --maxfail 3 tests/packages  # what follows a failure would mostly wait for what that one lacks
}

# time_for MINUTES WHAT: whether so much is left until IMGD_TEST_DEADLINE (seconds since 1970); always, where that is not set.
time_for() {
  [[ ${IMGD_TEST_DEADLINE:-} ]] || return 0
  local left=$(((IMGD_TEST_DEADLINE - $(date +%s)) / 60))
  ((left < $1)) || return 0
  skipped "$2, which may take $1 minutes where $left are left until IMGD_TEST_DEADLINE"
  return 1
}

# build_in_time MINUTES ARGUMENTS...: ./run build; false, and said, where it had to be ended since MINUTES, which what it builds
# takes, would not have been left until IMGD_TEST_DEADLINE.
build_in_time() {
  local limited=() status=0
  if [[ ${IMGD_TEST_DEADLINE:-} ]]; then limited=(timeout "$((IMGD_TEST_DEADLINE - $(date +%s) - $1 * 60))"); fi
  "${limited[@]}" ./run build "${@:2}" || status=$?
  ((status == 0 || status == 124)) || exit "$status"
  ((status == 0)) || skipped "build ${*:2}: it was not done $1 minutes before IMGD_TEST_DEADLINE"
  return "$status"
}

# room_for GIB WHAT: whether so much is free where the dependencies go.
room_for() {
  local free
  free=$(df --output=avail --block-size=G "$DEPS" | tail -1 | tr -dc 0-9)
  ((${free:-0} < $1)) || return 0
  skipped "$2, which takes $1 GiB of disk where $free are free"
  return 1
}

# cuda12_tests: that the trainer compiles, and loads its libraries, for GPUs that CUDA 13 has dropped.
cuda12_tests() {
  (setup_torch torch-cu12) || { skipped "the trainer for CUDA 12: its LibTorch can't be had"; return; }
  build_in_time 1 --cuda12 || return 0
  local libraries
  libraries=$(build/cuda12/bin/imgtrain --libraries | paste -sd ' ')
  [[ $libraries == *' CUDA 12.'* ]] || die "build/cuda12/bin/imgtrain --libraries: $libraries"
  say "the trainer for CUDA 12 has $libraries"
}

# What finds most comes first; the rest is skipped, and it is said, where a slow machine has no time for it.
long_tests() {
  part "lint, without clang-tidy" run_lint_quick
  IMGD_SIM_SEEDS=6000 part "the simulation's many seeds" ctest_preset release -R '^sim_test$'
  (setup_apt slurm deps/apt-bench.txt) || skipped "deploy/slurm: Slurm can't be installed"
  if time_for 35 "the long tests of whole programs"; then part "whole programs, the long ones" python_tests -m long; fi
  if time_for 8 "the tests of the packages"; then part "packages" package_tests; fi
  local preset
  for preset in ${IMGD_SANITIZERS:-asan tsan}; do
    if time_for 22 "the sanitizer $preset"; then part "sanitizer $preset" sanitizer_tests "$preset"; fi
  done
  if time_for 9 "the fuzzers"; then part "fuzzers" fuzz_tests; fi
  if time_for 9 "the trainer for CUDA 12" && room_for 12 "the trainer for CUDA 12"; then part "CUDA 12" cuda12_tests; fi
}

run_tests() {
  local which=short
  while (($#)); do
    case $1 in
      --full) which=full ;;
      --long) which=long ;;
      *) die "test: unknown option '$1'; allowed: --full, --long" ;;
    esac
    shift
  done
  trap 'rm -rf "$TEST_TEMP"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  part "build" build --all
  setup_apt test
  setup_pytest
  setup_nginx
  setup_prometheus
  export PATH=$DEPS/prometheus/usr/bin:$PATH  # promtool, for the unit tests
  [[ $which == long ]] || short_tests
  [[ $which == short ]] || long_tests
  local took
  for took in "${PARTS[@]}"; do say "$took"; done
  if ((${#SKIPPED[@]} == 0)); then
    say "all tests passed in $((SECONDS - TESTS_BEGUN)) s"
    return
  fi
  say "what was tested passed, in $((SECONDS - TESTS_BEGUN)) s, but NOT ALL WAS TESTED:"
  local one
  for one in "${SKIPPED[@]}"; do say "  not tested: $one"; done
}

run_lint_quick() {
  # shellcheck source=scripts/lint.sh
  source scripts/lint.sh
  say "lint, without clang-tidy"
  lint_format && lint_shell && lint_python && lint_web && lint_deploy && lint_proto && lint_includes && lint_names
}
