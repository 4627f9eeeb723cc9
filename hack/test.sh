#!/usr/bin/env bash
# Runs the tests in steps, prints what runs and how long each step took.
#
#   hack/test.sh [STEP...]      the first four when none is given:
#     controlplane   build etcd, kube-apiserver and the rest (skips what is current)
#     go             all packages of the main module, three at a time: the longest ones wait more than they compute
#     modules        the tests of the nested modules: those under hack/, and test/performance/e2e
#     scripts        the tests of hack/lib.sh and of this script
#     unit           the part of "go" that neither links k8s.io/kubernetes nor starts a process
#     integration    test/integration alone, test by test
#     soak           the property tests, with SOAK_CHECKS cases each (20000) of another seed in each run
#
# The property tests draw their cases from PROPERTY_SEED (1), so that a red run speaks of the change that it tests and can
# be repeated; "soak" looks for what no run has seen yet.
#
# TEST_ARGS is given to go test, as in TEST_ARGS='-run TestGang' hack/test.sh unit.
# BESIDE=1 tests one package at a time, which takes less memory.
# RACE=0 leaves the race detector out; it is left out, with a word, where there is no C compiler, which it needs.
#
# A step fails when no test ran in it, and when a test was skipped: neither proves anything. No test is tried twice.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ALL="controlplane go modules scripts"
KNOWN="$ALL unit integration soak"
SUMMARY=
FAILED=

# with_race turns the race detector on if it can work. It needs cgo, which the rest of the project does without
# (ADR 0024): so cgo is on for the tests, and not for what they run.
with_race() {
	local cc
	RACE_FLAG=
	TEST_CGO=$CGO_ENABLED
	if [ "${RACE:-1}" = 0 ]; then
		say "race detector: off (RACE=0)"
		return
	fi
	cc=$(CGO_ENABLED=1 go env CC)
	# shellcheck disable=SC2086
	if command -v ${cc%% *} >/dev/null 2>&1; then
		RACE_FLAG=-race
		TEST_CGO=1
	else
		say "race detector: off, because it needs a C compiler and \"$cc\" is not installed"
	fi
}

# compile_ahead PACKAGE... compiles what the tests of these packages need, with a heartbeat; go test would do it in
# silence. What does not compile is reported by the test run.
compile_ahead() {
	local deps
	deps=$(cd "$ROOT" && go list -e -deps -test -f '{{if not (or .Standard .ForTest (eq .Name "main"))}}{{.ImportPath}}{{end}}' "$@")
	# shellcheck disable=SC2086
	CGO_ENABLED=$TEST_CGO quietly compile go -C "$ROOT" build $RACE_FLAG -v $deps || true
}

# run_go DIR FORMAT ARGS... runs go test through gotestsum and judges the count. TEST_ARGS come last: flags of a test
# binary must follow the packages. vet is left to "make verify", which runs it with all of its checks.
run_go() {
	local dir=$1 format=$2 log events rc=0 done_line slow
	shift 2
	log=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	events=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	# shellcheck disable=SC2086
	(cd "$dir" && CGO_ENABLED=$TEST_CGO "$GOTESTSUM" --format "$format" --format-hide-empty-pkg --jsonfile "$events" -- \
		$RACE_FLAG -vet=off -count=1 "$@" ${TEST_ARGS:-}) 2>&1 | tee "$log" || rc=$?
	done_line=$(grep '^DONE ' "$log" | tail -n 1 || true)
	slow=$("$GOTESTSUM" tool slowest --jsonfile "$events" --threshold 15s 2>/dev/null || true) # a build that fails is no JSON
	if [ "$format" = pkgname ] && [ -n "$slow" ]; then
		say "slower than 15s:"
		sed -e 's/^/  /' <<<"$slow"
	fi
	rm -f "$log" "$events"
	COUNT=$(sed -n -E 's/^DONE ([0-9]+) tests?.*/\1/p' <<<"$done_line")
	COUNT=${COUNT:-0}
	if ((rc != 0)); then return "$rc"; fi
	case $done_line in
	*skipped*)
		say "a test was skipped: make it run here or remove it"
		return 1
		;;
	esac
}

# packages [-v] PATTERN prints the main module's packages whose directory matches the extended regular expression, or
# with -v those that do not.
packages() { (cd "$ROOT" && go list ./... | sed 's|^zonewise\.dev/||' | grep -E "$@" | sed 's|^|zonewise.dev/|' || true); }

# with_properties PACKAGE... prints those of the packages whose tests use rapid: only these know its flags.
with_properties() {
	(cd "$ROOT" && go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' "$@" |
		sed -n 's|^\([^ ]*\) .*pgregory\.net/rapid.*|\1|p')
}

# run_packages FORMAT FLAG... runs packages of the main module, as hack/run_package.sh says.
run_packages() {
	local format=$1
	shift
	run_go "$ROOT" "$format" -exec "'$ROOT/hack/run_package.sh'" "$@"
}

# beside prints how many packages are tested at a time.
beside() {
	if [ -n "${BESIDE:-}" ]; then
		printf '%s' "$BESIDE"
	elif [ "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" = 1 ]; then
		printf 1
	else
		printf 3
	fi
}

# need_command PACKAGE REASON NAME... installs a Debian package unless there is a command of one of the names.
need_command() {
	local package=$1 reason=$2 name
	shift 2
	for name in "$@"; do
		if PATH=$PATH:/usr/sbin command -v "$name" >/dev/null 2>&1; then return; fi
	done
	debian_package "$package" "$reason"
}

step_controlplane() { "$ROOT/hack/controlplane/build.sh"; }

step_go() {
	local pkgs longest='test/(integration|manifests|chaos|sim|demo|image|cli)$|cmd/zonewise$|survival$'
	# "make verify" builds the image a second time, for all platforms.
	local leave_out='^TestTwoCheckoutsMakeOneImage$'
	need_tool helm
	need_command chromium 'install Chromium or Chrome, with which test/board looks at the page of "zonewise board"' \
		chromium chromium-browser google-chrome google-chrome-stable
	# The longest first, so that none of them ends alone: integration waits more than it computes.
	pkgs=$(packages '^test/integration$' && packages "^($longest)" | grep -v integration && packages -v "^($longest|test/performance)")
	if [ "$(id -u)" = 0 ]; then
		need_command runc "install runc or crun, an OCI runtime that test/image runs the image with" runc crun
	else
		say "TestSchedulesInAContainer is left out: an OCI runtime needs root; continuous integration runs it"
		leave_out+='|^TestSchedulesInAContainer$'
	fi
	"$ROOT/hack/build.sh" demo
	# shellcheck disable=SC2086
	compile_ahead $pkgs
	# shellcheck disable=SC2086
	run_packages pkgname -p "$(beside)" -timeout 20m -skip "$leave_out" $pkgs
}

step_unit() {
	local pkgs
	pkgs=$(packages -v '^(cmd|sim|demo|test)')
	# shellcheck disable=SC2086
	compile_ahead $pkgs
	# shellcheck disable=SC2086
	run_packages pkgname -shuffle=on -timeout 10m $pkgs
}

step_integration() {
	compile_ahead ./test/integration/...
	run_go "$ROOT" testname -timeout 20m ./test/integration/...
}

# step_modules tests the nested modules that have tests without -race, since they link the API server, of which the control
# plane's build has compiled most.
step_modules() {
	local dir total=0 rc=0
	for dir in $(go_modules); do
		[ "$dir" != . ] || continue
		if [ -n "$(find "$ROOT/$dir" -name '*_test.go' -not -path '*/testdata/*' | head -n 1)" ]; then
			say "in $dir"
			RACE_FLAG='' TEST_CGO=$CGO_ENABLED run_go "$ROOT/$dir" pkgname ./... -timeout 15m || rc=$?
			total=$((total + COUNT))
		fi
	done
	COUNT=$total
	return $rc
}

step_scripts() {
	local test rc=0
	COUNT=0
	for test in lib test_runner; do
		say "hack/tests/${test}_test.sh"
		"$ROOT/hack/tests/${test}_test.sh" || rc=1
		COUNT=$((COUNT + 1))
	done
	return $rc
}

# step_soak runs the packages with property tests, and compares copies of clusters with clusters.
step_soak() {
	local total rc=0
	# shellcheck disable=SC2046
	run_go "$ROOT" pkgname -shuffle=on -timeout 6h $(with_properties ./...) -run . -rapid.checks="${SOAK_CHECKS:-20000}" || rc=$?
	total=$COUNT
	run_go "$ROOT" pkgname -timeout 6h ./test/sim -clusters 200 || rc=$?
	COUNT=$((total + COUNT))
	return $rc
}

run_step() {
	local name=$1 start=$SECONDS rc=0 result=ok
	COUNT=
	printf '\n== %s\n' "$name"
	# A step counts and reports by itself; errexit would end the whole run at its first failure.
	"step_$name" || rc=$?
	if [ $rc = 0 ] && [ "$COUNT" = 0 ]; then
		say "no test ran"
		rc=1
	fi
	if ((rc != 0)); then
		result=FAILED
		FAILED="$FAILED $name"
	fi
	SUMMARY+=$(printf '%-14s %-7s %6s  %s' "$name" "$result" "${COUNT:--}" "$(human $((SECONDS - start)))")$'\n'
}

main() {
	local name start=$SECONDS
	need_go
	# shellcheck disable=SC2086
	if [ $# -eq 0 ]; then set -- $ALL; fi
	for name in "$@"; do
		case " $KNOWN " in
		*" $name "*) ;;
		*) die "unknown step \"$name\", want some of: $KNOWN" ;;
		esac
	done
	need_tool gotestsum
	GOTESTSUM=$(tool gotestsum)
	with_race
	for name in "$@"; do
		# Not for the control plane: there an unset variable means "build it".
		[ "$name" = controlplane ] || export KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$BIN}
		run_step "$name"
		# What the tests start is what was just built or linked into bin/.
		if [ "$name" = controlplane ]; then
			case " $FAILED " in *" controlplane "*) break ;; esac
			export KUBEBUILDER_ASSETS=$BIN
		fi
	done
	printf '\n%-14s %-7s %6s  %s\n%s' step result tests time "$SUMMARY"
	say "total $(human $((SECONDS - start)))"
	[ -z "$FAILED" ] || die "failed:$FAILED"
}

main "$@"
