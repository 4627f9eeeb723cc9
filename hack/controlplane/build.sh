#!/usr/bin/env bash
# Builds the control plane that tests and the demo run (etcd, kube-apiserver,
# kube-controller-manager, kubectl, kwok) into bin/, from the Go modules pinned
# in the directories beside this script.
#
#   hack/controlplane/build.sh [NAME...]     all of them when no name is given
#
# A binary is rebuilt only when its pins, this recipe or the Go version changed.
# KUBEBUILDER_ASSETS: etcd, kube-apiserver and kubectl found in that directory are
# linked into bin/ instead of being built.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

HERE=$ROOT/hack/controlplane
ALL="etcd kube-apiserver kube-controller-manager kubectl kwok"

# module_of NAME prints the directory whose go.mod pins the binary.
module_of() {
	case $1 in
	etcd | kwok) printf '%s/%s' "$HERE" "$1" ;;
	*) printf '%s/kubernetes' "$HERE" ;;
	esac
}

# package_of NAME prints the main package, as seen from that module.
package_of() {
	case $1 in
	etcd) printf . ;;
	kwok) printf sigs.k8s.io/kwok/cmd/kwok ;;
	*) printf 'k8s.io/kubernetes/cmd/%s' "$1" ;;
	esac
}

version_of() {
	case $1 in
	etcd) pinned go.etcd.io/etcd/server/v3 "$HERE/etcd" ;;
	kwok) pinned sigs.k8s.io/kwok "$HERE/kwok" ;;
	*) pinned k8s.io/kubernetes "$HERE/kubernetes" ;;
	esac
}

# ldflags_of NAME VERSION prints linker flags: no debug tables (they double the
# size and nobody debugs these), and the version where it is not in the source.
ldflags_of() {
	local flags="-s -w" v=$2 p major minor
	case $1 in
	kube* )
		major=${v#v} major=${major%%.*}
		minor=${v#v*.} minor=${minor%%.*}
		for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
			flags+=" -X $p.gitVersion=$v -X $p.gitMajor=$major -X $p.gitMinor=$minor"
			flags+=" -X $p.gitCommit= -X $p.gitTreeState=clean"
		done
		;;
	esac
	printf '%s' "$flags"
}

# borrowed NAME prints the file that KUBEBUILDER_ASSETS offers for it, if any.
borrowed() {
	[ -n "$ASSETS" ] || return 0
	case $1 in
	etcd | kube-apiserver | kubectl)
		if [ -x "$ASSETS/$1" ]; then printf '%s/%s' "$ASSETS" "$1"; fi
		;;
	esac
}

main() {
	local name file dir version flags built=0 start=$SECONDS
	need_go
	toolchain >/dev/null
	ASSETS=${KUBEBUILDER_ASSETS:-}
	if [ -n "$ASSETS" ]; then
		[ -d "$ASSETS" ] || die "KUBEBUILDER_ASSETS=$ASSETS is not a directory: unset it to build the control plane"
		ASSETS=$(cd "$ASSETS" && pwd -P)
	fi
	mkdir -p "$BIN/.stamps" || die "cannot write to $BIN"
	# bin/ itself is no override, it is where the tests find what is built here.
	if [ "$ASSETS" = "$(cd "$BIN" && pwd -P)" ]; then ASSETS=; fi
	# shellcheck disable=SC2086
	if [ $# -eq 0 ]; then set -- $ALL; fi
	for name in "$@"; do
		case " $ALL " in
		*" $name "*) ;;
		*) die "unknown binary \"$name\", want one of: $ALL" ;;
		esac
	done
	say "control plane in ${BIN#"$PWD"/}/ ($(toolchain))"
	for name in "$@"; do
		file=$(borrowed "$name")
		if [ -n "$file" ]; then
			rm -f "$BIN/.stamps/$name"
			ln -sf "$file" "$BIN/$name"
			printf '  %-32s from KUBEBUILDER_ASSETS: %s\n' "$name" "$file"
			continue
		fi
		dir=$(module_of "$name")
		version=$(version_of "$name")
		[ -n "$version" ] || die "$dir/go.mod does not pin the module of $name"
		flags=$(ldflags_of "$name" "$version")
		if current "$name" "$dir" "$flags"; then
			printf '  %-32s current\n' "$name $version"
			continue
		fi
		if ((built == 0)); then
			say "  building; the first time takes 10 to 20 minutes on two cores, later it is skipped"
		fi
		built=$((built + 1))
		build_pinned "$name" "$version" "$dir" "$(package_of "$name")" "$flags"
	done
	if ((built > 0)); then
		say "control plane: built $built of $# in $(human $((SECONDS - start)))"
	fi
}

main "$@"
