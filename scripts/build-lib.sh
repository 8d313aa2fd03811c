# build-lib.sh - configure and build a build directory; sourced by ./run and ./check.
#
# Several runs may use one build directory at the same time, so configuring and building hold a lock on it. The caller sets `root` (the
# repository) and `me` (its name, for messages). All messages go to stderr, so that the output of a program can be piped.

# The path of a tree affects only the file names in debuggers and failed checks, so ccache ignores it. A precompiled header is the exception:
# it names the files of its tree and holds their checksums, so ccache must not store one, nor what was compiled with one.
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$root CCACHE_SLOPPINESS=

say() { echo "$me: $*" >&2; }

die() {
  say "$1"
  exit "${2:-1}"
}

# lock DIR - waits until this process alone may build in DIR; unlock releases it. The lock is on the directory itself: `meson setup --wipe`
# removes every file in it. Commands started under it close lock_fd; otherwise a stray child would hold it.
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

# configure DIR MESON_OPTION... - runs meson setup when DIR is new, was moved, or was configured otherwise. Other default options of the
# project count too, which meson reads only once. The environment variables CC and CXX choose the compiler, CC_LD and CXX_LD the linker.
# ccache, where it is installed, shares results between clones. Unity sources halve the time of a build from nothing. Needs the lock.
configure() {
  local dir="$root/$1" CC=${CC:-cc} CXX=${CXX:-c++}
  if command -v ccache >/dev/null; then
    CC="ccache $CC" CXX="ccache $CXX"
  fi
  local defaults
  defaults=$(sed -n '/default_options/,/\]/p' "$root/meson.build" | cksum)
  # A package that meson looked for once may be installed later: another number of packages configures anew.
  local packages
  packages=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $(sed -e 's/#.*//' -e '/^\[/d' "$root/scripts/packages.txt") 2>/dev/null |
    grep -c '^installed') || true
  local wanted="$packages packages $root $CC $CXX ${CC_LD:-} ${CXX_LD:-} ${*:2} $defaults"
  local wipe=()
  if [[ -e $dir/build.ninja ]]; then
    [[ -e $dir/.configured && $(<"$dir/.configured") == "$wanted" ]] && return 0
    wipe=(--wipe)
  fi
  rm -f "$dir/.configured"
  say "configuring $1/"
  local log
  log=$(mktemp)
  if ! CC=$CC CXX=$CXX meson setup "${wipe[@]}" -Dunity=on "${@:2}" "$dir" "$root" >"$log" 2>&1 {lock_fd}>&-; then
    tail -20 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
  echo "$wanted" >"$dir/.configured"
}

# build DIR TARGET... - runs ninja, silently when there is nothing to do, otherwise with occasional progress. Needs the lock.
build() {
  local dir="$root/$1" plan begins="building in $1/"
  # A dry run ends with its last step: "[315/315] Linking ...".
  plan=$(ninja -C "$dir" -n "${@:2}" 2>/dev/null {lock_fd}>&- | tail -1) || true
  [[ $plan != *"no work to do"* ]] || return 0
  [[ $plan =~ /([0-9]+)\] ]] && begins+=": $(how_long "${BASH_REMATCH[1]}")"
  # A failing command prints its own output; ninja's other lines are of no use here.
  if ! NINJA_STATUS='[%f/%t] ' ninja -C "$dir" "${@:2}" 2>&1 {lock_fd}>&- | progress "$begins" >"$dir/.build.log"; then
    grep -v '^ninja: \(Entering\|build stopped\)\|^\[[0-9]*/[0-9]*\] ' "$dir/.build.log" | tail -80 >&2
    say "the build in $1/ failed (whole output: $1/.build.log)"
    return 1
  fi
}

# how_long STEPS - an upper bound of the time, at four seconds of a slow core for each step.
how_long() {
  local minutes=$((($1 * 4 / $(nproc) + 30) / 60))
  echo "$1 steps$([[ $minutes -eq 0 ]] || echo ", $minutes minutes or less")"
}

# progress BEGINS - passes ninja's output on, after this text, and prints the current step each half minute. A file that every build
# regenerates, such as the commit's, prints nothing: mostly it does not change.
progress() {
  local line begins=$1 next=$((SECONDS + 30))
  while IFS= read -r line; do
    printf '%s\n' "$line"
    [[ -z $begins || ! $line =~ ^\[ || $line == *'] Generating '* ]] || { say "$begins"; begins=; }
    [[ $SECONDS -lt $next || ! $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || {
      say "built ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
      next=$((SECONDS + 30))
    }
  done
}

# programs DIR - the programs of the project as paths in DIR, one per line. Needs a configured DIR.
programs() {
  local rule
  for rule in cpp_LINKER c_LINKER CUSTOM_COMMAND; do
    ninja -C "$root/$1" -t targets rule "$rule" 2>/dev/null
  done | grep '^apps/' | grep -Ev '(\.so(\.[0-9.]+)?|_test|_fuzz)$' | sort || true
}
