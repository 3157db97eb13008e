#!/bin/sh
# Installs this checkout for systemd; run it again to update. Needs root, Python 3.11 with venv, and systemd.
# PYTHON=python3.12 chooses another Python. DESTDIR=/folder installs below a folder and touches nothing else.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}
# The installed files must be readable by the user ocean.
umask 022

if [ -z "$root" ] && [ "$(id -u)" != 0 ]; then
    echo "install.sh writes to /opt, /etc and /var/lib: run it with sudo" >&2
    exit 1
fi

if [ -z "$root" ] && ! id ocean >/dev/null 2>&1; then
    useradd --system --user-group --home-dir /var/lib/ocean --shell /usr/sbin/nologin ocean
fi

install -d "$root/opt/ocean" "$root/etc/systemd/system" "$root/usr/local/bin"
"${PYTHON:-python3}" -m venv "$root/opt/ocean/venv"
"$root/opt/ocean/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$here/../.."

if [ ! -e "$root/etc/ocean.env" ]; then
    install -m 0640 "$here/ocean.env" "$root/etc/ocean.env"
fi
install -m 0755 "$here/ocean" "$root/usr/local/bin/ocean"
install -m 0644 "$here/ocean.service" "$here/ocean-poke.service" "$here/ocean-poke.timer" "$root/etc/systemd/system/"

if [ -z "$root" ]; then
    if ! runuser -u ocean -- /opt/ocean/venv/bin/ocean --version >/dev/null; then
        echo "install.sh: the user ocean cannot run $(readlink -f /opt/ocean/venv/bin/python): choose a Python outside" \
            "home directories with PYTHON=" >&2
        # A new venv on top of this one would keep its Python.
        rm -rf /opt/ocean/venv
        exit 1
    fi
    install -d -m 0700 -o ocean -g ocean /var/lib/ocean
    chgrp ocean /etc/ocean.env
    systemctl daemon-reload
fi
