#!/bin/sh
# Stops the services before their program is removed: the worker first, whose tasks have its --shutdown-grace to end. At an upgrade
# (dpkg: "upgrade", rpm: 1) they continue.
set -e
case "${1:-}" in
  remove | 0) ;;
  *) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
for unit in muster-worker muster-server; do
  systemctl disable --now "$unit"
done
