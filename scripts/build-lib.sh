# build-lib.sh - configure and build a build directory; sourced by ./run and ./check.
#
# Several runs may use one build directory at the same time: whoever configures or builds holds a lock on it.
# The caller sets `root` (the repository) and `me` (its name, for messages). All messages go to stderr,
# so that the output of a program can be piped.

# Where a tree lies does not change what is compiled from it, except for the place that a debugger looks in.
export CCACHE_NOHASHDIR=1

say() { echo "$me: $*" >&2; }

die() {
  say "$1"
  exit "${2:-1}"
}

# lock DIR - waits until this process alone may build in DIR; unlock gives it back. The lock is on the directory itself:
# `meson setup --wipe` removes every file in it. Commands started under it close lock_fd, or a stray child would keep it.
lock() {
  local dir="$root/$1"
  mkdir -p "$dir" 2>/dev/null && [[ -w $dir ]] ||
    die "cannot write to $1/ (owner: $(stat -c %U "$dir" 2>/dev/null || echo nobody)): run as its owner, or remove it"
  exec {lock_fd}<"$dir"
  flock --nonblock "$lock_fd" || {
    say "waiting for another build in $1/ to finish"
    flock "$lock_fd"
  }
}

unlock() { exec {lock_fd}>&-; }

# configure DIR MESON_OPTION... - meson setup, when DIR is new, was configured otherwise, or was moved. The environment
# variables CC and CXX choose the compiler, CC_LD and CXX_LD the linker; ccache, where it is installed, remembers what they made,
# for every clone. Needs the lock.
configure() {
  local dir="$root/$1" CC=${CC:-cc} CXX=${CXX:-c++}
  if command -v ccache >/dev/null; then
    CC="ccache $CC" CXX="ccache $CXX"
  fi
  local wanted="$root $CC $CXX ${CC_LD:-} ${CXX_LD:-} ${*:2}"
  local wipe=()
  if [[ -e $dir/build.ninja ]]; then
    [[ -e $dir/.configured && $(<"$dir/.configured") == "$wanted" ]] && return 0
    wipe=(--wipe)
  fi
  rm -f "$dir/.configured"
  say "configuring $1/"
  local log
  log=$(mktemp)
  if ! CC=$CC CXX=$CXX meson setup "${wipe[@]}" "${@:2}" "$dir" "$root" >"$log" 2>&1 {lock_fd}>&-; then
    tail -20 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
  echo "$wanted" >"$dir/.configured"
}

# build DIR HOW_LONG TARGET... - ninja, silent when there is nothing to do. Needs the lock.
build() {
  local dir="$root/$1"
  if ninja -C "$dir" -n "${@:3}" {lock_fd}>&- 2>/dev/null | grep -q 'no work to do'; then
    return 0
  fi
  say "building in $1/ ($2)"
  # A failing command prints its own output; the rest of ninja's talk is of no use here.
  if ! ninja -C "$dir" --quiet "${@:3}" >"$dir/.build.log" 2>&1 {lock_fd}>&-; then
    grep -v '^ninja: ' "$dir/.build.log" | tail -80 >&2
    say "the build in $1/ failed (whole output: $1/.build.log)"
    return 1
  fi
}

# programs DIR - the programs of the project as paths in DIR, one per line. Needs a configured DIR.
programs() {
  local rule
  for rule in cpp_LINKER c_LINKER CUSTOM_COMMAND; do
    ninja -C "$root/$1" -t targets rule "$rule" 2>/dev/null
  done | grep '^apps/' | grep -Ev '(\.so(\.[0-9.]+)?|_test|_fuzz)$' | sort || true
}
