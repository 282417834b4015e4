# One archive that runs from wherever it is unpacked, without root: the programs with the shared libraries that they need, but for
# the C and C++ libraries, which are those of the machine (as old as Debian 12's or newer). Sourced by package.sh.
# shellcheck shell=bash

# libraries_of PROGRAM...: paths of what they load of Debian's; LibTorch's and the machine's own, a CUDA of its own too, left out.
# imgtrain is linked to libcurl, which the others load when they need it.
libraries_of() {
  ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u \
    | grep -v -e "^$DEPS/" -e "/site-packages/" -e '^/usr/local/' -e '/\(libc\|libm\|libdl\|librt\|libpthread\|libresolv\|libstdc++\|libgcc_s\)\.so\.'
}

# stage_licences DIR LIBRARY...: of Debian's packages that have these libraries, or whose headers were compiled in, and of the
# dashboard's packages; and what these texts refer to.
stage_licences() {
  local dir=$1 name
  mkdir -p "$dir/common-licenses"
  {
    for name in "${@:2}"; do dpkg-query -S "*/$(uname -m)-linux-gnu/$(basename "$(realpath "$name")")"; done
    awk '$1 == "build" && $2 ~ /-dev/ && $2 !~ /gtest|gmock/ {gsub(/\|/, "\n", $2); print $2}' deps/apt.txt
  } | cut -d: -f1 | sort -u | while read -r name; do
    [[ ! -f /usr/share/doc/$name/copyright ]] || install -m 644 "/usr/share/doc/$name/copyright" "$dir/$name.txt"
  done
  sed -n '/"dependencies"/,/}/s/^ *"\([^"]*\)": "[0-9].*/\1/p' web/package.json | while read -r name; do
    install -m 644 "$DEPS/web/node_modules/$name/LICENSE" "$dir/$name.txt"
  done
  grep -oh '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$dir"/*.txt | sort -u | while read -r name; do
    [[ ! -f $name ]] || install -m 644 "$name" "$dir/common-licenses/"
  done
}

# stage_tree DIR: bin, lib/imgd, etc, share, the documents, and deploy/ beside them.
stage_tree() {
  local dir=$1 shared=$1/lib/imgd/shared file path libraries
  stage_programs "$dir/bin"
  mkdir -p "$shared" "$dir/share"
  [[ ! -f $dir/bin/libimgtrain_cuda.so ]] || mv "$dir/bin/libimgtrain_cuda.so" "$dir/lib/imgd/"
  local packed=("$dir"/bin/*)
  [[ ! -f $dir/lib/imgd/libimgtrain_cuda.so ]] || packed+=("$dir/lib/imgd/libimgtrain_cuda.so")
  mapfile -t libraries < <(libraries_of "${packed[@]}")
  for file in "${libraries[@]}"; do
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
  mv "$STAGE/etc" "$STAGE/docs" "$STAGE/deploy" "$dir/"
  mv "$STAGE"/texts/* "$dir/"
  cp LICENSE "$dir/"
  mv "$STAGE/man" "$STAGE/completion" "$dir/share/"
  stage_licences "$dir/share/licences" "${libraries[@]}"
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
