#!/usr/bin/env bash
# Lints or formats the Go code of every module of the repository.
#
#   hack/lint.sh        report, change nothing
#   hack/lint.sh fmt    format in place
#   hack/lint.sh fix    format and apply the fixes that linters offer, in place
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
need_tool golangci-lint
linter=$(tool golangci-lint)

case ${1:-run} in
run) set -- run --config "$ROOT/.golangci.yaml" ;;
fmt) set -- fmt --config "$ROOT/.golangci.yaml" ;;
fix) set -- run --fix --config "$ROOT/.golangci.yaml" ;;
*) die "unknown argument \"$1\", want fmt, fix or nothing" ;;
esac

bad=
for dir in $(go_modules); do
	# Modules that only pin versions have nothing to look at.
	[ -n "$(cd "$ROOT/$dir" && go list -e ./... 2>/dev/null)" ] || continue
	start=$SECONDS
	rc=0
	(cd "$ROOT/$dir" && "$linter" "$@" ./...) || rc=$?
	printf '  lint %-28s %s in %s\n' "$dir" "$([ $rc = 0 ] && printf clean || printf FAILED)" "$(human $((SECONDS - start)))"
	if ((rc != 0)); then bad="$bad $dir"; fi
done
[ -z "$bad" ] || die "golangci-lint found something in:$bad (\"make fix\" mends what can be mended)"
