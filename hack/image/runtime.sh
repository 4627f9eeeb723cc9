#!/usr/bin/env bash
# Makes sure that there is an OCI runtime for test/container: runc or crun. On Debian and
# its kin, as root, a missing one is installed; anywhere else it says what to install.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
PATH=$PATH:/usr/sbin

if command -v runc >/dev/null 2>&1 || command -v crun >/dev/null 2>&1; then exit; fi
debian_package runc "install runc or crun, an OCI runtime that test/container runs the image with"
