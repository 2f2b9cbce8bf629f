#!/bin/sh
# private.sh DIRECTORY COMMAND...: runs it as on a VM of its own, for services that have one place
# each on a machine. The host's name is that of the directory, which has what lies at /etc (in front
# of the machine's own), /run, /tmp, /dev/shm and /var. It needs a mount namespace: `unshare` calls it.
set -eu
vm=$1
shift
hostname "${vm##*/}"
mount -t overlay vm -o "lowerdir=$vm/etc:/etc" /etc
mount --bind "${vm%/*}/srv" /srv # shared by all VMs
for each in run var/lib/pacemaker var/lib/corosync var/log dev/shm tmp; do
    mount --bind "$vm/$each" "/$each" # the last one hides the directory itself, if that is in /tmp
done
cd /
exec "$@"
