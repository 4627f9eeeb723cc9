#!/usr/bin/env bash
# Moves every module of the repository to another Kubernetes version.
#
#   hack/upgrade-k8s.sh v1.X.Y [DIR...]   rewrite go.mod files and tidy; only those of the modules in DIR if some are named
#   hack/upgrade-k8s.sh --dry-run v1.X.Y  print what would change, change nothing
#   hack/upgrade-k8s.sh --check           fail unless all modules are at one version, the main go.mod's
#
# k8s.io/kubernetes v1.X.Y requires its staging modules at v0.0.0 and replaces them by
# directories of its own repository, which another module cannot use. So each module
# that requires it must replace every one of them by v0.X.Y. The list comes from the
# go.mod of the version asked for, because it changes between minor versions. Modules
# that require staging modules alone, such as those of kwok and Helm, take v0.X.Y of them.
#
# An earlier minor version is compiled with the dependencies that it was released with:
# indirect requirements, which go would only raise, are determined again.
#
# REPLACE=FILE has every module take, besides, the replacements in FILE: one a line, in the form of "go mod edit -replace", with
# absolute paths. That is for a pre-release that requires modules which are not published yet; a file that is used is
# no part of a release.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() { die "usage: hack/upgrade-k8s.sh [--dry-run] v1.X.Y [DIR...] | --check"; }

# modules_of_kubernetes prints the module directories that require k8s.io/kubernetes.
modules_of_kubernetes() {
	local dir
	for dir in $(go_modules); do
		if [ -n "$(pinned k8s.io/kubernetes "$ROOT/$dir")" ]; then say "$dir"; fi
	done
}

# modules_of_staging prints the other module directories that require staging modules.
modules_of_staging() {
	local dir
	for dir in $(go_modules); do
		if [ -z "$(pinned k8s.io/kubernetes "$ROOT/$dir")" ] && [ -n "$(staging_in "$dir")" ]; then say "$dir"; fi
	done
}

# staging_in DIR prints the staging modules that DIR/go.mod requires, each with its version.
staging_in() { sed -n 's|^[[:space:]]*\(k8s\.io/[a-z0-9-]*\) \(v0[^ ]*\).*|\1 \2|p' "$ROOT/$1/go.mod" | LC_ALL=C sort | LC_ALL=C join - "$WORK/staging"; }

# fetch_staging VERSION writes the names of its staging modules to $WORK/staging.
fetch_staging() {
	local out
	# Outside any module, so that nothing of ours bears on the answer. -mod=mod is the
	# default there; GOFLAGS may say otherwise.
	if ! out=$(cd "$WORK" && go mod download -json "k8s.io/kubernetes@$1" 2>&1); then
		die "k8s.io/kubernetes $1 is not available: $(sed -n 's|.*"Error": "\(.*\)".*|\1|p' <<<"$out" | sed -e 's|\\n\\t| |g' | head -n 1)"
	fi
	sed -n -e 's|^replace ||' -e 's|^[[:space:]]*\(k8s\.io/[a-z0-9-]*\) => \./staging/.*|\1|p' \
		"$(sed -n 's|.*"GoMod": "\(.*\)".*|\1|p' <<<"$out")" | LC_ALL=C sort -u >"$WORK/staging"
	[ -s "$WORK/staging" ] || die "found no staging modules in the go.mod of k8s.io/kubernetes $1"
}

# replaced_in DIR prints the k8s.io modules that DIR/go.mod replaces by a k8s.io version,
# each with that version.
replaced_in() {
	sed -n -e 's|^replace ||' -e 's|^[[:space:]]*\(k8s\.io/[a-z0-9-]*\) => \1 \(v0[^ ]*\).*|\1 \2|p' "$ROOT/$1/go.mod" | LC_ALL=C sort
}

# rewrite DIR VERSION edits DIR/go.mod: the requirement and every staging replace of a module of Kubernetes, and the
# requirements on staging modules, which go would otherwise only raise, never lower.
rewrite() {
	local dir=$1 version=$2 staging=v0.${2#v1.} name args
	args=()
	if earlier "$version" "$(pinned k8s.io/kubernetes "$ROOT/$dir")"; then
		while read -r name; do
			args+=(-droprequire="$name")
		done < <(sed -n 's|^[[:space:]]*\([^ ]*\) v[^ ]* // indirect$|\1|p' "$ROOT/$dir/go.mod")
	fi
	if [ -n "$(pinned k8s.io/kubernetes "$ROOT/$dir")" ]; then
		args+=(-require="k8s.io/kubernetes@$version")
		while read -r name _; do
			grep -qx "$name" "$WORK/staging" || args+=(-dropreplace="$name")
		done < <(replaced_in "$dir")
		while read -r name; do
			args+=(-replace="$name=$name@$staging")
		done <"$WORK/staging"
	fi
	while read -r name _; do
		args+=(-require="$name@$staging")
	done < <(staging_in "$dir")
	if [ -n "${REPLACE:-}" ]; then
		while read -r name; do
			case $name in '#'* | '') ;; *) args+=(-replace="$name") ;; esac
		done <"$REPLACE"
	fi
	go -C "$ROOT/$dir" mod edit "${args[@]}"
	go -C "$ROOT/$dir" mod tidy
}

# earlier VERSION OTHER: whether the minor version is an earlier one.
earlier() {
	local minor=${1#v1.} other=${2#v1.}
	[ -n "$2" ] && ((${minor%%.*} < ${other%%.*}))
}

check() {
	local want staging dir have bad=0 name version
	want=$(pinned k8s.io/kubernetes "$ROOT")
	staging=v0.${want#v1.}
	fetch_staging "$want"
	for dir in $(modules_of_kubernetes); do
		have=$(pinned k8s.io/kubernetes "$ROOT/$dir")
		if [ "$have" != "$want" ]; then
			say "$dir/go.mod requires k8s.io/kubernetes $have, the main module $want"
			bad=1
		fi
		while read -r name version; do
			if [ "$version" != "$staging" ]; then
				say "$dir/go.mod replaces $name by $version, want $staging"
				bad=1
			fi
		done < <(replaced_in "$dir")
		for name in $(replaced_in "$dir" | sed 's| .*||' | LC_ALL=C comm -13 - "$WORK/staging"); do
			say "$dir/go.mod does not replace the staging module $name"
			bad=1
		done
	done
	for dir in $(modules_of_kubernetes) $(modules_of_staging); do
		while read -r name version; do
			if [ "$version" != "$staging" ]; then
				say "$dir/go.mod requires $name $version, want $staging"
				bad=1
			fi
		done < <(staging_in "$dir")
	done
	((bad == 0)) || die "Kubernetes versions are out of step, mend with \"hack/upgrade-k8s.sh $want\""
	say "Kubernetes $want and staging $staging in: $({ modules_of_kubernetes && modules_of_staging; } | tr '\n' ' ')"
}

main() {
	local version dry= dir old only
	need_go
	WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	trap 'rm -rf "$WORK"' EXIT
	case ${1:-} in
	--check)
		[ $# -eq 1 ] || usage
		check
		return
		;;
	--dry-run)
		dry=yes
		shift
		;;
	esac
	[ $# -ge 1 ] || usage
	version=$1
	shift
	only=" $* "
	[ -z "${REPLACE:-}" ] || [ -f "$REPLACE" ] || die "REPLACE names $REPLACE, which is no file"
	[[ $version =~ ^v1\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$ ]] || die "\"$version\" is no Kubernetes version, want v1.X.Y as in v1.37.2"
	fetch_staging "$version"
	for dir in $(modules_of_kubernetes); do
		case $only in '  ' | *" $dir "*) ;; *) continue ;; esac
		old=$(pinned k8s.io/kubernetes "$ROOT/$dir")
		say "$dir/go.mod: k8s.io/kubernetes $old -> $version, $(wc -l <"$WORK/staging" | tr -d ' ') staging modules -> v0.${version#v1.}"
		if [ -n "$dry" ]; then
			replaced_in "$dir" | sed 's| .*||' | LC_ALL=C comm -13 - "$WORK/staging" | sed 's|^|  new:  |'
			replaced_in "$dir" | sed 's| .*||' | LC_ALL=C comm -23 - "$WORK/staging" | sed 's|^|  gone: |'
			continue
		fi
		rewrite "$dir" "$version"
	done
	for dir in $(modules_of_staging); do
		case $only in '  ' | *" $dir "*) ;; *) continue ;; esac
		say "$dir/go.mod: $(staging_in "$dir" | wc -l | tr -d ' ') staging modules -> v0.${version#v1.}"
		[ -n "$dry" ] || rewrite "$dir" "$version"
	done
	if [ -z "$dry" ]; then
		say "next: make update build test; then look at sigs.k8s.io/controller-runtime, sigs.k8s.io/scheduler-plugins and the CHANGELOG"
	fi
}

main "$@"
