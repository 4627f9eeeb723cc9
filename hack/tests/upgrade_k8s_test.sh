#!/usr/bin/env bash
# hack/upgrade-k8s.sh goes to another patch release and back in a copy of the
# repository; the way back must end in the very go.mod and go.sum it started from.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
copy=$WORK/copy
upgrade=$copy/hack/upgrade-k8s.sh

fail() { die "upgrade_k8s_test: $*"; }

# state NAME keeps every go.mod and go.sum of the copy under NAME.
state() {
	local file
	(cd "$copy" && find . -name go.mod -o -name go.sum) | while read -r file; do
		mkdir -p "$WORK/$1/$(dirname "$file")"
		cp "$copy/$file" "$WORK/$1/$file"
	done
}

copy_tree "$copy"
home=$(pinned k8s.io/kubernetes "$copy")
# A neighbour that is sure to exist: the release before, or the one after v1.X.0.
case $home in
*.0) away=${home%.0}.1 ;;
*) away=${home%.*}.$((${home##*.} - 1)) ;;
esac

# Tidy first, so that the comparison is about the upgrade alone.
"$upgrade" "$home" >"$WORK/out" 2>&1 || { cat "$WORK/out"; fail "to $home, where it is already"; }
state home

"$upgrade" --dry-run "$away" >"$WORK/out" 2>&1 || { cat "$WORK/out"; fail "--dry-run $away"; }
state dry
diff -r "$WORK/home" "$WORK/dry" || fail "--dry-run changed files"

"$upgrade" "$away" >"$WORK/out" 2>&1 || { cat "$WORK/out"; fail "to $away"; }
for dir in . hack/controlplane/kubernetes; do
	got=$(go -C "$copy/$dir" list -m -f '{{.Version}}' k8s.io/kubernetes)
	[ "$got" = "$away" ] || fail "$dir: k8s.io/kubernetes is $got, want $away"
	got=$(go -C "$copy/$dir" list -m -f '{{.Replace.Version}}' k8s.io/apiserver)
	[ "$got" = "v0.${away#v1.}" ] || fail "$dir: k8s.io/apiserver is $got, want v0.${away#v1.}"
	if grep -q "=> k8s.io/.* v0.${home#v1.}\$" "$copy/$dir/go.mod"; then fail "$dir: a replace was left at $home"; fi
done
got=$(go -C "$copy/hack/tools/helm" list -m -f '{{.Version}}' k8s.io/client-go)
[ "$got" = "v0.${away#v1.}" ] || fail "hack/tools/helm: k8s.io/client-go is $got, want v0.${away#v1.}"
"$upgrade" --check >"$WORK/out" || fail "--check refuses its own work"

# One module left behind is what --check is for.
cp "$WORK/home/hack/controlplane/kubernetes/go.mod" "$copy/hack/controlplane/kubernetes/go.mod"
if "$upgrade" --check >"$WORK/out" 2>&1; then fail "--check missed a module left at $home"; fi
grep -q "hack/controlplane/kubernetes/go.mod requires k8s.io/kubernetes $home, the main module $away" "$WORK/out" ||
	{ cat "$WORK/out"; fail "--check does not name the module left behind"; }

cp "$WORK/home/hack/tools/helm/go.mod" "$copy/hack/tools/helm/go.mod"
if "$upgrade" --check >"$WORK/out" 2>&1; then fail "--check missed staging modules left at $home"; fi
grep -q "hack/tools/helm/go.mod requires k8s.io/client-go v0.${home#v1.}, want v0.${away#v1.}" "$WORK/out" ||
	{ cat "$WORK/out"; fail "--check does not name the staging modules left behind"; }

"$upgrade" "$home" >"$WORK/out" 2>&1 || { cat "$WORK/out"; fail "back to $home"; }
state back
diff -r "$WORK/home" "$WORK/back" || fail "there and back is not where it started"

for bad in 1.37.1 v1.37 latest ''; do
	if "$upgrade" "$bad" >"$WORK/out" 2>&1; then fail "accepted \"$bad\""; fi
	[ "$(wc -l <"$WORK/out")" -eq 1 ] || { cat "$WORK/out"; fail "\"$bad\" wants one line of explanation"; }
done
say "ok: $home -> $away -> $home leaves no trace"
