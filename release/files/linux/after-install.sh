#!/bin/sh
# Nothing is started at the first installation: the first request turns Scheduled Events on.
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers seb.conf
elif ! getent passwd seb >/dev/null; then
  useradd --system --user-group --home-dir / --no-create-home --shell /usr/sbin/nologin seb
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart seb.service
fi
