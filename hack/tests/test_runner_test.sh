#!/usr/bin/env bash
# hack/test.sh passes when tests pass, and fails when one fails, when one is skipped,
# and when there is none: a green run must mean that something was proved. A test of real
# processes that fails is run once more, and the run tells.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

"$ROOT/hack/tools/build.sh" gotestsum
WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
fail() {
	cat "$WORK/out"
	die "test_runner_test: $*"
}

# A project of one package, with our scripts and our test runner.
mkdir -p "$WORK/p/hack/tools" "$WORK/p/plugins/one" "$WORK/p/bin"
printf 'module zonewise.dev\n\ngo 1.26.0\n' >"$WORK/p/go.mod"
printf 'package one\n' >"$WORK/p/plugins/one/one.go"
cp "$ROOT"/hack/*.sh "$WORK/p/hack"
cp "$ROOT/hack/tools/build.sh" "$WORK/p/hack/tools"
cp -R "$ROOT/hack/tools/gotestsum" "$WORK/p/hack/tools/gotestsum"

# with_tests BODY... writes one test for each body.
with_tests() {
	local n=0 body
	{
		printf 'package one\n\nimport "testing"\n'
		for body in "$@"; do
			n=$((n + 1))
			printf 'func TestNumber%d(t *testing.T) { %s }\n' $n "$body"
		done
	} >"$WORK/p/plugins/one/one_test.go"
}
run() { BIN=$BIN RACE=0 TEST_ARGS="${args:-}" "$WORK/p/hack/test.sh" unit >"$WORK/out" 2>&1; }

if run; then fail "passes without any test"; fi
grep -q 'no test ran' "$WORK/out" || fail "does not say that no test ran"

with_tests 't.Log("one")' 't.Log("two")'
run || fail "fails although both tests pass"
grep -Eq '^unit +ok +2 ' "$WORK/out" || fail "does not count two tests"

args='-run TestNumber2' run || fail "fails with TEST_ARGS"
grep -Eq '^unit +ok +1 ' "$WORK/out" || fail "does not pass TEST_ARGS on"

with_tests 't.Log("one")' 't.Skip("not here")'
if run; then fail "passes with a skipped test"; fi
grep -q 'skipped' "$WORK/out" || fail "does not say that a test was skipped"

with_tests 't.Log("one")' 't.Fatal("broken on purpose")'
if run; then fail "passes with a failing test"; fi
grep -q 'broken on purpose' "$WORK/out" || fail "hides the output of the failing test"
grep -Eq '^unit +FAILED ' "$WORK/out" || fail "the summary does not say FAILED"

with_tests 'undefined()'
if run; then fail "passes although a test does not compile"; fi
grep -q 'undefined: undefined' "$WORK/out" || fail "hides the compiler's message"

# In the step integration a test gets a second try, and no third.
mkdir -p "$WORK/p/test/integration"
integration() {
	rm -f "$WORK/tries"
	printf 'package integration\n\nimport (\n"os"\n"testing"\n)\n
func TestSlow(t *testing.T) {
	tries, _ := os.ReadFile("%s")
	os.WriteFile("%s", append(tries, 46), 0o600)
	if len(tries) < %d { t.Fatal("slow on purpose") }
}\n' "$WORK/tries" "$WORK/tries" "$1" >"$WORK/p/test/integration/slow_test.go"
	BIN=$BIN RACE=0 "$WORK/p/hack/test.sh" integration >"$WORK/out" 2>&1
}
integration 0 || fail "fails although the test passes"
if grep -q 'look into it' "$WORK/out"; then fail "says that a test failed at first, and none did"; fi
grep -Eq '^integration +ok +1 ' "$WORK/out" || fail "does not count one test"
integration 1 || fail "does not try a failed test again"
grep -q 'look into it' "$WORK/out" || fail "does not say that a test failed at first"
grep -q 'TestSlow' "$WORK/out" || fail "does not name the test that failed at first"
RERUN=0 integration 1 && fail "tries a failed test again in spite of RERUN=0"
if integration 2; then fail "passes although a test fails twice"; fi
grep -Eq '^integration +FAILED ' "$WORK/out" || fail "the summary does not say FAILED"

say "ok: no test, a skipped, a failing and a broken one each fail the run"
