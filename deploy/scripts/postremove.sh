#!/bin/sh
# With dpkg's "purge", the settings and tokens are deleted, and what "muster worker install" made. The data in /var/lib/muster is not: it has the jobs, logs and results.
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
[ "${1:-}" = purge ] || exit 0
rm -rf /etc/muster
dropin=/etc/systemd/system/muster-worker.service.d
rm -f $dropin/50-install.conf
[ ! -d $dropin ] || rmdir --ignore-fail-on-non-empty $dropin
[ ! -e /var/lib/muster ] || echo "muster: /var/lib/muster has the data of the server and the worker, and is kept"
