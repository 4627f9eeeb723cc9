#!/usr/bin/env bash
# Builds the development tools pinned in the directories beside this script into
# bin/: golangci-lint (with logcheck), controller-gen, gotestsum, helm, promtool.
#
#   hack/tools/build.sh [NAME...]     all of them when no name is given
#
# It says nothing about a tool that is current.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

HERE=$ROOT/hack/tools
ALL="golangci-lint controller-gen gotestsum helm promtool"

module_path_of() {
	case $1 in
	golangci-lint) printf github.com/golangci/golangci-lint/v2 ;;
	controller-gen) printf sigs.k8s.io/controller-tools ;;
	gotestsum) printf gotest.tools/gotestsum ;;
	helm) printf helm.sh/helm/v4 ;;
	promtool) printf github.com/prometheus/prometheus ;;
	*) die "unknown tool \"$1\", want one of: $ALL" ;;
	esac
}

package_of() {
	case $1 in
	golangci-lint) printf . ;;
	controller-gen) printf sigs.k8s.io/controller-tools/cmd/controller-gen ;;
	gotestsum) printf gotest.tools/gotestsum ;;
	helm) printf helm.sh/helm/v4/cmd/helm ;;
	promtool) printf github.com/prometheus/prometheus/cmd/promtool ;;
	esac
}

# tags_of prints the build tags of a tool. Prometheus can find its targets in two dozen clouds, whose clients are most of
# it, and promtool does not need them to look at rules.
tags_of() {
	case $1 in
	promtool) printf remove_all_sd ;;
	esac
}

need_go
toolchain >/dev/null
# shellcheck disable=SC2086
if [ $# -eq 0 ]; then set -- $ALL; fi
for name in "$@"; do
	path=$(module_path_of "$name")
	if ! current "$name" "$HERE/$name" "-s -w"; then
		GOFLAGS="${GOFLAGS:-} -tags=$(tags_of "$name")" build_pinned "$name" "$(pinned "$path" "$HERE/$name")" "$HERE/$name" "$(package_of "$name")" "-s -w"
	fi
done
