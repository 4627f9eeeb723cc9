#!/usr/bin/env bash
# Draws the pictures of the documentation, docs/images/{board,status,explain,simulate}.svg: runs the demo and, on its
# cluster, the commands, each on a terminal. It needs util-linux' script, and a few minutes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

GANG=podgroup/train-too-large # waits: it is too large for the demo's cluster

# on_terminal FILE COMMAND... keeps in FILE what the command sends to a terminal of 112 columns. Its status does not
# matter: a simulation that says no fails.
on_terminal() {
	local file=$1 command
	shift
	printf -v command '%q ' "$@"
	TERM=xterm NO_COLOR= script -qc "stty cols 112 rows 60; $command" "$file.raw" </dev/null >/dev/null
	# Without script's own first and last line, and of a line that was overwritten, what was written last.
	printf '%s\n' "$(sed -e '1d;$d' -e 's/\r*$//' -e 's/.*\r//' -e 's/.*\x1b\[K//' "$file.raw")" >"$file"
}

# svg LABEL FILE draws FILE. LABEL says to a screen reader what there is to see.
svg() {
	local columns lines
	# Text as text, so that it can be searched, copied and read out. The classes are the renditions that the commands use.
	sed -e 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' \
		-e 's/\x1b\[0*m/<\/tspan>/g' -e 's/\x1b\[1m/<tspan class="bold">/g' -e 's/\x1b\[2m/<tspan class="faint">/g' \
		-e 's/\x1b\[31m/<tspan class="red">/g; s/\x1b\[32m/<tspan class="green">/g; s/\x1b\[33m/<tspan class="yellow">/g' "$2" >"$WORK/lines"
	if grep -q $'\x1b' "$WORK/lines"; then die "$2 has a control sequence that no picture shows"; fi
	columns=$(sed 's/\x1b\[[0-9]*m//g' "$2" | wc -L)
	lines=$(wc -l <"$2")
	awk -v label="$1" -v width=$((columns * 783 / 100 + 36)) -v height=$((lines * 17 + 31)) '
		BEGIN {
			printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", width, height, width, height, label
			print "<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;white-space:pre;fill:#d6dde6}.bold{fill:#8cc8ff;font-weight:600}.faint{fill:#8b98a8}.red{fill:#ff8a80}.green{fill:#7ee2a8}.yellow{fill:#ffd479}</style>"
			printf "<rect width=\"%d\" height=\"%d\" rx=\"10\" fill=\"#10161d\"/>\n", width, height
		}
		{ if ($0 != "") printf "<text x=\"18\" y=\"%d\" xml:space=\"preserve\">%s</text>\n", 13 + 17 * NR, $0 }
		END { print "</svg>" }' "$WORK/lines"
}

# picture NAME LABEL COMMAND... draws what the command shows of the demo's cluster.
picture() {
	local name=$1 label=$2
	shift 2
	printf '\033[1m$ %s\033[0m\n' "$*" >"$WORK/$name"
	on_terminal "$WORK/said" "$BIN/$1" "${@:2}"
	cat "$WORK/said" >>"$WORK/$name"
	svg "$label" "$WORK/$name" >"$WORK/$name.svg"
}

need_go
command -v script >/dev/null || die "script not found: install util-linux (bsdutils on Debian)"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
"$ROOT/hack/controlplane/build.sh" demo
"$ROOT/hack/build.sh" demo

on_terminal "$WORK/board" sh -c "echo \$\$ >$WORK/pid; exec $BIN/zonewise-demo --keep --report '' 2>$WORK/progress" &
board=$!
until grep -q 'export KUBECONFIG=' "$WORK/progress" 2>/dev/null; do
	kill -0 $board 2>/dev/null || die "the demo ended before its cluster was kept: $(tail -n 3 "$WORK/progress")"
	sleep 1
done
KUBECONFIG=$(sed -n 's/.*export KUBECONFIG=\([^ ]*\).*/\1/p' "$WORK/progress")
export KUBECONFIG
picture status "zonewise status on the demo cluster" zonewise status
picture explain "zonewise explain of the gang of the demo that waits" zonewise explain $GANG -n training
picture simulate "zonewise simulate of the loss of zone-a" zonewise simulate --lose-zone zone-a
kill -INT "$(cat "$WORK/pid")"
wait $board
# Without the times of the phases, which are those of this machine at this moment.
sed -i '/^\(\x1b\[1m\)\?Phases/,$d' "$WORK/board"
svg "The closing board of make demo" "$WORK/board" >"$WORK/board.svg"
# Together, so that pictures of two runs are never mixed.
mv "$WORK"/*.svg "$ROOT/docs/images/"
