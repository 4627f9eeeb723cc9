#!/usr/bin/env bash
# go test -exec run_package.sh, with hack/ in PATH: runs the program of a package's tests, and prints after its output how
# many seconds of CPU it and the processes that it started took: "cpu 12.3". The go command starts this in the package's
# directory. It is named without its path, which would be part of the key of cached results.
#
# Property tests are given PROPERTY_SEED (1), by a flag that no other package knows. The cache of results does not see it:
# hack/test.sh uses no cached result when it is set.
#
# Several packages are tested at a time, so each has one processor unless GOMAXPROCS says otherwise: what a program does on a second
# one is mostly to look for work, for up to half of the CPU of all tests. Where goroutines compete for the plugins' state they have
# all processors.
set -u
if grep -qs '"pgregory\.net/rapid"' ./*_test.go; then
	set -- "$@" -rapid.seed="${PROPERTY_SEED:-1}"
fi
dir=$(pwd -P)
case ${dir#"$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)/"} in
plugins | plugins/* | internal/* | test/framework | test/integration) ;;
*) export GOMAXPROCS="${GOMAXPROCS:-1}" ;;
esac
# With -exec the go command asks for no record of the files and variables that a test reads, but it takes one that lies beside the
# program, and without one it keeps no result. hack/tests/test_runner_test.sh tells if that changes.
rc=0
program=$1
shift
"$program" -test.testlogfile="$(dirname "$program")/testlog.txt" "$@" || rc=$?
# times in a pipeline would speak of a subshell. The second line is that of the children: 0m1.234s 0m0.120s.
used=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
times >"$used"
awk 'NR == 2 { gsub(/[ms]/, " "); printf "cpu %.1f\n", $1 * 60 + $2 + $3 * 60 + $4 }' "$used"
rm -f "$used"
exit $rc
