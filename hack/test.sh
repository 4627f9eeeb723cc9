#!/usr/bin/env bash
# Runs the tests in steps, prints what runs and how long each step took.
#
#   hack/test.sh [STEP...]      all steps when none is given:
#     controlplane   build etcd, kube-apiserver and the rest (skips what is current)
#     unit           packages that do not link k8s.io/kubernetes, property tests among them
#     scheduler      cmd/ and test/ but for those below: tests against the real framework
#     container      test/container: the image under an OCI runtime; root only, Debian's runc is installed
#     integration    test/integration: our scheduler in process against a real API server
#     processes      scheduler, container and integration in one step; stands for them in a whole run
#     modules        the tests of the nested modules: those under hack/, and test/performance/e2e
#     scripts        the tests of the scripts under hack/
#
# The packages of a step with real processes run three at a time, since they wait more than they
# compute (ADR 0165). BESIDE=1 runs one at a time, which takes less memory and disturbs less.
# TEST_ARGS is given to go test, as in TEST_ARGS='-run TestGang' hack/test.sh unit.
# RACE=0 leaves the race detector out; it is left out, with a word, where there is no
# C compiler, which it needs.
#
# A step fails when no test ran in it and when a test was skipped: neither proves anything.
# In the steps with real processes, a test that fails is run once more, and the run says so if it
# passes then (ADR 0135). RERUN=0 leaves that out.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ALL="controlplane unit processes modules scripts"
# soak is run by hack/soak.sh, which says which packages.
KNOWN="$ALL scheduler container integration soak"
SUMMARY=
FAILED=

# with_race turns the race detector on if it can work. It needs cgo, which the rest of the
# project does without (ADR 0040): so cgo is on for the tests, and not for what they run.
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

# packages PATTERN prints the main module's packages whose directory matches the
# extended regular expression; prefix it with "!" for those that do not match.
packages() {
	local all
	all=$(cd "$ROOT" && go list ./...)
	case $1 in
	!*) grep -Ev "^zonewise\.dev/(${1#!})" <<<"$all" || true ;;
	*) grep -E "^zonewise\.dev/($1)" <<<"$all" || true ;;
	esac
}

# compile_ahead "PACKAGES" compiles what the tests of these packages need, with a
# heartbeat and on all cores. go test would do it in silence, and one package at a time
# where tests run one at a time. What does not compile is reported by the test run.
compile_ahead() {
	local deps
	# shellcheck disable=SC2086
	deps=$(cd "$ROOT" && go list -e -deps -test -f '{{if not (or .Standard .ForTest (eq .Name "main"))}}{{.ImportPath}}{{end}}' $1)
	# shellcheck disable=SC2086
	CGO_ENABLED=$TEST_CGO quietly compile go -C "$ROOT" build $RACE_FLAG -v $deps || true
}

# compile_image ARCH... compiles what the tests of the image link, with a heartbeat. No other
# program has the settings of hack/image/binary.go, so nothing of it is there before.
compile_image() {
	local arch deps
	for arch in "$@"; do
		deps=$(cd "$ROOT" && CGO_ENABLED=0 GOOS=linux GOARCH=$arch go list -deps -f '{{if not (or .Standard (eq .Name "main"))}}{{.ImportPath}}{{end}}' ./cmd/scheduler)
		# shellcheck disable=SC2086
		CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 quietly "compile for the image, $arch" \
			go -C "$ROOT" build -trimpath -v $deps || true
	done
}

# run_go DIR FORMAT "PACKAGES" ARGS... runs go test through gotestsum and judges the count.
# TEST_ARGS come last: flags of a test binary must follow the packages. RETRY=1 runs up to
# three tests that fail once more each, unless the race detector has spoken.
run_go() {
	local dir=$1 format=$2 pkgs=$3 log rc=0 done_line report events slow
	local -a retry=()
	shift 3
	if [ -z "$pkgs" ]; then
		say "no package to test"
		return 1
	fi
	log=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	report=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	events=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	if [ "${RETRY:-0}" = 1 ] && [ "${RERUN:-1}" != 0 ] && [ -z "${TEST_ARGS:-}" ]; then
		retry=(--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race
			--rerun-fails-report="$report" --packages="$pkgs")
		pkgs=
	fi
	# shellcheck disable=SC2086
	(cd "$dir" && CGO_ENABLED=$TEST_CGO "$BIN/gotestsum" --format "$format" --format-hide-empty-pkg --jsonfile "$events" ${retry[@]+"${retry[@]}"} -- \
		$RACE_FLAG -count=1 "$@" $pkgs ${TEST_ARGS:-}) 2>&1 | tee "$log" || rc=$?
	done_line=$(grep '^DONE ' "$log" | tail -n 1 || true)
	if [ -s "$report" ]; then
		say "failed at first, so look into it; runs and failures of each:"
		cat "$report"
	fi
	slow=$("$BIN/gotestsum" tool slowest --jsonfile "$events" --threshold 15s 2>/dev/null || true) # a build that fails is no JSON
	if [ "$format" = pkgname ] && [ -n "$slow" ]; then
		say "slower than 15s:"
		sed -e 's/^/  /' <<<"$slow"
	fi
	rm -f "$log" "$report" "$events"
	COUNT=$(sed -n -E 's/^DONE ([0-9]+ runs, )?([0-9]+) tests?.*/\2/p' <<<"$done_line")
	if ((rc != 0)); then return "$rc"; fi
	if [ "${COUNT:-0}" = 0 ]; then
		say "no test ran"
		return 1
	fi
	case $done_line in
	*skipped*)
		say "a test was skipped: make it run here or remove it"
		return 1
		;;
	esac
}

step_controlplane() { "$ROOT/hack/controlplane/build.sh"; }

step_unit() {
	local pkgs
	pkgs=$(packages '!(cmd|test)/')
	compile_ahead "$pkgs"
	run_go "$ROOT" pkgname "$pkgs" -shuffle=on -timeout 10m
}

# packages_of STEP prints the packages of a step with real processes; the one that takes longest comes first, so that
# it does not end alone.
packages_of() {
	case $1 in
	scheduler) packages '(cmd|test)/' | grep -v -e /test/container -e /test/integration -e /test/performance ;;
	processes)
		packages_of integration
		packages_of scheduler
		if [ "$(id -u)" = 0 ]; then packages_of container; fi
		;;
	*) packages "test/$1" ;;
	esac
}

# run_processes FORMAT "PACKAGES" tests packages that start real processes.
run_processes() {
	compile_ahead "$2"
	# What runs in an image is linked with settings of its own.
	case $2 in
	*/test/image*) compile_image amd64 arm64 ;;
	*/test/container*) compile_image "$(go env GOARCH)" ;;
	esac
	RETRY=1 run_go "$ROOT" "$1" "$2" -p "$(beside)" -timeout 30m
}

# beside prints how many packages with real processes are tested at a time.
beside() {
	if [ -n "${BESIDE:-}" ]; then
		printf '%s' "$BESIDE"
	elif [ "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" = 1 ]; then
		printf 1
	else
		printf 3
	fi
}

# A container runtime needs root. Elsewhere the steps say so and prove nothing of it, as without -race.
no_runtime() { say "test/container is left out: an OCI runtime needs root; continuous integration runs it"; }

need_programs() {
	"$ROOT/hack/tools/build.sh" helm # installs the chart in test/manifests
	"$ROOT/hack/browser.sh"          # looks at the page in test/board
}

step_processes() {
	need_programs
	if [ "$(id -u)" = 0 ]; then "$ROOT/hack/image/runtime.sh"; else no_runtime; fi
	run_processes pkgname "$(packages_of processes)"
}

step_scheduler() {
	need_programs
	run_processes pkgname "$(packages_of scheduler)"
}

step_container() {
	if [ "$(id -u)" != 0 ]; then
		no_runtime
		return
	fi
	"$ROOT/hack/image/runtime.sh"
	run_processes testname "$(packages_of container)"
}

step_integration() { run_processes testname "$(packages_of integration)"; }

# step_modules tests the nested modules that have tests; they build the scheduler
# for an image and the like, so they use the settings of "make build", without -race.
step_modules() {
	local dir total=0 rc=0
	for dir in $(go_modules); do
		[ "$dir" != . ] || continue
		if [ -n "$(find "$ROOT/$dir" -name '*_test.go' -not -path '*/testdata/*' | head -n 1)" ]; then
			say "in $dir"
			RACE_FLAG='' TEST_CGO=$CGO_ENABLED run_go "$ROOT/$dir" testname ./... -timeout 15m || rc=$?
			total=$((total + ${COUNT:-0}))
		fi
	done
	COUNT=$total
	return $rc
}

step_scripts() {
	local test rc=0
	COUNT=0
	for test in "$ROOT"/hack/tests/*_test.sh; do
		say "${test#"$ROOT"/}"
		"$test" || rc=1
		COUNT=$((COUNT + 1))
	done
	return $rc
}

step_soak() { run_go "$ROOT" pkgname "$SOAK_PACKAGES" -shuffle=on; }

run_step() {
	local name=$1 start=$SECONDS rc=0 result=ok
	COUNT=
	printf '\n== %s\n' "$name"
	# A step counts and reports by itself; errexit would end the whole run at its first failure.
	"step_$name" || rc=$?
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
		*) die "unknown step \"$name\", want some of: $ALL" ;;
		esac
	done
	toolchain >/dev/null
	"$ROOT/hack/tools/build.sh" gotestsum
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
