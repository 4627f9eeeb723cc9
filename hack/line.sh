#!/usr/bin/env bash
# Builds and tests Zonewise for another minor version of Kubernetes, from this checkout: a line.
#
#   hack/line.sh VERSION [STEP...]   "tree build test" when no step is given:
#     tree    make .cache/lines/VERSION, a copy of the checkout that is at that version
#     build   compile it, with all of its tests, and link the scheduler
#     plugins test what needs no control plane: the plugins, sim, the framework suites and the comparisons
#     test    test it against a control plane of that version
#   hack/line.sh all build           the same for each line, at the version in its file "versions"; not for a pre-release
#   hack/line.sh --here VERSION      make this checkout such a tree, to commit it on a release branch
#
# A pre-release may require modules that are not published yet. REPLACE names a file with what stands in for them, which
# hack/upgrade-k8s.sh describes. A version that needs a later Go says so: set GOTOOLCHAIN=auto, or to that Go.
#
# A line is the directory hack/line/MINOR:
#   versions   the modules that have versions of their own, Kubernetes first; all others follow from Kubernetes' by hack/upgrade-k8s.sh
#   _files     files that replace those of the checkout: the seams, each of one idea. Go does not look into the directory
#   without    what is left out, and why: each line is a path, or FILE#TEST for one test, after the lines with its reason
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

LINE_DIR=$ROOT/hack/line

usage() { die "usage: hack/line.sh VERSION|all [tree|build|plugins|test]..., or hack/line.sh --here VERSION; there is a line for: $(minors)"; }

minors() { (cd "$LINE_DIR" && printf '%s ' */ | tr -d /); }

# line_of VERSION prints the directory of the line.
line_of() {
	local minor
	minor=$(sed -n 's/^v\([0-9]*\.[0-9]*\)\..*/\1/p' <<<"$1")
	[ -f "$LINE_DIR/$minor/versions" ] || die "there is no line for Kubernetes $1, but for: $(minors)"
	say "$LINE_DIR/$minor"
}

# version_of LINE prints the version of Kubernetes that a line is tested with.
version_of() { sed -n 's|^k8s\.io/kubernetes ||p' "$1/versions"; }

# prerelease VERSION: whether it is one.
prerelease() { case $1 in *-*) ;; *) false ;; esac }

# left_out LINE prints what its file "without" names.
left_out() { grep -v -e '^#' -e '^$' "$1/without" || true; }

# become TREE LINE VERSION makes a tree one of the line.
become() {
	local tree=$1 line=$2 version=$3 file module at minor
	while IFS= read -r file; do
		[ -e "$tree/${file%%#*}" ] || die "${line#"$ROOT/"}/without names $file, which is not there"
		case $file in *\#*) ;; *) rm -r "${tree:?}/$file" ;; esac
	done < <(left_out "$line")
	(cd "$line/_files" && find . -type f) | while IFS= read -r file; do
		[ -f "$tree/$file" ] || die "${line#"$ROOT/"}/_files has $file, which the checkout does not have"
		cp "$line/_files/$file" "$tree/$file"
	done
	minor=$(basename "$line")
	sed -i.old "s|^kubeVersion: .*|kubeVersion: \">=$minor.0-0\"|" "$tree/manifests/charts/zonewise/Chart.yaml"
	rm "$tree/manifests/charts/zonewise/Chart.yaml.old"
	while read -r module at; do
		case $module in k8s.io/kubernetes | '#'* | '') ;; *) go -C "$tree" mod edit -require="$module@$at" ;; esac
	done <"$line/versions"
	"$tree/hack/upgrade-k8s.sh" "$version" .
}

# step_tree makes the copy. What an earlier run has built in it stays.
step_tree() {
	mkdir -p "$TREE"
	find "$TREE" -mindepth 1 -maxdepth 1 ! -name bin -exec rm -rf {} +
	copy_tree "$TREE"
	become "$TREE" "$LINE" "$VERSION"
}

# step_build compiles everything that the line has, with its tests.
step_build() {
	quietly "compile for $VERSION" go -C "$TREE" vet -unreachable ./... || die "the line does not compile: mend it in ${LINE#"$ROOT/"}"
	"$TREE/hack/build.sh"
}

# align_controlplane moves the control plane of a tree to the version, with the versions of what it shares with the main module: each package
# is compiled once. etcd's client belongs to the API server.
align_controlplane() {
	local tree=$1 version=$2 dir=$1/hack/controlplane/kubernetes module main own args=()
	"$tree/hack/upgrade-k8s.sh" "$version" ./hack/controlplane/kubernetes
	while read -r module own main; do
		case $module in go.etcd.io/*) continue ;; esac
		if [ "$own" != "$main" ]; then args+=(-require="$module@$main"); fi
	done < <(LC_ALL=C join <(requirements "$dir") <(requirements "$tree"))
	if ((${#args[@]} > 0)); then
		go -C "$dir" mod edit "${args[@]}"
		go -C "$dir" mod tidy
	fi
}

# requirements DIR prints the modules that DIR/go.mod requires, each with its version.
requirements() { sed -n 's|^[[:space:]]\([^ ]*\) \(v[^ ]*\).*|\1 \2|p' "$1/go.mod" | grep -v '=>' | LC_ALL=C sort; }

# step_plugins runs the tests that need no control plane.
step_plugins() { SKIP=$(tests_left_out) "$TREE/hack/test.sh" line_plugins; }

# tests_left_out prints an expression for the tests that the line leaves out.
tests_left_out() { left_out "$LINE" | sed -n 's|.*#\(.*\)|^\1$|p' | paste -sd '|' -; }

# step_test builds the line's own control plane, and runs what speaks with kube-scheduler's framework or an API server.
step_test() {
	align_controlplane "$TREE" "$VERSION"
	SKIP=$(tests_left_out) KUBEBUILDER_ASSETS='' "$TREE/hack/test.sh" controlplane line
}

# run VERSION STEP...
run() {
	local step
	VERSION=$1 LINE=$(line_of "$1")
	TREE=$ROOT/.cache/lines/$VERSION
	shift
	say "Kubernetes $VERSION, in ${TREE#"$ROOT/"}"
	for step in "$@"; do "step_$step"; done
}

main() {
	local version=${1:-} step line at
	need_go
	[ $# -gt 0 ] || usage
	shift
	if [ "$version" = --here ]; then
		[ $# -eq 1 ] || usage
		line=$(line_of "$1")
		become "$ROOT" "$line" "$1"
		align_controlplane "$ROOT" "$1"
		return
	fi
	if [ $# -eq 0 ]; then set -- build test; fi
	for step in "$@"; do
		case $step in tree | build | plugins | test) ;; *) usage ;; esac
	done
	[ "$1" = tree ] || set -- tree "$@"
	if [ "$version" != all ]; then
		run "$version" "$@"
		return
	fi
	for line in "$LINE_DIR"/*/; do
		at=$(version_of "${line%/}")
		prerelease "$at" || run "$at" "$@"
	done
}

main "$@"
