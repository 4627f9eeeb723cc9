#!/usr/bin/env bash
# Builds the scheduler and the command line into bin/, stamped with the version of hack/version.sh; with the argument "demo" also
# the demo, which is not shipped. What is current is not linked again.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
flags="-s -w $("$ROOT/hack/version.sh" ldflags)"

# build NAME PACKAGE
build() {
	quietly "$1" go -C "$ROOT" build -mod=readonly -v -ldflags "$flags" -o "$BIN/$1" "$2" ||
		die "$1 did not build: the messages above say why"
}

say "$("$ROOT/hack/version.sh") in ${BIN#"$PWD"/}/"
build zonewise-scheduler ./cmd/scheduler
build zonewise ./cmd/zonewise
if [ "${1:-}" = demo ]; then build zonewise-demo ./demo; fi
