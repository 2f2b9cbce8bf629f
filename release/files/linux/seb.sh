#!/bin/sh
# The command seb of this folder, with the Python of this folder, wherever it was unpacked.
here=$(dirname -- "$(readlink -f -- "$0")")
# Certificate authorities: those of the system, which OpenSSL does not find by itself here.
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem; do
  [ -n "${SSL_CERT_FILE:-}" ] || { [ -r "$bundle" ] && export SSL_CERT_FILE="$bundle"; }
done
exec "$here/@PYTHON@" -I -B -X faulthandler "$here/../lib/seb.py" "$@"
