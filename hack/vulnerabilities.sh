#!/usr/bin/env bash
# Looks for known vulnerabilities in the code that programs reach, with the govulncheck that hack/tools pins.
#
#   hack/vulnerabilities.sh [DIR [PACKAGE...]]    the programs of this repository when nothing is given
#
# VULNDB names the database: a URL, a copy as file:///path, or "none". When it is unset, https://vuln.go.dev is tried, and a machine
# that cannot reach it leaves the check out, aloud: the summary of "make verify" says that nothing was looked for. A database that
# was named and cannot be read is an error, so that CI, which names it, does not pass for want of a network.
#
# A report that does not concern us has its line in hack/vulnerabilities.txt (EXPLAINED in tests): the identifier and the reason.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

DB=${VULNDB:-${DEFAULT_VULNDB:=https://vuln.go.dev}} # tests set DEFAULT_VULNDB
EXPLAINED=${EXPLAINED:-$ROOT/hack/vulnerabilities.txt}

if [ "$DB" = none ]; then
	say "left out: VULNDB=none, no vulnerabilities were looked for"
	exit
fi
dir=${1:-$ROOT}
[ $# -eq 0 ] || shift
if [ $# -eq 0 ]; then set -- ./cmd/...; fi

need_tool govulncheck
out=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -f "$out"' EXIT
rc=0
"$(tool govulncheck)" -C "$dir" -db "$DB" "$@" >"$out" 2>&1 || rc=$?
# 3 is "found something"; all else is a failure of the check itself, mostly of the database.
case $rc in
0)
	tail -n 3 "$out"
	exit
	;;
3) ;;
*)
	if [ -z "${VULNDB:-}" ]; then
		say "left out: $DB gives no answer, no vulnerabilities were looked for (VULNDB names another database)"
		exit
	fi
	cat "$out" >&2
	die "govulncheck gives no answer, see above: set VULNDB if the database $DB cannot be reached, to another URL, a copy as file:///path, or none to leave this check out"
	;;
esac

unexplained=
for id in $(sed -n 's/^Vulnerability #[0-9]*: \(GO-[0-9-]*\).*/\1/p' "$out"); do
	if reason=$(grep "^$id " "$EXPLAINED"); then say "explained: $reason"; else unexplained="$unexplained $id"; fi
done
[ -n "$unexplained" ] || exit 0
cat "$out"
die "vulnerabilities that the programs reach:$unexplained (update the module, or give the reason in hack/vulnerabilities.txt)"
