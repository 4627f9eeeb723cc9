#!/usr/bin/env bash
# go test -exec hack/run_package.sh: runs the program of a package's tests. The go command starts this in the directory of the package.
#
# Property tests are given PROPERTY_SEED (1), by a flag that no other package knows.
#
# Several packages are tested at a time, so each has one processor, unless GOMAXPROCS says otherwise: what a program does on a second one is
# mostly to look for work, for up to half of the CPU of all tests. Where goroutines compete for the plugins' state they have all processors.
set -euo pipefail
if grep -qs '"pgregory\.net/rapid"' ./*_test.go; then
	set -- "$@" -rapid.seed="${PROPERTY_SEED:-1}"
fi
dir=$(pwd -P)
case ${dir#"$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)/"} in
plugins | plugins/* | internal/* | test/framework/permitgate | test/framework/reservecache | test/integration) ;;
*) export GOMAXPROCS="${GOMAXPROCS:-1}" ;;
esac
exec "$@"
