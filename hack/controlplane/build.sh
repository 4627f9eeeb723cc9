#!/usr/bin/env bash
# Builds the programs that tests and the demo run into bin/, from the Go modules pinned in the directories beside this script.
#
#   hack/controlplane/build.sh [NAME...]     all of them when no name is given; a NAME is a program, or
#     tests      what "make test" runs: etcd, kube-apiserver, kubectl, and controllers, a small kube-controller-manager
#     demo       what "make demo" runs: the same, and kwok
# test/e2e runs the whole kube-controller-manager, and test/karpenter an autoscaler, karpenter, beside them.
#
# What is in bin/ is a second name of the program that need_program keeps, so nothing must write to it; a new program is put in the
# place of an old one.
#
# KUBEBUILDER_ASSETS: what is found in that directory is linked into bin/ instead of being built.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

TESTS="etcd kube-apiserver kubectl controllers"
DEMO="$TESTS kwok"
ALL="etcd kube-apiserver kubectl controllers kube-controller-manager kwok karpenter"

# source_of NAME prints the module under hack/controlplane and the package that a program is built from.
source_of() {
	case $1 in
	etcd | karpenter) say "$1 ." ;;
	controllers) say "kubernetes ./controllers" ;;
	kwok) say "kwok sigs.k8s.io/kwok/cmd/kwok" ;;
	*) say "kubernetes k8s.io/kubernetes/cmd/$1" ;;
	esac
}

# ldflags MODULE prints linker flags. The debug tables, which nothing reads here, would double the size; which Kubernetes it is
# stands in no source.
ldflags() {
	local v minor p
	printf -- '-s -w'
	[ "$1" = kubernetes ] || return 0
	v=$(pinned k8s.io/kubernetes "$ROOT/hack/controlplane/kubernetes")
	minor=${v#v*.}
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf -- ' -X %s.gitVersion=%s -X %s.gitMajor=1 -X %s.gitMinor=%s' $p "$v" $p $p "${minor%%.*}"
		printf -- ' -X %s.gitCommit= -X %s.gitTreeState=clean' $p $p
	done
}

# build NAME makes BIN/NAME.
build() {
	local name=$1 module package path new
	if [ -n "$ASSETS" ] && [ -x "$ASSETS/$name" ]; then
		ln -sf "$ASSETS/$name" "$BIN/$name"
		printf '  %-32s from KUBEBUILDER_ASSETS: %s\n' "$name" "$ASSETS"
		return
	fi
	read -r module package <<<"$(source_of "$name")"
	set -- "$name" "$ROOT/hack/controlplane/$module" "$package" "$(ldflags "$module")"
	need_program "$@"
	path=$(path_of "$@")
	if ! cmp -s "$path" "$BIN/$name"; then
		new=$BIN/.$name.$$
		ln "$path" "$new" 2>/dev/null || cp -p "$path" "$new" # on another file system
		mv -f "$new" "$BIN/$name"
	fi
}

need_go
# shellcheck disable=SC2086
if [ $# -eq 0 ]; then set -- $ALL; fi
names=
for name in "$@"; do
	case $name in
	tests) names="$names $TESTS" ;;
	demo) names="$names $DEMO" ;;
	*)
		case " $ALL " in
		*" $name "*) names="$names $name" ;;
		*) die "unknown program \"$name\", want tests, demo or some of: $ALL" ;;
		esac
		;;
	esac
done
ASSETS=${KUBEBUILDER_ASSETS:-}
if [ -n "$ASSETS" ]; then
	[ -d "$ASSETS" ] || die "KUBEBUILDER_ASSETS=$ASSETS is not a directory: unset it to build the control plane"
	ASSETS=$(cd "$ASSETS" && pwd -P)
fi
mkdir -p "$BIN" || die "cannot write to $BIN"
if [ "$ASSETS" = "$(cd "$BIN" && pwd -P)" ]; then ASSETS=; fi # bin/ is what is built here
say "control plane in ${BIN#"$PWD"/}/: Kubernetes $(pinned k8s.io/kubernetes "$ROOT/hack/controlplane/kubernetes")"
for name in $names; do build "$name"; done
