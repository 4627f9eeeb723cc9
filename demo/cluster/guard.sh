# The guard of a cluster: sh -c guard.sh NAME DIRECTORY. Its standard input ends when the demo closes it, or however the demo
# ends. Then it ends the process groups that are recorded in the directory, and removes the directory.
cat >/dev/null
gone=$1.gone
# Renamed first: the scripts that start components fail from now on.
mv "$1" "$gone" 2>/dev/null || exit 0
exec 2>/dev/null
# each COMMAND... runs the command for every recorded group that there is.
each() {
	for file in "$gone"/pids/*; do
		if read -r pid <"$file" && [ "$pid" -gt 1 ]; then "$@"; fi
	done
}
tries=0
ended() {
	while kill -s 0 -- "-$pid" && [ $((tries += 1)) -lt 100 ]; do sleep 0.05; done
}
end() { kill -s KILL -- "-$pid"; }
each end
each ended
rm -rf "$gone"
