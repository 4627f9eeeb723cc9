#!/usr/bin/env bash
# hack/vulnerabilities.sh finds what a program reaches and only that, takes an explanation, and says so when it has no database.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
fail() {
	cat "$WORK/out"
	die "vulnerabilities_test: $*"
}

mkdir -p "$WORK/program" "$WORK/db/index" "$WORK/db/ID"
printf 'module example.com/program\n\ngo 1.26.0\n' >"$WORK/program/go.mod"
printf 'package main\n\nimport "strings"\n\nfunc main() { println(strings.ToTitle("a")) }\n' >"$WORK/program/main.go"

# report ID FUNCTION writes a report about a function of the package strings in every version of Go.
report() {
	cat >"$WORK/db/ID/$1.json" <<JSON
{"schema_version": "1.3.1", "id": "$1", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z", "summary": "A test", "details": "A test.",
 "database_specific": {"url": "https://example.com/$1"},
 "affected": [{"package": {"name": "stdlib", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
  "ecosystem_specific": {"imports": [{"path": "strings", "symbols": ["$2"]}]}}]}
JSON
}
report GO-2026-0001 ToTitle
report GO-2026-0002 ToLower
printf '{"modified": "2026-01-01T00:00:00Z"}\n' >"$WORK/db/index/db.json"
cat >"$WORK/db/index/modules.json" <<'JSON'
[{"path": "stdlib", "vulns": [{"id": "GO-2026-0001", "modified": "2026-01-01T00:00:00Z"}, {"id": "GO-2026-0002", "modified": "2026-01-01T00:00:00Z"}]}]
JSON

export VULNDB=file://$WORK/db EXPLAINED=$WORK/explained
: >"$EXPLAINED"
look() { "$ROOT/hack/vulnerabilities.sh" "$WORK/program" . >"$WORK/out" 2>&1; }

if look; then fail "accepts a program that reaches GO-2026-0001"; fi
grep -q 'that the programs reach: GO-2026-0001 (' "$WORK/out" || fail "names other reports than the one that is reached"
printf 'GO-2026-0001 titles are not used\n' >"$EXPLAINED"
look || fail "does not take the explanation"
grep -q '^explained: GO-2026-0001 titles are not used$' "$WORK/out" || fail "does not say what is explained"
sed -i.old 's/ToTitle/TrimSpace/' "$WORK/program/main.go"
look || fail "finds something in a program that reaches nothing"

VULNDB=file://$WORK/nothing
if look; then fail "is content without a database"; fi
grep -q "set VULNDB if the database file://$WORK/nothing cannot be reached" "$WORK/out" || fail "does not say how to give it a database"
unset VULNDB
export DEFAULT_VULNDB=file://$WORK/nothing
look || fail "fails without a network, although no database was named"
grep -q "^left out: $DEFAULT_VULNDB gives no answer" "$WORK/out" || fail "does not say that the database gave no answer"
export VULNDB=none
look || fail "fails although it was told that there is no database"
grep -q '^left out: VULNDB=none' "$WORK/out" || fail "does not say that nothing was looked for"
say "ok: what is reached is found, explained or left out aloud"
