#!/bin/sh
# Nothing is started at the first installation: the first request turns Scheduled Events on.
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers seb.conf
elif ! getent passwd seb >/dev/null; then
  useradd --system --user-group --home-dir / --no-create-home --shell /usr/sbin/nologin seb
fi
[ -d /etc/seb/files ] || install -d -m 0750 -g seb /etc/seb/files
if [ -d /run/systemd/system ]; then
  version=$(systemctl --version | sed -n '1s/[^0-9]*\([0-9]*\).*/\1/p')
  drop_in=/etc/systemd/system/seb.service.d/00-credentials-from-files.conf
  if [ "${version:-247}" -lt 247 ]; then
    mkdir -p "${drop_in%/*}"
    ln -sf /usr/share/scheduled-events-bridge/credentials-from-files.conf "$drop_in"
  else
    rm -f "$drop_in"
  fi
  systemctl daemon-reload
  # The package counts as installed all the same: half installed it would be in the way of every other one.
  systemctl try-restart seb.service ||
    echo "seb.service did not start again; 'systemctl status seb' and 'seb check' say why" >&2
fi
