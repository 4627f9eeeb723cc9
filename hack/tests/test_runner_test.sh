#!/usr/bin/env bash
# hack/test.sh passes when tests pass, and fails when one fails, when one is skipped, and when there is none: a green
# run must mean that something was proved. No test is tried twice. A result is taken from the cache only while nothing has changed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
fail() {
	cat "$WORK/out"
	die "test_runner_test: $*"
}

# A project of one package, with our scripts and our test runner.
mkdir -p "$WORK/p/hack/tools" "$WORK/p/plugins/one"
printf 'module zonewise.dev\n\ngo 1.26.0\n' >"$WORK/p/go.mod"
printf 'package one\n' >"$WORK/p/plugins/one/one.go"
cp "$ROOT"/hack/*.sh "$WORK/p/hack"
cp -R "$ROOT/hack/tools/gotestsum" "$WORK/p/hack/tools/gotestsum"

# with_tests BODY... writes one test for each body. The directory is in the program, so that what an earlier run of this script
# has left in Go's cache is not taken for results of this one.
with_tests() {
	local n=0 body
	{
		printf 'package one\n\nimport (\n"os"\n"testing"\n)\n\nvar _ = os.Exit\n'
		for body in "$@"; do
			n=$((n + 1))
			printf 'func TestNumber%d(t *testing.T) { t.Log("%s"); %s }\n' $n "$WORK" "$body"
		done
	} >"$WORK/p/plugins/one/one_test.go"
}
run() { TEST_ARGS="${args:-}" FRESH="${fresh:-}" "$WORK/p/hack/test.sh" unit >"$WORK/out" 2>&1; }

if run; then fail "passes without any test"; fi
grep -q 'no test ran' "$WORK/out" || fail "does not say that no test ran"

with_tests 't.Log("one")' 't.Log("two")'
run || fail "fails although both tests pass"
grep -Eq '^unit +ok +2 ' "$WORK/out" || fail "does not count two tests"
grep -Eq '^ +[0-9.]+ +[0-9.]+ +plugins/one$' "$WORK/out" || fail "does not say how much CPU a package took"

run || fail "fails the second time"
grep -Eq '^unit +ok +2 ' "$WORK/out" || fail "does not count tests that have passed before"
grep -q '^1 packages have not changed' "$WORK/out" || fail "runs what has not changed"
fresh=1 run || fail "fails with FRESH=1"
grep -q 'have not changed' "$WORK/out" && fail "takes a result from the cache with FRESH=1"
PROPERTY_SEED=7 run || fail "fails with PROPERTY_SEED"
grep -q 'have not changed' "$WORK/out" && fail "takes a result from the cache with another PROPERTY_SEED"

with_tests 't.Log("one")' 'if _, err := os.Stat("../../program"); err == nil { t.Fatal("the program has come") }'
run || fail "fails without the program"
touch "$WORK/p/program"
if run; then fail "takes a result from the cache although a file that the test looked at has changed"; fi
rm "$WORK/p/program"

args='-run TestNumber2' run || fail "fails with TEST_ARGS"
grep -Eq '^unit +ok +1 ' "$WORK/out" || fail "does not pass TEST_ARGS on"

with_tests 't.Log("one")' 't.Skip("not here")'
if run; then fail "passes with a skipped test"; fi
grep -q 'skipped' "$WORK/out" || fail "does not say that a test was skipped"

# A test that would pass the second time.
with_tests 't.Log("one")' "if _, err := os.Stat(\"$WORK/tried\"); err != nil { os.WriteFile(\"$WORK/tried\", nil, 0o600); t.Fatal(\"broken on purpose\") }"
if run; then fail "passes with a test that failed at first"; fi
grep -q 'broken on purpose' "$WORK/out" || fail "hides the output of the failing test"
grep -Eq '^unit +FAILED ' "$WORK/out" || fail "the summary does not say FAILED"

with_tests 'undefined()'
if run; then fail "passes although a test does not compile"; fi
grep -q 'undefined: undefined' "$WORK/out" || fail "hides the compiler's message"

say "ok: no test, a skipped, a failing and a broken one each fail the run"
