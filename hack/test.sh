#!/usr/bin/env bash
# Runs the tests in steps, prints what runs, what CPU each package took, and how long each step took.
#
#   hack/test.sh [STEP...]      "controlplane go" when none is given, which is what "make test" runs:
#     controlplane   build what the tests start of a control plane (skips what is current)
#     go             the packages of the main module, three at a time, without what only "all" runs
#     race           with the race detector and in a short form: the packages in which goroutines of ours meet
#     all            every test of the main module, none from the cache: also what tests the tools, the browser, the image,
#                    every rule of the roles, and the long forms
#     modules        the tests of the nested modules: those under hack/, test/performance/e2e, test/upstream and test/e2e
#     scripts        the tests of the scripts in hack/: that each check fails when it should
#     unit           the part of "go" that neither links k8s.io/kubernetes nor starts a process
#     integration    test/integration alone, test by test
#     line           what hack/line.sh runs in the tree of an earlier Kubernetes version: plugins, internal, the framework suites, the
#                    comparisons with the in-tree plugin and cache, and the API server suite
#     line_plugins   of these what needs no control plane, and sim
#     soak           the property tests, with SOAK_CHECKS cases each (20000) of another seed in each run
#
# What has passed is not run again while its program, the files and the variables that it read are the same: Go's cache of
# results knows, and a package whose result depends on something else keeps out of it (ADR 0024). FRESH=1 runs everything.
#
# The property tests draw their cases from PROPERTY_SEED (1), so that a red run speaks of the change that it tests and can
# be repeated; "soak" looks for what no run has seen yet.
#
# TEST_ARGS is given to go test, as in TEST_ARGS='-run TestGang' hack/test.sh unit.
# BESIDE=1 tests one package at a time, which takes less memory.
#
# A step fails when no test ran in it, and when a test was skipped: neither proves anything. No test is tried twice.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

DEFAULT="controlplane go"
KNOWN="controlplane go race all modules scripts unit integration line line_plugins soak"
SUMMARY=
FAILED=
RACE_FLAG=
TEST_CGO=$CGO_ENABLED

# What only "all" runs, since it tests no promise of the product's, or one that "make verify" tests, or one that changes with a
# file that hardly ever changes: the table in CONTRIBUTING says why for each.
LATER_PACKAGES='^test/(board|demo|docs|image|karpenter|site)$'
LATER_TESTS='^TestSeeds$/^[23]$'
LATER_TESTS+='|^TestChart$|^TestStranger$|^TestUpgrade$|^TestTraceZoneReturns$|^TestADayOfATrace$|^TestManyWorlds$'

# Where races have been found, or goroutines of ours share memory. The rest of the tests drive programs that are built
# without the detector, or run one goroutine at a time.
RACE_PACKAGES='^(plugins|plugins/.*|internal/.*|test/framework|survival|cmd/controller|cmd/controller/.*)$'
# Without these, which take most of the detector's time: they compare outcomes or count work over hundreds of gangs or
# moves, with the same goroutines as the tests beside them.
RACE_LATER_TESTS='^(TestADayOfATrace|TestGangsThatLackDevicesComeToRest|TestOutcomesEqualInTree|TestSearchesForVictimsAreFew)$'

# compile_ahead PACKAGE... compiles what the tests of these packages need, with a heartbeat; go test would do it in
# silence. It does so once for these packages and each version of the dependencies: afterwards go test itself has little to
# compile. What does not compile is reported by the test run.
compile_ahead() {
	local deps stamp
	stamp=$(go env GOCACHE)/zonewise-compiled$RACE_FLAG-$( (cat "$ROOT"/go.* && go version && echo "$@") | cksum | tr ' ' -)
	[ ! -e "$stamp" ] || return 0
	deps=$(cd "$ROOT" && go list -e -deps -test -f '{{if not (or .Standard .ForTest (eq .Name "main"))}}{{.ImportPath}}{{end}}' "$@")
	# shellcheck disable=SC2086
	if CGO_ENABLED=$TEST_CGO quietly compile go -C "$ROOT" build $RACE_FLAG -v $deps; then : >"$stamp"; fi
}

# run_go DIR FORMAT ARGS... runs go test through gotestsum and checks the count. TEST_ARGS come last: flags of a test
# binary must follow the packages. vet is left to "make verify", which runs it with all of its checks.
run_go() {
	local dir=$1 format=$2 log events rc=0 done_line fresh=
	shift 2
	log=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	events=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	if [ "${FRESH:-0}" != 0 ] || [ -n "${PROPERTY_SEED:-}" ]; then fresh=-count=1; fi
	# shellcheck disable=SC2086
	(cd "$dir" && CGO_ENABLED=$TEST_CGO "$GOTESTSUM" --format "$format" --format-hide-empty-pkg --jsonfile "$events" -- \
		$RACE_FLAG -vet=off $fresh "$@" ${TEST_ARGS:-}) 2>&1 | tee "$log" || rc=$?
	done_line=$(grep '^DONE ' "$log" | tail -n 1 || true)
	cpu_of_packages "$events"
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

# cpu_of_packages EVENTS prints the CPU seconds that hack/run_package.sh has noted in the events of go test, and the wall
# seconds beside them, the dearest package first.
cpu_of_packages() {
	local table
	table=$(awk '
		function field(name) { return match($0, "\"" name "\":\"[^\"]*") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) : "" }
		{ package = field("Package"); sub(/^zonewise\.dev\//, "", package) }
		/"Output":"cpu [0-9.]+\\n"/ { text = field("Output"); sub(/^cpu /, "", text); cpu[package] = text + 0 }
		/"Output":"ok .*\(cached\)/ { cached[package] = 1 }
		/"Action":"(pass|fail)"/ && !/"Test":/ { wall[package] = match($0, /"Elapsed":[0-9.]+/) ? substr($0, RSTART + 10, RLENGTH - 10) : 0 }
		END {
			for (package in cpu) {
				if (package in cached) { unchanged++; continue }
				sum += cpu[package]
				printf "%8.1f %8.1f  %s\n", cpu[package], wall[package], package | "sort -rn"
			}
			close("sort -rn")
			if (sum > 0) printf "%8.1f           in all\n", sum
			if (unchanged > 0) printf "%d packages have not changed since they passed\n", unchanged
		}' "$1")
	[ -z "$table" ] || printf '\n     cpu     wall  package (seconds)\n%s\n' "$table"
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
	PATH=$ROOT/hack:$PATH run_go "$ROOT" "$format" -exec run_package.sh "$@"
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

step_controlplane() { "$ROOT/hack/controlplane/build.sh" tests; }

# longest_first prints packages of the main module as they are to be started: those that take longest first, so that none of
# them ends alone.
longest_first() {
	local longest='test/(integration|manifests|chaos|sim|demo|image|cli|karpenter)$|cmd/zonewise/command$|survival$'
	packages "^($longest)" | grep -E "$@"
	packages -v "^($longest|test/performance)" | grep -E "$@"
}

step_go() {
	local pkgs
	pkgs=$(longest_first -v "zonewise.dev/${LATER_PACKAGES#^}")
	"$ROOT/hack/build.sh" || return
	# shellcheck disable=SC2086
	compile_ahead $pkgs
	# shellcheck disable=SC2086
	run_packages pkgname -p "$(beside)" -timeout 20m -skip "$LATER_TESTS" $pkgs
}

# step_race needs cgo, which the rest of the project does without (ADR 0024), and so a C compiler.
step_race() {
	local pkgs cc rc=0 total
	cc=$(CGO_ENABLED=1 go env CC)
	need_command 'gcc libc6-dev' "install a C compiler, which the race detector needs: \"$cc\"" "${cc%% *}"
	local RACE_FLAG=-race TEST_CGO=1
	pkgs=$(packages "$RACE_PACKAGES")
	# shellcheck disable=SC2086
	compile_ahead $pkgs
	# shellcheck disable=SC2086
	run_packages pkgname -p "$(beside)" -timeout 20m -short -skip "$RACE_LATER_TESTS" $pkgs || rc=$?
	total=$COUNT
	run_packages pkgname -p "$(beside)" -timeout 20m -short -run '^(TestSecondScheduler|TestPolicyRollout|TestSurvival.*)$' ./test/integration ./test/cli || rc=$?
	COUNT=$((total + COUNT))
	return $rc
}

step_all() {
	local pkgs
	# "make verify" builds the image for all platforms, and again.
	local leave_out='^TestTwoCheckoutsMakeOneImage$'
	need_tool helm
	need_tool descheduler
	need_command chromium 'install Chromium or Chrome, with which test/board looks at the page of "zonewise board"' \
		chromium chromium-browser google-chrome google-chrome-stable
	if [ "$(id -u)" = 0 ]; then
		need_command runc "install runc or crun, an OCI runtime that test/image runs the image with" runc crun
	else
		say "TestSchedulesInAContainer is left out: an OCI runtime needs root; continuous integration runs it"
		leave_out+='|^TestSchedulesInAContainer$'
	fi
	pkgs=$(longest_first .)
	"$ROOT/hack/controlplane/build.sh" demo karpenter || return
	"$ROOT/hack/build.sh" demo || return
	# shellcheck disable=SC2086
	compile_ahead $pkgs
	# shellcheck disable=SC2086
	FRESH=1 run_packages pkgname -p "$(beside)" -timeout 20m -skip "$leave_out" $pkgs
}

step_unit() {
	local pkgs
	pkgs=$(packages -v '^(cmd|sim|survival|rebalance|demo|test)')
	# shellcheck disable=SC2086
	compile_ahead $pkgs
	# shellcheck disable=SC2086
	run_packages pkgname -timeout 10m $pkgs
}

step_integration() {
	compile_ahead ./test/integration/...
	run_go "$ROOT" testname -timeout 20m ./test/integration/...
}

step_line() { run_line '^(plugins|internal|test/(framework|parity|integration))(/|$)'; }

step_line_plugins() { run_line '^(plugins|internal|sim|test/(framework|parity))(/|$)'; }

# run_line PATTERN runs the packages that it matches, without what the line leaves out.
run_line() {
	local pkgs
	pkgs=$(packages "$1")
	# shellcheck disable=SC2086
	compile_ahead $pkgs
	# shellcheck disable=SC2086
	run_packages pkgname -p "$(beside)" -timeout 20m -skip "$LATER_TESTS${SKIP:+|$SKIP}" $pkgs
}

# step_modules tests the nested modules that have tests.
step_modules() {
	local dir total=0 rc=0
	"$ROOT/hack/controlplane/build.sh" demo kube-controller-manager || return # for test/e2e
	for dir in $(go_modules); do
		[ "$dir" != . ] || continue
		if [ -n "$(find "$ROOT/$dir" -name '*_test.go' -not -path '*/testdata/*' | head -n 1)" ]; then
			say "in $dir"
			FRESH=1 run_go "$ROOT/$dir" pkgname ./... -timeout 90m || rc=$?
			total=$((total + COUNT))
		fi
	done
	COUNT=$total
	return $rc
}

step_scripts() {
	local test rc=0
	COUNT=0
	for test in lib test_runner lint_rules verify upgrade_k8s line vulnerabilities release; do
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
	FRESH=1 run_go "$ROOT" pkgname -shuffle=on -timeout 6h $(with_properties ./...) -run . -rapid.checks="${SOAK_CHECKS:-20000}" || rc=$?
	total=$COUNT
	FRESH=1 run_go "$ROOT" pkgname -timeout 6h ./test/sim -clusters 200 || rc=$?
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
	if [ $# -eq 0 ]; then set -- $DEFAULT; fi
	for name in "$@"; do
		case " $KNOWN " in
		*" $name "*) ;;
		*) die "unknown step \"$name\", want some of: $KNOWN" ;;
		esac
	done
	need_tool gotestsum
	GOTESTSUM=$(tool gotestsum)
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
