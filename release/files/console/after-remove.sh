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
# Without its keys every VM has to be enrolled again: a person is asked, and where no terminal is they stay.
keys=/etc/seb/console
delete_keys() {
  if [ -z "$(ls -A "$keys" 2>/dev/null)" ]; then return 0; fi
  case "${SEB_PURGE_KEYS:-}" in yes) return 0 ;; no) return 1 ;; esac
  if [ -t 0 ] && [ -t 1 ]; then
    printf '%s has the keys of the console; without them every VM must be enrolled again.\nDelete them? [y/N] ' "$keys"
    read -r answer
    case "$answer" in y | Y | yes) return 0 ;; esac
  fi
  echo "the keys in $keys are kept; SEB_PURGE_KEYS=yes deletes them with the package" >&2
  return 1
}
case "${1:-}" in
  purge)
    # /etc/seb is the bridge's as well: the last of the two takes it along.
    if delete_keys; then
      if [ -e /etc/seb/seb.env ]; then rm -rf "$keys"; else rm -rf /etc/seb; fi
    fi
    rm -rf /etc/systemd/system/seb-console.service.d
    rm -rf /var/lib/scheduled-events-console /var/lib/private/scheduled-events-console
    ! getent passwd seb-console >/dev/null || userdel seb-console || :
    ! getent group seb-console >/dev/null || groupdel seb-console || :
    ;;
  0)
    ! getent passwd seb-console >/dev/null || userdel seb-console || :
    ;;
esac
