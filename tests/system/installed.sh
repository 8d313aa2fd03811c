#!/usr/bin/env bash
# installed.sh - what `meson install` leaves is enough for an application: every header compiles outside of the tree, in
# the languages it is for, and a C program that pkg-config helped to build runs with the library.
#
#   installed.sh MESON BUILD_DIR VERSION
set -euo pipefail

meson=$1 build=$2 version=$3
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT

"$meson" install -C "$build" --no-rebuild --destdir "$there" >"$there/log" 2>&1 || {
  cat "$there/log"
  exit 1
}

pc=$(find "$there" -name unet.pc)
[[ -n $pc ]] || { echo "unet.pc was not installed"; exit 1; }
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$there
include=$there$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=includedir unet)
libraries=$there$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=libdir unet)

failed=0
report() {
  echo "FAILED: $1"
  failed=1
}

[[ $(pkg-config --modversion unet) == "$version" ]] || report "unet.pc has version $(pkg-config --modversion unet), not $version"

cd "$there"
headers=0
while read -r header; do
  headers=$((headers + 1))
  echo "#include <$header>" | c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -x c++ $(pkg-config --cflags unet) - ||
    report "<$header> does not compile as C++"
  # A header for C as well says so with extern "C".
  if grep -q '^extern "C" {' "$include/$header"; then
    echo "#include <$header>" | cc -std=c99 -Wall -Wextra -pedantic -Werror -fsyntax-only -x c $(pkg-config --cflags unet) - ||
      report "<$header> does not compile as C"
  fi
done < <(cd "$include" && find unet -name '*.h' | sort)
[[ $headers -gt 0 ]] || report "no header was installed in $include"

cat >hello.c <<'END'
#include <stdio.h>
#include <unet/version.h>
int main(void) { return puts(unet_version()) < 0; }
END
cc -Wall -Werror hello.c -o hello $(pkg-config --cflags --libs unet)
said=$(LD_LIBRARY_PATH=$libraries ./hello)
[[ $said == "$version" ]] || report "a C program built with pkg-config printed '$said', not '$version'"

[[ $failed -eq 0 ]] && echo "$headers installed headers compile; a C program runs"
exit $failed
