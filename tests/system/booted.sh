#!/bin/bash
# booted.sh - the packages under systemd, run by it in a new Debian that booted with /srv/packages: installs and starts the service, kills
# the network interface under a stream, restarts, stops and purges. Called by packages.py.
set -eux
cd /srv

# fails COMMAND... - the command does not succeed.
fails() { if "$@"; then exit 1; fi; }

# has_stream COMMAND... - a stream between two applications lasts while the command runs.
has_stream() {
  rm -f received go_on
  unetcat -l inbox >received &
  local receiver=$!
  until unetctl names | grep -w inbox; do sleep 0.1; done
  (echo before; until [ -e go_on ]; do sleep 0.1; done; echo after) | unetcat inbox &
  until grep before received; do sleep 0.1; done
  "$@"
  touch go_on
  wait $!
  wait $receiver
  printf 'before\nafter\n' | cmp - received
}

kill_network_interface() {
  local before after
  before=$(pgrep -u unet -x unetd)
  kill -KILL $before
  until after=$(pgrep -u unet -x unetd) && [ "$after" != "$before" ] && unetctl names | grep -w inbox; do sleep 0.1; done
}

apt-get install -y ./packages/*.deb </dev/null
[ "$(systemctl is-active unetd)" = active ]
journalctl -u unetd UNET_HOST="$(hostname)" -p info -o cat | grep "at /run/unet/unet.sock"
has_stream systemctl reload unetd
has_stream kill_network_interface
[ "$(systemctl show -P NRestarts unetd)" = 0 ]  # the supervisor did that, and not systemd
systemctl restart unetd
has_stream unetctl ports
systemctl stop unetd
fails [ -e /run/unet ]
fails pgrep -x unetd
apt-get purge -y unetd </dev/null
fails systemctl cat unetd
fails [ -e /etc/default/unetd ]
