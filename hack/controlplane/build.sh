#!/usr/bin/env bash
# Builds the control plane that tests and the demo run (etcd, kube-apiserver, kube-controller-manager, kubectl, kwok)
# into bin/, from the Go modules pinned in the directories beside this script. What is current is not linked again.
#
#   hack/controlplane/build.sh [NAME...]     all of them when no name is given
#
# KUBEBUILDER_ASSETS: what is found in that directory is linked into bin/ instead of being built.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# build NAME MODULE PACKAGE [LDFLAGS]. The debug tables, which nothing reads here, would double the size.
build() {
	local name=$1 dir=$ROOT/hack/controlplane/$2
	case " $names " in
	*" $name "*) ;;
	*) return ;;
	esac
	if [ -n "$ASSETS" ] && [ -x "$ASSETS/$name" ]; then
		ln -sf "$ASSETS/$name" "$BIN/$name"
		printf '  %-32s from KUBEBUILDER_ASSETS: %s\n' "$name" "$ASSETS"
		return
	fi
	if [ -L "$BIN/$name" ]; then rm "$BIN/$name"; fi # never write through a link
	[ -x "$BIN/$name" ] || say "  $name is not there yet; the first build of all five takes 10 to 20 minutes on two cores"
	quietly "$name" go -C "$dir" build -mod=readonly -v -ldflags "-s -w ${4:-}" -o "$BIN/$name" "$3" ||
		die "$name did not build: the messages above say why (a first build needs the module proxy, about 8 GB of disk and 3 GB of memory)"
}

# stamps prints the linker flags that say which Kubernetes it is; the source does not.
stamps() {
	local v=$1 minor p
	minor=${v#v*.}
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf -- '-X %s.gitVersion=%s -X %s.gitMajor=1 -X %s.gitMinor=%s ' $p "$v" $p $p "${minor%%.*}"
		printf -- '-X %s.gitCommit= -X %s.gitTreeState=clean ' $p $p
	done
}

need_go
all="etcd kube-apiserver kube-controller-manager kubectl kwok"
names=${*:-$all}
for name in $names; do
	case " $all " in
	*" $name "*) ;;
	*) die "unknown binary \"$name\", want one of: $all" ;;
	esac
done
ASSETS=${KUBEBUILDER_ASSETS:-}
if [ -n "$ASSETS" ]; then
	[ -d "$ASSETS" ] || die "KUBEBUILDER_ASSETS=$ASSETS is not a directory: unset it to build the control plane"
	ASSETS=$(cd "$ASSETS" && pwd -P)
fi
mkdir -p "$BIN" || die "cannot write to $BIN"
if [ "$ASSETS" = "$(cd "$BIN" && pwd -P)" ]; then ASSETS=; fi # bin/ is what is built here
kubernetes=$(pinned k8s.io/kubernetes "$ROOT/hack/controlplane/kubernetes")
say "control plane in ${BIN#"$PWD"/}/: Kubernetes $kubernetes"
build etcd etcd .
for name in kube-apiserver kube-controller-manager kubectl; do
	build $name kubernetes k8s.io/kubernetes/cmd/$name "$(stamps "$kubernetes")"
done
build kwok kwok sigs.k8s.io/kwok/cmd/kwok
