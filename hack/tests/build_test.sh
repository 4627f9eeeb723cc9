#!/usr/bin/env bash
# hack/build.sh, which "make build" runs, builds both programs, and each says the version that it is of.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT

BIN=$WORK "$ROOT/hack/build.sh" >"$WORK/out" || {
	cat "$WORK/out"
	die "build_test: hack/build.sh fails"
}
version=$("$ROOT/hack/version.sh")
for command in "zonewise-scheduler --version" "zonewise version"; do
	# shellcheck disable=SC2086
	said=$("$WORK"/$command)
	case $said in
	*"$version"*) ;;
	*) die "build_test: \"$command\" says \"$said\", want $version" ;;
	esac
done
say "ok: both programs say $version"
