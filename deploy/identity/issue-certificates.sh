#!/bin/sh
# Issues a client certificate for each VM, from a private authority of this fleet.
#
#   az graph query -q "resources | where type =~ 'microsoft.compute/virtualmachines'
#     | project id = tostring(properties.vmId)" --first 1000 --query 'data[].id' -o tsv > vms.txt
#   ./issue-certificates.sh DIRECTORY [DAYS] < vms.txt
#
# DIRECTORY gets ca.pem and ca.key at the first call, and VMID.pem and VMID.key for each id that has
# none, or whose certificate ends within a third of DAYS (default 90). So calling it again each month
# renews what has to be renewed. ca.key can make a certificate for every VM: keep it offline, or use
# an authority that your company has.
set -eu
directory=${1:?the directory of the certificates}
days=${2:-90}
umask 077
mkdir -p "$directory"
cd "$directory"

if [ ! -e ca.key ]; then
  openssl ecparam -name prime256v1 -genkey -noout -out ca.key
  openssl req -x509 -new -key ca.key -sha256 -days 3650 -out ca.pem -subj "/CN=Scheduled Events bridges" \
    -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign"
fi

while read -r id _; do
  case $id in
    "" | *[!0-9A-Fa-f-]*) echo "not the id of a VM: $id" >&2; exit 1 ;;
  esac
  if [ -e "$id.pem" ] && openssl x509 -in "$id.pem" -noout -checkend $((days * 86400 / 3)) >/dev/null; then
    continue
  fi
  # Both files change at once, so that nobody copies a key with the certificate of another.
  openssl ecparam -name prime256v1 -genkey -noout -out "$id.key.new"
  openssl req -new -key "$id.key.new" -subj "/CN=$id" -out "$id.csr"
  printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=clientAuth\n' > "$id.ext"
  openssl x509 -req -in "$id.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -sha256 -days "$days" \
    -extfile "$id.ext" -out "$id.pem.new" 2>/dev/null
  mv "$id.key.new" "$id.key"
  mv "$id.pem.new" "$id.pem"
  rm -f "$id.csr" "$id.ext"
  echo "issued $id"
done
