#!/usr/bin/env bash
# installed_cmake.sh - builds examples with CMake's find_package(unet) from what `meson install` leaves, and runs one.
#
# installed_cmake.sh MESON BUILD_DIR VERSION EXAMPLES_SOURCE_DIR UNETD
set -euo pipefail

meson=$1 build=$2 version=$3 examples=$4 unetd=$5
command -v cmake >/dev/null || { echo "skipped: there is no cmake"; exit 77; }
there=$(mktemp -d)
unetd_pid=
trap '[[ -z $unetd_pid ]] || kill "$unetd_pid"; rm -rf "$there"' EXIT

"$meson" install -C "$build" --no-rebuild --destdir "$there/root" >"$there/log" 2>&1 || { cat "$there/log"; exit 1; }
# Elsewhere than it was configured for: the file finds all beside itself.
prefix=$(dirname "$(dirname "$(find "$there/root" -name unetd -path '*/bin/*')")")
mv "$prefix" "$there/moved"

cp "$examples"/hello.c "$examples"/hello.cc "$examples"/am_hello.c "$examples"/rpc_ping.cc "$examples"/splitc_hello.c "$there"
cat >"$there/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(examples C CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(unet $version REQUIRED)
foreach(example hello.c hello.cc am_hello.c rpc_ping.cc splitc_hello.c)
  string(REPLACE . _ name \${example})
  add_executable(\${name} \${example})
endforeach()
target_link_libraries(hello_c unet::unet)
target_link_libraries(hello_cc unet::unet)
target_link_libraries(am_hello_c unet::am)
target_link_libraries(rpc_ping_cc unet::rpc)
target_link_libraries(splitc_hello_c unet::splitc)
END
{ cmake -S "$there" -B "$there/out" -DCMAKE_PREFIX_PATH="$there/moved" && cmake --build "$there/out" -j "$(nproc)"; } >"$there/log" 2>&1 ||
  { cat "$there/log"; exit 1; }
sed -i "s/find_package(unet .* REQUIRED)/find_package(unet 99.0 REQUIRED)/" "$there/CMakeLists.txt"
if cmake -S "$there" -B "$there/newer" -DCMAKE_PREFIX_PATH="$there/moved" >"$there/log" 2>&1; then echo "release 99.0 was found"; exit 1; fi

"$unetd" --socket "$there/socket" --ready-fd 5 --log off 5> >(cat >"$there/ready") &
unetd_pid=$!
for ((i = 0; i < 600; ++i)); do
  [[ ! -s $there/ready ]] || break
  sleep 0.1
done
for program in hello_c hello_cc; do
  said=$(UNET_NI=unix:$there/socket "$there/out/$program")
  [[ $said == *"Alice received: Hello, Alice."* ]] || { echo "$program says '$said'"; exit 1; }
done
echo "five examples are built; hello runs in C and C++"
