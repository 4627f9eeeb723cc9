#!/usr/bin/env bash
# Builds the scheduler and the command line into bin/, version stamped; with the argument "demo" also the demo,
# which is not shipped.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
mkdir -p "$BIN" || die "cannot write to $BIN"
flags="-s -w $("$ROOT/hack/version.sh" ldflags)"

# build NAME PACKAGE
build() {
	local tmp=$BIN/.$1.$$
	if ! quietly "$1" go -C "$ROOT" build -mod=readonly -v -ldflags "$flags" -o "$tmp" "$2"; then
		rm -f "$tmp"
		die "$1 did not build: the messages above say why"
	fi
	mv -f "$tmp" "$BIN/$1"
}

say "$("$ROOT/hack/version.sh") in ${BIN#"$PWD"/}/"
build zonewise-scheduler ./cmd/scheduler
build zonewise ./cmd/zonewise
if [ "${1:-}" = demo ]; then build zonewise-demo ./demo; fi
