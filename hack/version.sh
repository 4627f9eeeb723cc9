#!/usr/bin/env bash
# Prints the version of this checkout, or the linker flags that stamp it.
#
#   hack/version.sh             v1.37.2+zonewise.0.0.0-dev
#   hack/version.sh zonewise    0.0.0-dev
#   hack/version.sh kubernetes  v1.37.2
#   hack/version.sh ldflags     -X ... for "go build -ldflags"
#
# VERSION is ours: a number such as 0.2.0, for a release; or "git", as "make image" has it, which describes the checkout: 0.1.0, or
# 0.0.0-12.g3f2a1bc before the first tag, with .dirty after a change. Without it the version is that of no commit, so that a commit
# links no program again and leaves test results valid.
#
# The binary reports Kubernetes' version with ours as build metadata: kube-scheduler derives the
# version that it emulates from it, and build metadata, unlike a pre-release, leaves the order of
# versions alone. An image tag must not contain "+": use "zonewise" there.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

zonewise_version() {
	case ${VERSION:-} in
	'') printf 0.0.0-dev ;;
	git) describe ;;
	*) printf '%s' "${VERSION#v}" ;;
	esac
}

# describe needs neither git nor tags: an unpacked archive builds as 0.0.0-unknown.
describe() {
	local described
	if ! git -C "$ROOT" rev-parse --verify -q HEAD >/dev/null 2>&1; then
		printf '0.0.0-unknown'
		return
	fi
	if described=$(git -C "$ROOT" describe --tags --match 'v[0-9]*' 2>/dev/null); then
		# v0.1.0-12-g3f2a1bc -> 0.1.0-12.g3f2a1bc
		described=$(printf '%s' "${described#v}" | sed -e 's|-\([0-9]*\)-g\([0-9a-f]*\)$|-\1.g\2|')
	else
		described="0.0.0-$(git -C "$ROOT" rev-list --count HEAD).g$(git -C "$ROOT" rev-parse --short HEAD)"
	fi
	if dirty; then described+=.dirty; fi
	printf '%s' "$described"
}

dirty() { [ -n "$(git -C "$ROOT" status --porcelain --untracked-files=no 2>/dev/null)" ]; }

# ldflags stamps what "--version", the version metric and the user agent show. The date is the commit's, so that the same
# commit gives the same binary.
ldflags() {
	local kube zone commit=unknown state=unknown date=1970-01-01T00:00:00Z major minor p flags=
	kube=$(pinned k8s.io/kubernetes "$ROOT")
	zone=$(zonewise_version)
	major=${kube#v} major=${major%%.*}
	minor=${kube#v*.} minor=${minor%%.*}
	if [ -n "${VERSION:-}" ] && commit=$(git -C "$ROOT" rev-parse --verify -q HEAD 2>/dev/null); then
		date=$(TZ=UTC git -C "$ROOT" log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
		state=clean
		if dirty; then state=dirty; fi
	else
		commit=unknown
	fi
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $p.gitVersion=$kube+zonewise.$zone -X $p.gitMajor=$major -X $p.gitMinor=$minor"
		flags+=" -X $p.gitCommit=$commit -X $p.gitTreeState=$state -X $p.buildDate=$date"
	done
	printf '%s\n' "${flags# }"
}

case ${1:-all} in
all) printf '%s+zonewise.%s\n' "$(pinned k8s.io/kubernetes "$ROOT")" "$(zonewise_version)" ;;
zonewise) printf '%s\n' "$(zonewise_version)" ;;
kubernetes) printf '%s\n' "$(pinned k8s.io/kubernetes "$ROOT")" ;;
ldflags) ldflags ;;
*) die "unknown argument \"$1\", want zonewise, kubernetes or ldflags" ;;
esac
