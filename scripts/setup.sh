# Sets up what the project needs. Sourced by ./run, from the repository's root.
# Each step looks at what it depends on, and is skipped when that is there already.
# shellcheck shell=bash

DEPS=${IMGD_DEPS:-$PWD/.deps}

say() { printf '\033[2m%s\033[0m\n' "== $*" >&2; }
[[ -t 2 ]] || say() { printf '%s\n' "== $*" >&2; }
die() { printf 'run: %s\n' "$*" >&2; exit 1; }

log_file() { mkdir -p build/log && echo "build/log/$1.log"; }
die_log() { tail -n 30 "build/log/$1.log" >&2; die "$1 failed; the whole log is build/log/$1.log"; }

as_root() {
  if ((EUID == 0)); then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
    die "needs root or sudo to install Debian packages: $*"
  fi
}

installed() { [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null) == ii* ]]; }

# setup_apt SECTION [LIST]: installs the section's packages of deps/apt.txt, or of another list, that are not installed.
setup_apt() {
  local section=$1 list=${2:-deps/apt.txt} missing=() kind names name found
  while read -r kind names _; do
    [[ $kind == "$section" ]] || continue
    found=
    for name in ${names//|/ }; do installed "$name" && found=1 && break; done
    [[ $found ]] || missing+=("$names")
  done <"$list"
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null || die "this needs apt-get (Debian 12, Ubuntu 24.04); missing: ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  local log; log=$(log_file apt)
  as_root apt-get update >"$log" 2>&1 || die_log apt
  local choice=()
  for names in "${missing[@]}"; do
    for name in ${names//|/ }; do
      apt-cache show "$name" >/dev/null 2>&1 && choice+=("$name") && break
    done
  done
  # RUNLEVEL: Debian's scripts start no service in single-user mode.
  as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends "${choice[@]}" >>"$log" 2>&1 || die_log apt
}

# install_lock DIR LOCK PROBE: a Python environment with exactly the lock's wheels; PROBE is a file that must be in it.
install_lock() {
  local dir=$1 lock=$2 probe=$3
  local want; want=$(sha256sum <"$lock" | cut -d' ' -f1)
  if [[ -f $dir/.lock-sha256 && $(<"$dir/.lock-sha256") == "$want" ]] && compgen -G "$dir/$probe" >/dev/null; then return 0; fi
  say "installing $(grep -c -- '==' "$lock") wheels of $lock into ${dir#"$PWD/"}"
  local log; log=$(log_file "$(basename "$dir")")
  rm -rf "$dir"
  /usr/bin/python3 -m venv "$dir" >"$log" 2>&1 || die_log "$(basename "$dir")"
  "$dir/bin/pip" install --no-deps --require-hashes --quiet --disable-pip-version-check -r "$lock" >>"$log" 2>&1 \
    || die_log "$(basename "$dir")"
  echo "$want" >"$dir/.lock-sha256"
}

# setup_torch torch|torch-cu12|torch-cpu: LibTorch with CUDA 13's toolkit; an older one with CUDA 12's; LibTorch alone.
setup_torch() {
  local dir=$DEPS/$1 lock=deps/$1.lock
  [[ $1 != torch ]] || lock=deps/torch-cu13.lock
  install_lock "$dir" "$lock" 'lib/python3*/site-packages/torch/lib/libtorch_cpu.so'
  # The wheels lack the plain names that compilers and CMake look for.
  local lib target
  for lib in "$dir"/lib/python3*/site-packages/nvidia/{cu13,nccl,nvjpeg}/lib/lib*.so.*; do
    [[ -e $lib ]] || continue
    target=${lib%%.so.*}.so
    [[ -e $target ]] || ln -s "$(basename "$lib")" "$target"
  done
  for lib in "$dir"/lib/python3*/site-packages/nvidia/cu13; do
    [[ ! -d $lib || -e $lib/lib64 ]] || ln -s lib "$lib/lib64"
  done
}

# The tests' Python: pytest, torchvision and safetensors, beside the torch that is there already.
setup_pytest() {
  setup_torch torch
  install_lock "$DEPS/pytest" deps/python-test.lock 'bin/pytest'
  local site
  site=$(echo "$DEPS"/pytest/lib/python3*/site-packages)
  echo "$DEPS"/torch/lib/python3*/site-packages >"$site/torch-beside.pth"
}

# What looks over Dockerfiles and Kubernetes' manifests.
setup_deploy() { install_lock "$DEPS/deploy" deps/deploy.lock 'bin/hadolint'; }

# nginx's program alone, for the test of deploy/nginx: its package would start a server on port 80.
setup_nginx() {
  local dir=$DEPS/nginx log
  [[ ! -x $dir/usr/sbin/nginx ]] || return 0
  log=$(log_file nginx)
  mkdir -p "$dir"
  (
    cd "$dir"
    apt-get download nginx || { as_root apt-get update && apt-get download nginx; }
    dpkg-deb -x nginx_*.deb . && rm nginx_*.deb
  ) >"$log" 2>&1 || die_log nginx
}

# Prometheus and promtool alone, for the tests of deploy/prometheus and deploy/grafana: the package would start a server.
setup_prometheus() {
  local dir=$DEPS/prometheus log
  [[ ! -x $dir/usr/bin/promtool ]] || return 0
  log=$(log_file prometheus)
  mkdir -p "$dir"
  (
    cd "$dir"
    apt-get download prometheus || { as_root apt-get update && apt-get download prometheus; }
    dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb
  ) >"$log" 2>&1 || die_log prometheus
}

# What builds and checks the dashboard: Node.js, and in web/node_modules the packages of web/package-lock.json.
setup_web() {
  install_lock "$DEPS/node" deps/node.lock 'bin/node'
  local dir=$DEPS/web want log
  want=$(cat deps/node.lock web/package.json web/package-lock.json | sha256sum | cut -d' ' -f1)
  if [[ ! -f $dir/.lock-sha256 || $(<"$dir/.lock-sha256") != "$want" ]]; then
    say "installing the packages of web/package-lock.json into ${dir#"$PWD/"}"
    log=$(log_file web)
    rm -rf "$dir"
    mkdir -p "$dir"
    cp web/package.json web/package-lock.json web/.npmrc "$dir"
    # npm knows public authorities only; this machine may trust others, as of a proxy.
    (cd "$dir" && NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt} \
      PATH=$DEPS/node/bin:$PATH npm ci --ignore-scripts) >"$log" 2>&1 || die_log web
    echo "$want" >"$dir/.lock-sha256"
  fi
  if [[ ! web/node_modules -ef $dir/node_modules ]]; then
    rm -rf web/node_modules
    ln -s "$dir/node_modules" web/node_modules
  fi
}

# web_npm ARGUMENTS...: npm in web/, with that Node.js.
web_npm() { (cd web && PATH=$DEPS/node/bin:$PATH npm --silent "$@"); }

# What `./run bench data` measures us against, beside the torch that is there already.
setup_peers() {
  setup_torch torch
  local dir=$DEPS/peers site before
  before=$(cat "$dir/.lock-sha256" 2>/dev/null || true)
  install_lock "$dir" deps/peers.lock 'bin/python'
  site=$(echo "$dir"/lib/python3*/site-packages)
  echo "$DEPS"/torch/lib/python3*/site-packages >"$site/torch-beside.pth"
  [[ $before == "$(<"$dir/.lock-sha256")" && (-d $site/ffcv || -f $dir/ffcv-missing) ]] || setup_ffcv "$dir"
}

# FFCV comes as source only, and of OpenCV wants core and imgproc. What keeps it from being built is kept for its row.
setup_ffcv() {
  local dir=$1 log
  log=$(log_file ffcv)
  say "building ffcv"
  mkdir -p "$dir/opencv/opencv2"
  printf '#pragma once\n#include <opencv2/core.hpp>\n#include <opencv2/imgproc.hpp>\n' >"$dir/opencv/opencv2/opencv.hpp"
  printf 'Name: opencv4\nDescription: two of its modules\nVersion: 4\nCflags: -I%s -I/usr/include/opencv4\nLibs: %s\n' \
    "$dir/opencv" "-lopencv_imgproc -lopencv_core" >"$dir/opencv/opencv4.pc"
  rm -f "$dir/ffcv-missing"
  if ! (setup_apt peers && PKG_CONFIG_PATH=$dir/opencv "$dir/bin/pip" install --no-deps --no-build-isolation --quiet \
    --require-hashes --disable-pip-version-check -r deps/peers-source.lock) >"$log" 2>&1; then
    { echo "ffcv can't be built here:"; grep -m 1 -iE 'error|missing' "$log"; } >"$dir/ffcv-missing"
  fi
}
