#!/usr/bin/env bash
# Makes sure that there is an OCI runtime for test/container: runc or crun. On Debian and
# its kin, as root, a missing one is installed; anywhere else it says what to install.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
PATH=$PATH:/usr/sbin

if command -v runc >/dev/null 2>&1 || command -v crun >/dev/null 2>&1; then exit; fi
want="install runc or crun, an OCI runtime that test/container runs the image with"
command -v apt-get >/dev/null 2>&1 || die "$want"
[ "$(id -u)" = 0 ] || die "$want (apt-get install runc, as root)"

install() {
	export DEBIAN_FRONTEND=noninteractive
	# A fresh machine has no lists yet; one with lists needs no update.
	apt-get install -y --no-install-recommends runc && return
	apt-get update && apt-get install -y --no-install-recommends runc
}
quietly "runc, from the distribution" install || die "apt-get install runc failed: the messages above say why"
