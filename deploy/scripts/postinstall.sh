#!/bin/sh
# Prepares this machine for the services: their user, the first tokens, and a restart of those that run after an upgrade, which does
# not affect running tasks. Nothing is enabled or started. dpkg calls it with "configure" and the version before, rpm with 1 for an
# installation and 2 for an upgrade; after "make install" an administrator does, without arguments. It can be repeated.
set -e
upgrade=
case "${1:-}" in
  configure) [ -z "${2:-}" ] || upgrade=yes ;;
  "" | 1) ;;
  [2-9]*) upgrade=yes ;;
  *) exit 0 ;;
esac

getent passwd muster >/dev/null ||
  useradd --system --user-group --home-dir /var/lib/muster --no-create-home --shell /usr/sbin/nologin --comment "Muster server" muster

# A token is written whole or not at all. The server reads it, and root.
token() {
  file=/etc/muster/$1
  [ ! -e "$file" ] || return 0
  (umask 077 && head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$file.new")
  [ "$(wc -c <"$file.new")" -eq 48 ] || { echo "muster: $file cannot be written: is the disk full?" >&2; exit 1; }
  chown root:muster "$file.new"
  chmod 640 "$file.new"
  mv "$file.new" "$file"
}
mkdir -p -m 755 /etc/muster
token admin-token
token join-token

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  if [ -n "$upgrade" ]; then
    for unit in muster-server muster-worker; do
      systemctl try-restart "$unit" || echo "muster: $unit does not start: see journalctl -u $unit" >&2
    done
  fi
fi
[ -n "$upgrade" ] || cat <<'TEXT'
Muster is installed. Nothing was started yet.
  a server here:     systemctl enable --now muster-server
  commands of root:  muster login http://127.0.0.1:8700 --token-file /etc/muster/admin-token
  a worker here:     muster worker install --server URL --token-file FILE    (on the server's machine: /etc/muster/join-token)
TEXT
