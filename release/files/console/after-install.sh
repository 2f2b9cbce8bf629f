#!/bin/sh
# Nothing is started at the first installation. A newer version converts the database when it starts.
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers seb-console.conf
elif ! getent passwd seb-console >/dev/null; then
  useradd --system --user-group --home-dir / --no-create-home --shell /usr/sbin/nologin seb-console
fi
[ -d /etc/seb/console ] || install -d -m 0750 -g seb-console /etc/seb/console
# Beside the bridge the command is the bridge's, which passes `seb console` on to this package.
[ -e /usr/bin/seb ] || ln -sf ../lib/scheduled-events-console/bin/seb-of-the-service /usr/bin/seb
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # The package counts as installed all the same: half installed it would be in the way of every other one.
  systemctl try-restart seb-console.service ||
    echo "seb-console.service did not start again; 'systemctl status seb-console' and 'seb console check' say why" >&2
fi
