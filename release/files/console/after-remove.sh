#!/bin/sh
# Removal leaves the settings (dpkg) and the database; purge leaves nothing. rpm has no purge: it says 0.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || :
  case "${1:-}" in
    remove | purge | 0) systemctl reset-failed seb-console.service 2>/dev/null || : ;;
  esac
fi
case "${1:-}" in
  remove | purge | 0)
    # The link of after-install.sh, and not the bridge's own file.
    if [ -L /usr/bin/seb ] && [ ! -e /usr/bin/seb ]; then rm -f /usr/bin/seb; fi
    ;;
esac
case "${1:-}" in
  purge)
    # /etc/seb is the bridge's as well: the last of the two takes it along.
    if [ -e /etc/seb/seb.env ]; then rm -rf /etc/seb/console; else rm -rf /etc/seb; fi
    rm -rf /etc/systemd/system/seb-console.service.d
    rm -rf /var/lib/scheduled-events-console /var/lib/private/scheduled-events-console
    ! getent passwd seb-console >/dev/null || userdel seb-console || :
    ! getent group seb-console >/dev/null || groupdel seb-console || :
    ;;
  0)
    ! getent passwd seb-console >/dev/null || userdel seb-console || :
    ;;
esac
