#!/usr/bin/env bash
# Checks that generated files are current, modules tidy, versions in step, alerts right, documents true to the tree, the image
# reproducible for all platforms, and code formatted and free of lint. It changes nothing: generators run in a copy.
#
#   hack/verify.sh [CHECK...]     all checks when none is given: generated tidy modules versions scripts alerts docs vulnerabilities image lint
#
# VULNDB names the database of vulnerabilities (hack/vulnerabilities.sh).
# hack/tests proves that these checks fail when they should; "make test-all" runs it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ALL="generated tidy modules versions scripts alerts docs vulnerabilities image lint"
WORK=

# check_generated runs every generator in a copy and compares it with a second copy, so
# that neither generators nor a concurrent edit of the work tree disturb each other.
check_generated() {
	command -v diff >/dev/null 2>&1 || die "diff not found: install diffutils"
	copy_tree "$WORK/after"
	cp -R "$WORK/after" "$WORK/before"
	if ! "$WORK/after/hack/update.sh" crds deepcopy docs; then
		say "a generator fails; see above"
		return 1
	fi
	if ! (cd "$WORK" && diff -ruN before after >diff.txt); then
		say "stale, mend with \"make update\":"
		sed -n 's|^+++ after/\([^	]*\).*|  \1|p' "$WORK/diff.txt"
		head -n 60 "$WORK/diff.txt"
		return 1
	fi
}

check_tidy() {
	local dir rc=0
	for dir in $(go_modules); do
		if ! (cd "$ROOT/$dir" && go mod tidy -diff) >"$WORK/tidy.txt" 2>&1; then
			say "$dir/go.mod or go.sum is not tidy, mend with \"cd $dir && go mod tidy\" or \"make update\":"
			grep -v '^go: downloading' "$WORK/tidy.txt" | head -n 40
			rc=1
		fi
	done
	return $rc
}

# check_modules compares what was downloaded with the sums, of the modules that a release is made of and with. Others are compared when
# they are downloaded; to hash the tools' many modules again takes minutes.
check_modules() {
	local dir rc=0
	for dir in . hack/image hack/release; do
		if ! go -C "$ROOT/$dir" mod verify >"$WORK/modules.txt" 2>&1; then
			say "$dir is built from modules that are not those of its go.sum:"
			grep -v '^go: downloading' "$WORK/modules.txt" | head -n 20
			rc=1
		fi
	done
	return $rc
}

# check_versions: a package is compiled once only while all modules that need it agree on its version and on those of what it imports.
# The module of the API server, which takes the longest, comes first, and the first one that has a package decides.
check_versions() {
	local dir apart rc=0
	"$ROOT/hack/upgrade-k8s.sh" --check
	: >"$WORK/decided"
	for dir in ./hack/controlplane/kubernetes $(go_modules | grep -v '^\./hack/controlplane/kubernetes$'); do
		versions_of "$dir" >"$WORK/own"
		apart=$(LC_ALL=C join "$WORK/decided" "$WORK/own" | awk '$2 != $3 { print $2 " " $3 }' | LC_ALL=C sort -u)
		if [ -n "$apart" ]; then
			say "$dir has its own versions of what other modules compile, too, mend with \"cd $dir && go get $(cut -d ' ' -f 1 <<<"$apart" | tr '\n' ' ')&& go mod tidy\"" \
				"or, where a dependency wants a later version, with an older release of that dependency, or an exclude of that version:"
			sed -e 's/^\(.*\) \(.*\)$/  \1, here \2/' <<<"$apart"
			rc=1
		fi
		LC_ALL=C join -v 2 "$WORK/decided" "$WORK/own" | LC_ALL=C sort - "$WORK/decided" >"$WORK/more"
		mv "$WORK/more" "$WORK/decided"
	done
	return $rc
}

# versions_of DIR prints the packages that a module compiles for its programs and tests, each with its module@version. The version
# that is required counts, too: the go command keeps what it compiles under it, even if it is replaced.
versions_of() {
	local what= flags=$GOFLAGS
	if [ -n "$(find "$ROOT/$1" -name '*.go' -not -path '*/testdata/*' | head -n 1)" ]; then what=./...; fi
	if grep -q '^tool ' "$ROOT/$1/go.mod"; then what="$what tool"; fi
	case $1 in */promtool) flags="$flags $PROMTOOL_TAGS" ;; esac
	# shellcheck disable=SC2086
	(cd "$ROOT/$1" && GOFLAGS=$flags go list -deps -test -f '{{if not (or .Standard .ForTest)}}{{$p := .ImportPath}}{{with .Module}}{{if not .Main}}'\
'{{$p}} {{.Path}}@{{$v := .Version}}{{$v}}{{with .Replace}}{{if and .Version (ne .Version $v)}}=>{{.Version}}{{end}}{{end}}{{end}}{{end}}{{end}}' \
		$what | grep . | LC_ALL=C sort -u)
}

# check_image tests the image, of all platforms, built from two checkouts, and runs it on a real API server: what of the control
# plane is missing is built.
check_image() {
	local leave_out='^$'
	if [ "$(id -u)" = 0 ]; then
		need_command runc "install runc or crun, an OCI runtime that test/image runs the image with" runc crun
		"$ROOT/hack/controlplane/build.sh" etcd kube-apiserver kubectl
	else
		say "TestSchedulesInAContainer is left out: an OCI runtime needs root; continuous integration runs it"
		leave_out='^TestSchedulesInAContainer$'
	fi
	(cd "$ROOT" && PLATFORMS=linux/amd64,linux/arm64 go test -timeout 30m -count=1 -skip "$leave_out" ./test/image)
}

# check_scripts: what bash cannot parse would only show when the script is run.
check_scripts() {
	local file rc=0
	while IFS= read -r file; do
		bash -n "$file" || rc=1
		if [ ! -x "$file" ] && [ "$(basename "$file")" != lib.sh ]; then
			say "$file is not executable, mend with \"chmod +x\""
			rc=1
		fi
	done < <(find "$ROOT/hack" "$ROOT/.ci" -type f \( -name '*.sh' -o -path '*/.ci/run' \))
	return $rc
}

# check_alerts tests the alerts with promtool, and the dashboard by Grafana's schema.
check_alerts() {
	"$ROOT/hack/tests/alerts_test.sh"
	(cd "$ROOT/hack/dashboard" && go test -count=1 .)
}

# check_docs tests that commands, tests, files and links that the documents name exist.
check_docs() { (cd "$ROOT" && go test -count=1 ./test/docs); }

check_vulnerabilities() { "$ROOT/hack/vulnerabilities.sh" | tee "$WORK/vulnerabilities"; }

check_lint() { "$ROOT/hack/lint.sh"; }

main() {
	local check start rc result failed= summary= begin=$SECONDS
	need_go
	# shellcheck disable=SC2086
	if [ $# -eq 0 ]; then set -- $ALL; fi
	for check in "$@"; do
		case " $ALL " in
		*" $check "*) ;;
		*) die "unknown check \"$check\", want some of: $ALL" ;;
		esac
	done
	WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	trap 'rm -rf "$WORK"' EXIT
	for check in "$@"; do
		printf '\n== verify %s\n' "$check"
		start=$SECONDS
		# In a subshell, so that errexit holds inside the check and die ends only it.
		set +e
		(
			set -e
			"check_$check"
		)
		rc=$?
		set -e
		result=ok
		if [ "$check" = vulnerabilities ] && grep -q '^left out' "$WORK/vulnerabilities"; then result='LEFT OUT'; fi
		if ((rc != 0)); then result=FAILED; fi
		summary+=$(printf '%-15s %-8s %s' "$check" "$result" "$(human $((SECONDS - start)))")$'\n'
		if ((rc != 0)); then failed="$failed $check"; fi
	done
	printf '\n%stotal %s\n' "$summary" "$(human $((SECONDS - begin)))"
	[ -z "$failed" ] || die "verify failed:$failed"
}

main "$@"
