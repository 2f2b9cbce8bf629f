#!/bin/sh
# Removal leaves the settings (dpkg) and the state; purge leaves nothing. rpm has no purge: it says 0.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || :
  case "${1:-}" in remove | purge | 0) systemctl reset-failed seb.service 2>/dev/null || : ;; esac
fi
case "${1:-}" in
  remove | purge | 0)
    rm -f /etc/systemd/system/seb.service.d/00-credentials-from-files.conf
    # A console that stays here needs the command.
    console=/usr/lib/scheduled-events-console/bin/seb-of-the-service
    if [ -x "$console" ] && [ ! -e /usr/bin/seb ]; then ln -sf "..${console#/usr}" /usr/bin/seb; fi
    ;;
esac
case "${1:-}" in
  purge)
    # /etc/seb is the console's as well: the last of the two takes it along.
    if [ -e /etc/seb/console.env ] || [ -e /etc/seb/console ]; then rm -rf /etc/seb/seb.env /etc/seb/credentials /etc/seb/files; else rm -rf /etc/seb; fi
    rm -rf /etc/systemd/system/seb.service.d
    rm -rf /var/lib/scheduled-events-bridge /var/lib/private/scheduled-events-bridge
    ! getent passwd seb >/dev/null || userdel seb || :
    ! getent group seb >/dev/null || groupdel seb || :
    ;;
  0)
    ! getent passwd seb >/dev/null || userdel seb || :
    ;;
esac
