#!/usr/bin/env bash
# Debian packages, or a tarball, of what is in build/release/bin (IMGD_BIN); see ./run help. The result is in build/package,
# or in --out DIR. Everything is packed as root's without being root, and the same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh
# shellcheck source=scripts/tarball.sh
source scripts/tarball.sh

BIN=${IMGD_BIN:-$PWD/build/release/bin}
OUT=$PWD/build/package
STAGE=
VERSION=
RUNTIME='' TARBALL='' LINT=1 ONLY=() TREE=''

read_options() {
  while (($#)); do
    case $1 in
      --runtime) RUNTIME=1 ;;
      --tarball) TARBALL=1 ;;
      --no-lint) LINT='' ;;
      --runtime-tree) TREE=$(realpath -m "${2:?--runtime-tree needs a folder}"); shift ;;
      --only) ONLY+=("${2:?--only needs a package}"); shift ;;
      --out) OUT=$(realpath -m "${2:?--out needs a folder}"); shift ;;
      --version) VERSION=${2:?--version needs a version}; shift ;;
      *) die "package: unknown option '$1'; allowed: --runtime, --tarball, --runtime-tree DIR, --no-lint, --only PACKAGE, --out DIR, --version V" ;;
    esac
    shift
  done
}

# version: that of CMakeLists.txt; between releases with the commit's time, so that newer ones are upgrades, and below the release.
version() {
  local base stamp
  base=$(sed -n 's/^project(imgd VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  if [[ $(git describe --tags --exact-match 2>/dev/null) == "v$base" ]]; then echo "$base"; return; fi
  stamp=$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format='%cd.%h' 2>/dev/null) || stamp=0
  echo "$base~git$stamp"
}

torch_version() { sed -n 's/^torch===\([0-9.]*\).*/\1/p' deps/torch-cu13.lock | grep . || die "deps/torch-cu13.lock names no torch"; }

# next_version 2.13.0: 2.13.1~, which is above all rebuilds of the first: LibTorch's classes are the same within one version only.
next_version() { echo "${1%.*}.$((${1##*.} + 1))~"; }

# stage_programs DIR: the programs, with LibTorch looked for beside where they will be.
stage_programs() {
  local dir=$1 program
  mkdir -p "$dir"
  for program in imgd imgagent imgagent-shim imgcli imgtrain libimgtrain_cuda.so; do
    [[ -f $BIN/$program ]] || continue
    cp "$BIN/$program" "$dir/"
    chmod 755 "$dir/$program"
  done
  if [[ -f $dir/imgtrain ]]; then
    # shellcheck disable=SC2016 # $ORIGIN is the loader's
    patchelf --set-rpath "$(runtime_path '$ORIGIN/../lib/imgd/cu13')" "$dir/imgtrain"
  fi
  if [[ -f $dir/libimgtrain_cuda.so ]]; then
    chmod 644 "$dir/libimgtrain_cuda.so"
    # shellcheck disable=SC2016
    patchelf --set-rpath "$(runtime_path '$ORIGIN/cu13')" "$dir/libimgtrain_cuda.so"
  fi
}

runtime_path() {
  local root=$1 part path=$1/torch/lib
  for part in cu13 nccl cudnn cusparselt nvshmem; do path+=:$root/nvidia/$part/lib; done
  echo "$path"
}

# stage_runtime DIR LICENCES [COPY...]: the libraries of the wheels, in their own order of folders: they find each other by it.
# COPY is the command that puts one there, in place of a copy.
stage_runtime() {
  local dir=$1 licences=$2 site library name copy=("${@:3}")
  ((${#copy[@]})) || copy=(install -m 644)
  site=$(echo "$DEPS"/torch/lib/python3*/site-packages)
  for library in "$site"/torch/lib/*.so* "$site"/nvidia/*/lib/*.so*; do
    name=$(basename "$library")
    # Left out: Python's own side of PyTorch, how NVSHMEM starts under MPI (which it would look for in a folder of who built it), and
    # the plain names that only compilers look for.
    case $name in libtorch_python.so | libshm.so | nvshmem_bootstrap_mpi.so* | nvshmem_bootstrap_shmem.so*) continue ;; esac
    [[ ! -L $library ]] || continue
    mkdir -p "$(dirname "$dir/${library#"$site/"}")"
    "${copy[@]}" "$library" "$dir/${library#"$site/"}"
  done
  mkdir -p "$licences"
  for library in "$site"/{torch,nvidia_*}-*.dist-info; do
    find "$library" -iname 'licen*' -type f | while read -r name; do
      install -D -m 644 "$name" "$licences/$(basename "$library" .dist-info).txt"
    done
  done
}

stage_texts() {
  local dir=$1 shell program section
  mkdir -p "$dir"/{man,completion,etc,examples,systemd,texts}
  for program in imgd:8 imgagent:8 imgcli:1 imgtrain:1; do
    section=${program#*:} program=${program%:*}
    [[ -f $BIN/$program ]] || continue
    /usr/bin/python3 deploy/packages/man_pages.py "$BIN/$program" "$section" >"$dir/man/$program.$section"
  done
  for shell in bash:imgcli zsh:_imgcli fish:imgcli.fish; do
    "$BIN/imgcli" completion "${shell%:*}" >"$dir/completion/${shell#*:}"
  done
  cp deploy/imgd.yaml deploy/agent.yaml "$dir/etc/"
  cp deploy/systemd/imgagent-users.conf "$dir/systemd/"
  cp deploy/demo/job.yaml deploy/nginx/imgd-shards.conf deploy/systemd/imgcli-prune.* "$dir/examples/"
  cp README.md ARCHITECTURE.md CHANGELOG.md "$dir/texts/"
  # Beside each other, as the documents name what is in deploy/.
  cp -r docs deploy "$dir/"
  [[ ! -d deploy/grafana ]] || { mkdir -p "$dir/grafana" && cp -r deploy/grafana/* "$dir/grafana/"; }
  [[ ! -d deploy/grafana || ! -d deploy/prometheus ]] || cp -r deploy/prometheus "$dir/grafana/"
}

# stage_debian DIR PACKAGES...: what debhelper reads, with the versions filled in, for these packages.
stage_debian() {
  local dir=$1/debian torch email=${DEBEMAIL:-} unit
  shift
  [[ $email ]] || email=$(git log -1 --format=%ae)
  cp -r deploy/packages/debian "$dir"
  torch=$(torch_version)
  sed -i "s/@TORCH@/$torch/; s/@TORCH_NEXT@/$(next_version "$torch")/; s/@EMAIL@/$email/
    s/@BUILD_DEPENDS@/$(build_depends)/" "$dir/control"
  keep_packages "$dir/control" "$@"
  for unit in imgd imgagent; do cp "deploy/systemd/$unit.service" "$dir/"; done
  {
    printf 'imgd (%s) unstable; urgency=medium\n\n' "$VERSION"
    printf '  * See /usr/share/doc/imgd/CHANGELOG.md for what changed.\n\n'
    printf ' -- imgd maintainers <%s>  %s\n' "$email" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
  } >"$dir/changelog"
}

# build_depends: the packages that a build needs, of deps/apt.txt, as debian/control has them.
build_depends() { awk '$1 == "build" { gsub(/\|/, " | ", $2); print $2 }' deps/apt.txt | paste -sd, | sed 's/,/, /g'; }

# keep_packages CONTROL PACKAGES...: leaves the source's paragraph and these.
keep_packages() {
  local control=$1
  shift
  awk -v RS= -v ORS='\n\n' -v keep=" $* " '$1 == "Source:" || index(keep, " " $2 " ")' "$control" >"$control.new"
  mv "$control.new" "$control"
}

# packages: those that there is something for.
packages() {
  local all=(imgd imgagent imgcli)
  [[ ! -f $BIN/imgtrain ]] || all+=(imgtrain)
  [[ ! -d deploy/grafana ]] || all+=(imgd-grafana)
  [[ ! $RUNTIME ]] || all+=(imgtrain-runtime-cu13)
  if ((${#ONLY[@]})); then all=("${ONLY[@]}"); fi
  printf '%s\n' "${all[@]}"
}

make_packages() {
  local chosen log torch
  mapfile -t chosen < <(packages)
  torch=$(torch_version)
  say "packing imgd $VERSION: ${chosen[*]}"
  stage_programs "$STAGE/bin"
  stage_texts "$STAGE"
  # shlibdeps looks at LibTorch's names beside imgtrain, also where it is not packed.
  mkdir -p "$STAGE/runtime"
  if [[ $RUNTIME ]]; then
    stage_runtime "$STAGE/runtime" "$STAGE/licences"
  else
    ln -s "$DEPS"/torch/lib/python3*/site-packages/{torch,nvidia} "$STAGE/runtime/"
  fi
  stage_debian "$STAGE" "${chosen[@]}"
  log=$(log_file package)
  (cd "$STAGE" && RUNTIME_VERSION=$torch debian/rules binary) >"$log" 2>&1 || die_log package
  mkdir -p "$OUT"
  local made=("$(dirname "$STAGE")"/*.deb)
  mv "${made[@]}" "$OUT/"
  made=("${made[@]##*/}")
  [[ ! $LINT ]] || lint_packages "${made[@]/#/$OUT/}"
  (cd "$OUT" && ls -sh "${made[@]}")
}

lint_packages() {
  say "lintian"
  # Debian 12's takes no archive of zstd for one.
  lintian --fail-on error --allow-root --no-cfg ${RUNTIME:+--suppress-tags malformed-deb-archive} "$@"
}

main() {
  read_options "$@"
  # What a package of the runtime has, without gigabytes: links to the files of the wheels.
  if [[ $TREE ]]; then stage_runtime "$TREE" "$TREE/licences" cp -l; return; fi
  setup_apt package
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
  export SOURCE_DATE_EPOCH
  VERSION=${VERSION:-$(version)}
  local work
  work=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  STAGE=$work/imgd
  mkdir -p "$STAGE"
  if [[ $TARBALL ]]; then make_tarball; else make_packages; fi
}

main "$@"
