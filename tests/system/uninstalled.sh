#!/usr/bin/env bash
# uninstalled.sh - builds a program for AM-2 and one for GAM with pkg-config's flags for the build tree (meson-uninstalled).
#
# Usage: uninstalled.sh BUILD
set -euo pipefail

export PKG_CONFIG_PATH=$1/meson-uninstalled
there=$(mktemp -d)
trap 'rm -r "$there"' EXIT
for each in am2:AM_Init gam:am_enable; do
  interface=${each%:*}
  # shellcheck disable=SC2046
  printf '#include <am.h>\nint main(void) { return %s() == 4711; }\n' "${each#*:}" |
    cc -Werror -x c $(pkg-config --cflags "unet-$interface") - -o "$there/$interface" $(pkg-config --libs "unet-$interface")
done
echo "both are built"
