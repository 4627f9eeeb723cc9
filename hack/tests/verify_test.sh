#!/usr/bin/env bash
# hack/verify.sh names the generated file that is stale and the command that mends it,
# and touches nothing; after "make update" it is content.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
copy=$WORK/copy
crd=manifests/crds/scheduling.x-k8s.io_podgroups.yaml
export BIN
fail() {
	cat "$WORK/out"
	die "verify_test: $*"
}

copy_tree "$copy"
"$copy/hack/update.sh" crds deepcopy docs >"$WORK/out" 2>&1 || fail "update fails"
"$copy/hack/verify.sh" generated >"$WORK/out" 2>&1 || fail "is not content after an update"

sed 's/minMember/maxMember/' "$copy/$crd" >"$WORK/edited"
cmp -s "$WORK/edited" "$copy/$crd" && fail "$crd has no minMember to edit"
cp "$WORK/edited" "$copy/$crd"
if "$copy/hack/verify.sh" generated >"$WORK/out" 2>&1; then fail "accepts an edited $crd"; fi
grep -q 'mend with "make update"' "$WORK/out" || fail "does not say how to mend it"
grep -q "^  $crd\$" "$WORK/out" || fail "does not name $crd"
cmp -s "$WORK/edited" "$copy/$crd" || fail "changed $crd in the work tree"

printf '\nrequire k8s.io/metrics v0.37.1\n' >>"$copy/go.mod"
if "$copy/hack/verify.sh" tidy >"$WORK/out" 2>&1; then fail "accepts a go.mod that is not tidy"; fi
grep -q 'go mod tidy' "$WORK/out" || fail "does not say how to tidy"

# A tool that compiles another version of what the API server is made of.
want=$(go -C "$copy/hack/tools/gotestsum" list -m -f '{{.Version}}' golang.org/x/term)
(cd "$copy/hack/tools/gotestsum" && go get golang.org/x/term@v0.46.0 && go mod tidy) >"$WORK/out" 2>&1 || fail "has no other golang.org/x/term"
cp "$ROOT/go.mod" "$copy/go.mod"
if "$copy/hack/verify.sh" versions >"$WORK/out" 2>&1; then fail "accepts a module with a version of its own"; fi
grep -q "^./hack/tools/gotestsum .* go get golang.org/x/term@$want " "$WORK/out" || fail "does not say how to mend it"
grep -q "^  golang.org/x/term@$want, here golang.org/x/term@v0.46.0$" "$WORK/out" || fail "does not name the version"
[ "$(grep -c ' here ' "$WORK/out")" = 1 ] || fail "names more than the version"

printf '#!/usr/bin/env bash\nif true; then\n' >"$copy/hack/broken.sh"
if "$copy/hack/verify.sh" scripts >"$WORK/out" 2>&1; then fail "accepts a script that does not parse"; fi
grep -q 'hack/broken.sh' "$WORK/out" || fail "does not name the script that does not parse"
say "ok: stale, untidy, apart and broken are each named, nothing is touched"
