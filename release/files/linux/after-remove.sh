#!/bin/sh
# Removal leaves the settings (dpkg) and the state; purge leaves nothing. rpm has no purge: it says 0.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || :
  case "${1:-}" in remove | purge | 0) systemctl reset-failed seb.service 2>/dev/null || : ;; esac
fi
case "${1:-}" in
  purge)
    rm -rf /etc/seb /etc/systemd/system/seb.service.d
    rm -rf /var/lib/scheduled-events-bridge /var/lib/private/scheduled-events-bridge
    ! getent passwd seb >/dev/null || userdel seb || :
    ! getent group seb >/dev/null || groupdel seb || :
    ;;
  0)
    ! getent passwd seb >/dev/null || userdel seb || :
    ;;
esac
