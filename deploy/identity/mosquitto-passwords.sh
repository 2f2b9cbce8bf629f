#!/bin/sh
# Makes an MQTT user for each VM: name = the VM's id, password random. Run it on the broker, as root:
#
#   ./mosquitto-passwords.sh DIRECTORY < vms.txt
#
# Each line of vms.txt begins with a VM's id; what follows it is for people.
#
# Users go into /etc/mosquitto/passwd (PASSWD names another file). DIRECTORY gets a file for each VM
# with its password, to be copied to the VM's /etc/seb/files/mqtt-password. A VM that has a file there
# keeps its password; to change one, delete its file and call this again.
set -eu
directory=${1:?the directory of the passwords}
passwd=${PASSWD:-/etc/mosquitto/passwd}
umask 077
mkdir -p "$directory"
touch "$passwd"
while read -r id _; do
  case $id in
    "" | *[!0-9A-Fa-f-]*) echo "not the id of a VM: $id" >&2; exit 1 ;;
  esac
  [ ! -e "$directory/$id" ] || continue
  password=$(openssl rand -hex 32)
  # Through a file: a command line can be read by every user of the machine.
  printf '%s:%s\n' "$id" "$password" > "$directory/.new"
  mosquitto_passwd -U "$directory/.new"
  grep -v "^$id:" "$passwd" > "$directory/.others" || :
  cat "$directory/.others" "$directory/.new" > "$passwd"
  rm "$directory/.others" "$directory/.new"
  printf '%s' "$password" > "$directory/$id"
  echo "made $id"
done
echo "now: systemctl reload mosquitto" >&2
