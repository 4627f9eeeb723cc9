#!/usr/bin/env bash
# hack/line.sh makes the tree that its line describes, and refuses a line that does not fit the checkout.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
copy=$WORK/copy
minor=1.36
line=$copy/hack/line/$minor
version=$(sed -n 's|^k8s\.io/kubernetes ||p' "$ROOT/hack/line/$minor/versions")

fail() {
	cat "$WORK/out"
	die "line_test: $*"
}

# refused WANT ARGS... requires that hack/line.sh fails and says WANT.
refused() {
	local want=$1
	shift
	if "$copy/hack/line.sh" "$@" >"$WORK/out" 2>&1; then fail "accepted: $*"; fi
	grep -q "$want" "$WORK/out" || fail "\"$*\" does not say \"$want\""
}

copy_tree "$copy"
refused "there is no line for Kubernetes v1.20.0, but for: .*$minor" v1.20.0 tree
refused 'usage: hack/line.sh' "$version" bild
refused 'usage: hack/line.sh'

refused 'there is no line for Kubernetes v1.20.0-beta.0' v1.20.0-beta.0 tree

# Without a name, lines of pre-releases are left out.
mkdir -p "$copy/hack/line/1.20"
say 'k8s.io/kubernetes v1.20.0-beta.0' >"$copy/hack/line/1.20/versions"
"$copy/hack/line.sh" all tree >"$WORK/out" 2>&1 || fail "all tree"
grep -q "^Kubernetes $version, in" "$WORK/out" || fail "all does not make the tree of $version"
if grep -q -e '^Kubernetes .*-' "$WORK/out"; then fail "all makes the tree of a pre-release"; fi

# What stands in for modules that are not published reaches go.mod.
say 'k8s.io/utils=/no/such/dir' >"$WORK/replace"
REPLACE=$WORK/replace refused 'k8s.io/utils.*/no/such/dir' "$version" tree
REPLACE=$WORK/none refused 'REPLACE names .*/none, which is no file' "$version" tree

rm -rf "$copy"
copy_tree "$copy"
say no/such/path >>"$line/without"
refused "without names no/such/path, which is not there" --here "$version"

# Each time in a new copy: a tree that is made, if only in part, is no checkout any more.
rm -rf "$copy"
copy_tree "$copy"
mkdir -p "$line/_files/no"
: >"$line/_files/no/such.go"
refused "_files has ./no/such.go, which the checkout does not have" --here "$version"

rm -rf "$copy"
copy_tree "$copy"
"$copy/hack/line.sh" --here "$version" >"$WORK/out" 2>&1 || fail "--here $version"
for module in "$copy" "$copy/hack/controlplane/kubernetes"; do
	[ "$(pinned k8s.io/kubernetes "$module")" = "$version" ] || fail "$module is not at $version"
	got=$(go -C "$module" list -m -f '{{.Version}}' k8s.io/client-go)
	[ "$got" = "v0.${version#v1.}" ] || fail "$module has k8s.io/client-go $got"
done
(cd "$line/_files" && find . -type f) | while IFS= read -r file; do
	cmp "$line/_files/$file" "$copy/$file" >"$WORK/out" 2>&1 || fail "$file is that of the main line"
	if cmp -s "$line/_files/$file" "$ROOT/$file"; then fail "$file is the same in the main line"; fi
done
grep -v -e '^#' -e '^$' -e '#' "$line/without" | while IFS= read -r file; do
	if [ -e "$copy/$file" ]; then fail "$file is not left out"; fi
	[ -e "$ROOT/$file" ] || fail "$file is not in the main line"
done
say "ok: the tree of the line is at $version, and a line that does not fit is refused"
