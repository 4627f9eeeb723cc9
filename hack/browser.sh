#!/usr/bin/env bash
# Makes sure that there is Chromium for test/board. On Debian and its kin, as root, a missing
# one is installed; anywhere else it says what to install.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for name in chromium chromium-browser google-chrome google-chrome-stable; do
	if command -v "$name" >/dev/null 2>&1; then exit; fi
done
want="install Chromium or Chrome, with which test/board looks at the page of \"zonewise board\""
command -v apt-get >/dev/null 2>&1 || die "$want"
[ "$(id -u)" = 0 ] || die "$want (apt-get install chromium, as root)"

install() {
	export DEBIAN_FRONTEND=noninteractive
	# A fresh machine has no lists yet; one with lists needs no update.
	apt-get install -y --no-install-recommends chromium && return
	apt-get update && apt-get install -y --no-install-recommends chromium
}
quietly "chromium, from the distribution" install || die "apt-get install chromium failed: the messages above say why"
