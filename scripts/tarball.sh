# One archive that runs from wherever it is unpacked, without root: the programs with the shared libraries that they need, but for
# the C and C++ libraries, which are those of the machine (as old as Debian 12's or newer). Sourced by package.sh.
# shellcheck shell=bash

# libraries_of PROGRAM...: paths of what they load, LibTorch's and the machine's own left out.
libraries_of() {
  ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u \
    | grep -v -e "^$DEPS/" -e "/site-packages/" -e '/\(libc\|libm\|libdl\|librt\|libpthread\|libresolv\|libstdc++\|libgcc_s\)\.so\.'
}

# stage_tree DIR: bin, lib/imgd, etc, share and the documents.
stage_tree() {
  local dir=$1 shared=$1/lib/imgd/shared file path
  stage_programs "$dir/bin"
  mkdir -p "$shared" "$dir/share"
  [[ ! -f $dir/bin/libimgtrain_cuda.so ]] || mv "$dir/bin/libimgtrain_cuda.so" "$dir/lib/imgd/"
  local packed=("$dir"/bin/*)
  [[ ! -f $dir/lib/imgd/libimgtrain_cuda.so ]] || packed+=("$dir/lib/imgd/libimgtrain_cuda.so")
  libraries_of "${packed[@]}" | while read -r file; do
    install -m 644 "$(realpath "$file")" "$shared/$(basename "$file")"
    # shellcheck disable=SC2016 # $ORIGIN is the loader's
    patchelf --set-rpath '$ORIGIN' "$shared/$(basename "$file")"
  done
  for file in "${packed[@]}"; do
    strip --strip-unneeded "$file"
    # shellcheck disable=SC2016
    case $file in */bin/*) path='$ORIGIN/../lib/imgd/shared' ;; *) path='$ORIGIN/shared' ;; esac
    path+=:$(patchelf --print-rpath "$file")
    patchelf --set-rpath "${path%:}" "$file"
  done
  mv "$STAGE/etc" "$STAGE/docs" "$dir/"
  mv "$STAGE"/texts/* "$dir/"
  mv "$STAGE/man" "$STAGE/completion" "$STAGE/examples" "$dir/share/"
  mkdir -p "$dir/share/systemd"
  cp deploy/systemd/*.service "$dir/share/systemd/"
}

make_tarball() {
  local name tree
  name=imgd-$VERSION-linux-$(uname -m)
  tree=$STAGE/$name
  say "packing $name"
  stage_texts "$STAGE"
  stage_tree "$tree"
  [[ ! $RUNTIME ]] || stage_runtime "$tree/lib/imgd/cu13" "$tree/share/licences"
  mkdir -p "$OUT"
  tar --directory "$STAGE" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --use-compress-program='zstd -10 -T0' -cf "$OUT/$name.tar.zst" "$name"
  ls -sh "$OUT/$name.tar.zst"
}
