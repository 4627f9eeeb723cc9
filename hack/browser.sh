#!/usr/bin/env bash
# Makes sure that there is Chromium for test/board. On Debian and its kin, as root, a missing
# one is installed; anywhere else it says what to install.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for name in chromium chromium-browser google-chrome google-chrome-stable; do
	if command -v "$name" >/dev/null 2>&1; then exit; fi
done
debian_package chromium "install Chromium or Chrome, with which test/board looks at the page of \"zonewise board\""
