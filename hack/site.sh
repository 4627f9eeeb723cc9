#!/usr/bin/env bash
# Writes the documents as a site, with the hugo that hack/tools pins.
#
#   hack/site.sh [DIR]     dist/site when nothing is given
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
need_tool hugo
out=${1:-$ROOT/dist/site}
"$(tool hugo)" build --source "$ROOT/hack/site" --destination "$out" --cleanDestinationDir --noBuildLock --panicOnWarning --quiet
say "wrote $out"
