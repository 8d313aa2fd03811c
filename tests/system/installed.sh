#!/usr/bin/env bash
# installed.sh - checks that `meson install` leaves all that an application needs. Every header compiles outside of the tree, in its
# languages. The library exports exactly the C functions that unet.h declares. Every example builds with the command in its first lines,
# with pkg-config; those that say hello run over an installed unetd. The manual pages and the systemd unit are there.
#
# installed.sh MESON BUILD_DIR VERSION EXAMPLES_SOURCE_DIR
set -euo pipefail

meson=$1 build=$2 version=$3 examples=$4
there=$(mktemp -d)
unetd_pid=
trap '[[ -z $unetd_pid ]] || kill "$unetd_pid"; rm -rf "$there"' EXIT

"$meson" install -C "$build" --no-rebuild --destdir "$there" >"$there/log" 2>&1 || {
  cat "$there/log"
  exit 1
}

pc=$(find "$there" -name unet.pc)
[[ -n $pc ]] || { echo "unet.pc was not installed"; exit 1; }
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$there
include=$there$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=includedir unet)
libraries=$there$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=libdir unet)
programs=$there$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=prefix unet)/bin
export LD_LIBRARY_PATH=$libraries

report() {
  echo "FAILED: $1"
  touch "$there/failed"
}

# try COMPLAINT COMMAND... - runs in the background, at most one for each core; reports the complaint if the command fails.
try() {
  local complaint=$1
  shift
  while [[ $(jobs -rp | wc -l) -ge $cores ]]; do wait -n || true; done
  { "$@" || report "$complaint"; } &
}
cores=$(nproc)

[[ $(pkg-config --modversion unet) == "$version" ]] || report "unet.pc has version $(pkg-config --modversion unet), not $version"

# ---- headers

cd "$there"
headers=0
# check_headers DIRECTORY PATTERN PACKAGE - the headers there compile with the flags of the package.
check_headers() {
  local header flags
  flags=$(pkg-config --cflags "$3")
  while read -r header; do
    headers=$((headers + 1))
    # A header for C, alone or beside C++, has extern "C" around __cplusplus.
    try "<$header> does not compile as C++" c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -x c++ $flags - <<<"#include <$header>"
    grep -q '^#ifdef __cplusplus' "$1/$header" || continue
    for standard in c99 c11; do
      try "<$header> does not compile as $standard" \
        cc -std=$standard -Wall -Wextra -pedantic -Werror -fsyntax-only -x c $flags - <<<"#include <$header>"
    done
  done < <(cd "$1" && find . -path "$2" | sed 's,^./,,' | sort)
}
check_headers "$include" './unet/*.h' unet
check_headers "$include/unet-am" './am/*.h' unet-am
[[ -f $include/unet/unet.h && -f $include/unet/context.h ]] || report "unet.h or context.h was not installed in $include"
[[ -f $include/unet-am/am/am.h && -f $include/unet-am/am/endpoint.h ]] || report "am.h or endpoint.h was not installed in $include/unet-am"
[[ -f $include/unet/rpc.h && -f $include/unet-am/am/rpc/client.h ]] || report "rpc.h or client.h was not installed in $include"
[[ -f $include/unet-am/am/splitc/splitc.h ]] || report "splitc.h was not installed in $include/unet-am/am/splitc"

# An older C++ standard is refused in two lines.
if c++ -std=c++17 -fsyntax-only -x c++ $(pkg-config --cflags unet) - <<<"#include <unet/context.h>" 2>old_cpp; then
  report "<unet/context.h> compiles as C++17"
fi
[[ $(grep -c 'error:' old_cpp) -le 2 ]] && grep -q 'compile with -std=c++20' old_cpp || report "C++17 is not refused in two lines: $(head -3 old_cpp)"

# ---- the C ABIs: declared = exported, all under a version that must never change

declared() { cpp -P $(pkg-config --cflags "$1") "$2" | grep -v '^ *static inline' | grep -o "\\b$3[A-Za-z0-9_]*(" | tr -d '(' | sort -u; }
exported() { nm -D --defined-only --with-symbol-versions "$libraries/$1" | sed -n "s/.* T \\($2[A-Za-z0-9_]*\\)@@$3\$/\\1/p" | sort; }
# check_abi PACKAGE HEADER LIBRARY PREFIX NODE CXX_NODE - checks this library's ABI; PREFIX is a pattern of grep
check_abi() {
  if ! diff <(declared "$1" "$2" "$4") <(exported "$3" "$4" "$5") >difference; then
    cat difference
    report "$2 declares (<) and $3 exports under $5 (>) different functions: see its .map"
  fi
  functions=$((functions + $(exported "$3" "$4" "$5" | wc -l)))
  # All other exports belong to the C++ API.
  local others
  others=$(nm -D --defined-only --with-symbol-versions "$libraries/$3" | grep -v "@@$5\$\|@@$6\$\| A UNET_" || true)
  [[ -z $others ]] || report "$3 exports more than it should: $others"
}
functions=0
check_abi unet "$include/unet/unet.h" libunet.so 'unet_' UNET_0 UNET_CXX_0
# Headers that am.h includes are libunet's.
sed '/^#include "unet/d' "$include/unet-am/am/am.h" >am_alone.h
check_abi unet-am am_alone.h libunet_am.so 'unet_am_' UNET_AM_0 UNET_AM_CXX_0
check_abi unet-splitc "$include/unet-am/am/splitc/split_c.h" libunet_splitc.so 'splitc_' UNET_SPLITC_0 UNET_SPLITC_CXX_0
check_abi unet-rpc "$include/unet/rpc.h" libunet_rpc.so 'unet_rpc_' UNET_RPC_0 UNET_RPC_CXX_0
check_abi unet-am2 "$include/unet-am/am/compat/am2/am.h" libunet_am2.so '\(AM_\|unet_am2_\)' UNET_AM2_0 none
check_abi unet-gam "$include/unet-am/am/compat/gam/am.h" libunet_gam.so 'am_' UNET_GAM_0 none
# The classic interfaces: old programs include <am.h>, and find the one whose package they name.
newest_c=  # C23, where the compiler has it: there an empty parameter list means none
echo | cc -std=c23 -fsyntax-only -x c - 2>/dev/null && newest_c=c23
for interface in am2 gam; do
  [[ -n $(pkg-config --libs unet-$interface) ]] || report "unet-$interface.pc was not installed"
  for standard in c99 c11 $newest_c; do
    echo '#include <am.h>' | cc -std=$standard -Wall -Wextra -pedantic -Werror -fsyntax-only -x c $(pkg-config --cflags unet-$interface) - ||
      report "<am.h> of unet-$interface does not compile as $standard"
  done
  echo 'extern int AM_Init(void), am_enable(); int main(void) { return START(); }' |
    cc -DSTART=$([[ $interface == am2 ]] && echo AM_Init || echo am_enable) -x c $(pkg-config --cflags unet-$interface) - -o start_$interface \
      $(pkg-config --libs unet-$interface) || report "a program for unet-$interface does not link"
done

# ---- manual pages

share=$there$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=prefix unet)/share/man
for page in man1/unet-bench.1 man1/unet-run.1 man1/unetcat.1 man7/unet-rpc.7 man7/unet-splitc.7 man8/unetctl.8 man8/unetd.8; do
  [[ -f $share/$page ]] || report "the manual page $page was not installed"
done

# ---- service

unit=$(find "$there" -name unetd.service)
[[ -n $unit && -n $(find "$there" -path '*/sysusers.d/unet.conf') ]] || report "the systemd unit or its user was not installed"
[[ -x $there$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$unit") ]] || report "the systemd unit names another unetd than the installed one"

# ---- examples

# The command is in the source's first lines: a comment that starts with a compiler.
command_of() { sed -n '1,8s,^//   *\(\(cc\|c++\) .*\)$,\1,p' "$1"; }
count=0
for source in "$examples"/*.c "$examples"/*.cc; do
  cp "$source" .
  command=$(command_of "$source")
  count=$((count + 1))
  [[ -n $command ]] || { report "${source##*/} does not say how to build it"; continue; }
  try "${source##*/} does not build by its own command: $command" sh -c "$command"
done
wait

"$programs/unetd" --socket "$there/socket" --ready-fd 5 --log off 5> >(cat >ready) &
unetd_pid=$!
for ((i = 0; i < 600; ++i)); do
  [[ -s ready ]] && break
  sleep 0.1
done
for program in hello hello_c; do
  said=$(UNET_NI=unix:$there/socket ./$program || true)
  [[ $said == *"Bob received: Hello, Bob."*"Alice received: Hello, Alice."* ]] || report "$program, built with pkg-config, says '$said'"
done
for program in splitc_hello splitc_hello_c; do
  said=$(UNET_NI=unix:$there/socket ./$program || true)
  [[ $said == "1 ranks: the squares of 0 to 0 add up to 0" ]] || report "$program, built with pkg-config, says '$said'"
done

[[ ! -e failed ]] || exit 1
echo "$headers headers compile; $functions C functions; $count examples build; hello runs in C and C++"
