#!/usr/bin/env bash
# Two clones of one commit give the same release, file by file, and what is no commit is refused.
#
#   hack/tests/release_test.sh        for one platform each; "FULL=1" for all, as "make release" does
#
# The image for all platforms from two checkouts is what "make verify" compares.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
fail() {
	tail -n 40 "$WORK/out"
	die "release_test: $*"
}

copy_tree "$WORK/origin"
sed -i.old 's/^## Unreleased$/## 0.1.0/' "$WORK/origin/CHANGELOG.md"
rm "$WORK/origin/CHANGELOG.md.old"
git -C "$WORK/origin" init -q
git -C "$WORK/origin" add -A
GIT_COMMITTER_DATE=2026-01-02T03:04:05Z git -C "$WORK/origin" -c user.name=test -c user.email=test@example.com commit -q --date=2026-01-02T03:04:05Z -m release

args='-platforms linux/amd64 -cli linux/amd64'
if [ "${FULL:-0}" != 0 ]; then args=; fi
for clone in one another; do
	git clone -q "$WORK/origin" "$WORK/$clone"
	# shellcheck disable=SC2086
	(cd "$WORK/$clone/hack/release" && go run . build -version v0.1.0 $args) >"$WORK/out" 2>&1 || fail "the release is not built"
done
diff -r "$WORK/one/dist/v0.1.0" "$WORK/another/dist/v0.1.0" >"$WORK/out" || fail "two clones give different releases"
(cd "$WORK/one/dist/v0.1.0" && sha256sum --check --quiet SHA256SUMS) >"$WORK/out" 2>&1 || fail "the checksums are wrong"
tar -xzf "$WORK/one/dist/v0.1.0/zonewise_0.1.0_linux_amd64.tar.gz" -C "$WORK"
"$WORK/zonewise" version >"$WORK/out"
grep -q '+zonewise\.0\.1\.0$' "$WORK/out" || fail "the program does not name its version"
grep -q "$(git -C "$WORK/one" rev-parse HEAD)" "$WORK/one/dist/v0.1.0/zonewise-scheduler.provenance.json" || fail "the provenance does not name the commit"

say '' >>"$WORK/one/README.md"
if (cd "$WORK/one/hack/release" && go run . build -version v0.1.0) >"$WORK/out" 2>&1; then fail "releases what is no commit"; fi
grep -q 'the checkout has changes' "$WORK/out" || fail "does not say that the checkout has changes"
say "ok: two clones give the same release, with checksums, a version and a provenance"
